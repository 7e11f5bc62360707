"""Averaging consensus in one process: n workers bring their vectors to the common mean by messages to neighbours.

This is decentralised training without gradients (Koloskova, Stich and Jaggi, "Decentralized stochastic optimization and
gossip algorithms with compressed communication", ICML 2019, section 3), with the run's compressors, mixing matrices and
random numbers. Rows are workers: x is (n, d), and W x are the vectors of all workers after mixing.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from compressors import Compressor, Key
from compressors.base import count_elements
from trainers.mpi.message_sizes import align
from trainers.topology.mixing import Mixing

DIVERGED = 1e6
"""A consensus has diverged if its error is this many times that of its start."""


class Channel:
    """Compresses and decompresses every worker's vector, as its neighbours receive it.

    Args:
        compressor: is copied for each worker, so that each copy has its own state.
        shapes: the shapes of the units of which a vector consists, in order.
        workers: n.
        seed: of the random numbers, whose keys are those of training: Key(seed, worker, step, unit).
    """

    def __init__(self, compressor: Compressor, shapes: Sequence[Sequence[int]], workers: int, seed: int) -> None:
        self.shapes, self.seed = [tuple(shape) for shape in shapes], seed
        self.dimension = sum(map(count_elements, self.shapes))
        self._compressors = [dataclasses.replace(compressor) for _ in range(workers)]
        for one in self._compressors:
            one.join(workers)
        bound = max(map(compressor.payload_bound, self.shapes), default=0)
        self._message = torch.empty(bound, dtype=torch.uint8)
        self.payload_bytes = 0.0
        """Of what has just been sent: bytes of a worker's payloads, on average."""

    def __call__(self, x: torch.Tensor, step: int) -> torch.Tensor:
        """Return Q(x_i) for every row of x (n, d), as a new tensor, in step `step` (from 1)."""
        decoded, sent = torch.zeros_like(x), 0
        for worker, compressor in enumerate(self._compressors):
            start = 0
            for unit, shape in enumerate(self.shapes):
                end = start + count_elements(shape)
                key = Key(self.seed, worker, step, unit)
                payload = compressor.compress(x[worker, start:end].view(shape), key, self._message)
                compressor.decompress_add(payload, decoded[worker, start:end].view(shape), key)
                sent, start = sent + align(len(payload)), end
        self.payload_bytes = sent / len(x)
        return decoded


class Gossip(ABC):
    """A scheme in which n vectors approach their mean with every `step`.

    Args:
        start: (n, d), float32 or float64; is not changed. In float64 only messages are rounded to float32.
        mixing: W of every step.
        channel: compresses the messages.
        stepsize: gamma, above 0 up to 1: the factor of the change that W prescribes.

    Raises:
        ValueError: the scheme cannot work with these matrices; the message says which matrices it needs.
    """

    needs_one_graph = False
    """Whether the scheme needs a symmetric W that is the same in every step, because it keeps sums over neighbours."""

    def __init__(self, start: torch.Tensor, mixing: Mixing, channel: Channel, stepsize: float) -> None:
        if not mixing.doubly_stochastic:
            raise ValueError("a doubly stochastic W")
        if self.needs_one_graph and (mixing.period > 1 or not mixing.symmetric):
            raise ValueError("a symmetric W, the same in every step")
        self.x, self.mixing, self.channel, self.stepsize = start.clone(), mixing, channel, stepsize
        self._weights = [torch.tensor(matrix, dtype=start.dtype) for matrix in mixing.matrices]

    def mix(self, y: torch.Tensor, step: int) -> torch.Tensor:
        """Return sum_j w_ij y_j for every worker i."""
        return self._weights[(step - 1) % len(self._weights)] @ y

    @property
    def payload_bytes(self) -> float:
        """The mean bytes of a worker's message in the last step."""
        return self.channel.payload_bytes

    def compute_estimate_error(self) -> float:
        """Return sum_i ||x_i - xh_i||^2, where xh_i is the neighbours' estimate of x_i; 0 for schemes without one."""
        return 0.0

    @abstractmethod
    def step(self, step: int) -> None:
        """Execute step `step` (from 1): send and mix."""


class Exact(Gossip):
    """Gossip without compression: x_i += gamma (sum_j w_ij x_j - x_i).

    Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004.
    """

    def step(self, step: int) -> None:
        self.x += self.stepsize * (self.mix(self.x, step) - self.x)

    @property
    def payload_bytes(self) -> float:
        return 4.0 * self.x.shape[1]


class Q1(Gossip):
    """Quantised gossip that does not conserve the mean: x_i += gamma sum_j w_ij (Q(x_j) - x_i).

    Aysal et al., 2008; Q1-G of Koloskova et al.
    """

    def step(self, step: int) -> None:
        self.x += self.stepsize * (self.mix(self.channel(self.x, step), step) - self.x)


class Q2(Gossip):
    """Quantised gossip that conserves the mean: x_i += gamma sum_j w_ij (Q(x_j) - Q(x_i)).

    Carli et al., 2007; Q2-G of Koloskova et al.
    """

    def step(self, step: int) -> None:
        sent = self.channel(self.x, step)
        self.x += self.stepsize * (self.mix(sent, step) - sent)


class Choco(Gossip):
    """CHOCO-Gossip (Koloskova et al., algorithm 1, in the memory-efficient form of its appendix).

    Every worker keeps the estimate xh_i of its own vector, and the sum s_i = sum_j w_ij xh_j over its own and its
    neighbours' estimates. It sends q_i = Q(x_i - xh_i); then xh_i += q_i, s_i += sum_j w_ij q_j,
    x_i += gamma (s_i - xh_i).
    """

    needs_one_graph = True

    def __init__(self, start: torch.Tensor, mixing: Mixing, channel: Channel, stepsize: float) -> None:
        super().__init__(start, mixing, channel, stepsize)
        self.estimates, self.sums = torch.zeros_like(start), torch.zeros_like(start)

    def step(self, step: int) -> None:
        sent = self.channel(self.x - self.estimates, step)
        self.estimates += sent
        self.sums += self.mix(sent, step)
        self.x += self.stepsize * (self.sums - self.estimates)

    def compute_estimate_error(self) -> float:
        return _squares(self.x - self.estimates)


class DeepSqueeze(Gossip):
    """Gossip with error feedback (Tang et al., "DeepSqueeze", 2019): v_i = x_i + e_i, c_i = Q(v_i) is sent,
    e_i = v_i - c_i, x_i += gamma sum_j w_ij (c_j - c_i)."""

    def __init__(self, start: torch.Tensor, mixing: Mixing, channel: Channel, stepsize: float) -> None:
        super().__init__(start, mixing, channel, stepsize)
        self.errors = torch.zeros_like(start)

    def step(self, step: int) -> None:
        self.errors += self.x
        sent = self.channel(self.errors, step)
        self.errors -= sent
        self.x += self.stepsize * (self.mix(sent, step) - sent)


SCHEMES: dict[str, type[Gossip]] = {
    "exact": Exact,
    "q1": Q1,
    "q2": Q2,
    "choco": Choco,
    "deep_squeeze": DeepSqueeze,
}


@dataclasses.dataclass(frozen=True)
class Course:
    """The progress of a consensus: arrays of (T + 1,) float64, from the start to iteration T.

    Attributes:
        errors: (1/n) sum_i ||x_i - m||^2, m the mean of the vectors at the start; inf from where it has diverged.
        estimate_errors: sum_i ||x_i - xh_i||^2; inf likewise.
        bits: sent by a worker to all its neighbours until this iteration, averaged over the workers.
    """

    errors: np.ndarray
    estimate_errors: np.ndarray
    bits: np.ndarray

    @property
    def diverged(self) -> bool:
        return not math.isfinite(self.errors[-1])

    @property
    def factor(self) -> float:
        """The factor by which the distance sqrt(error) changes in an iteration: a geometric mean over the second
        half of the iterations before the error is 1e-20 of its start, the precision of float64; inf if it has
        diverged."""
        if self.diverged:
            return math.inf
        above = np.flatnonzero(self.errors > 1e-20 * self.errors[0])
        last = int(above[-1]) if len(above) else 0
        first = last // 2
        if first == last:
            return 0.0
        return float((self.errors[last] / self.errors[first]) ** (0.5 / (last - first)))


def run(gossip: Gossip, iterations: int) -> Course:
    """Run the consensus for this many steps, and return its progress."""
    mean = gossip.x.mean(0, dtype=torch.float64)
    errors, estimates, bits = (np.full(iterations + 1, math.inf) for _ in range(3))
    errors[0], estimates[0], bits[0] = _error(gossip, mean), gossip.compute_estimate_error(), 0.0
    for step in range(1, iterations + 1):
        try:
            gossip.step(step)
        except FloatingPointError:  # a compressor that refuses what is no number
            break
        error = _error(gossip, mean)
        if not error <= DIVERGED * errors[0]:
            break
        errors[step], estimates[step] = error, gossip.compute_estimate_error()
        bits[step] = bits[step - 1] + 8 * gossip.payload_bytes * gossip.mixing.messages
    return Course(errors, estimates, bits)


def draw_start_vectors(workers: int, dimension: int, seed: int) -> torch.Tensor:
    """Return standard normal numbers, (n, d) float64, from a generator that is the same in all versions of numpy."""
    return torch.from_numpy(np.random.RandomState(seed & 0xFFFFFFFF).standard_normal((workers, dimension)))


def _error(gossip: Gossip, mean: torch.Tensor) -> float:
    return _squares(gossip.x - mean) / len(gossip.x)


def _squares(x: torch.Tensor) -> float:
    return float(x.double().square().sum())
