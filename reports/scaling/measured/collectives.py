"""Costs of collectives in the alpha-beta-gamma model: latency a message, time a byte, time a summed byte.

A message of n bytes takes alpha + n beta, a worker sends one and receives one at a time, both at once, and all links
are alike and independent of each other. The forms are those of Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH" (2005), and of Chan, Heimlich, Purkayastha and van de Geijn, "Collective
Communication: Theory, Practice, and Experience" (2007), unless a function says otherwise. lg is log2.

If the number of workers W is no power of two, recursive doubling and halving first fold: W - 2^floor(lg W) workers give
their bytes to a neighbour (one message of n), and get the result at the end (another).

`n` is, for allreduce, reduce, bcast and reduce_scatter, the bytes of one worker's own buffer; for allgather, gather and
scatter, of one worker's own contribution; for alltoall, of one worker's whole send buffer; for gossip, of what every
neighbour gets.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

SEGMENT = 2**17
"""Bytes of a segment of a pipeline, as in Open MPI's own decisions for long messages."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """`steps` rounds one after another, in each of which a worker sends `at_once` messages of `bytes`."""

    steps: float
    bytes: float
    at_once: float = 1.0


@dataclasses.dataclass(frozen=True)
class CollectiveCost:
    """The work of a collective on its critical path, and its bytes on the network.

    Attributes:
        stages: the messages on the critical path.
        reduced: bytes that are summed between them.
        wire: payload bytes that all workers together send.
    """

    stages: tuple[Stage, ...] = ()
    reduced: float = 0.0
    wire: float = 0.0

    @property
    def steps(self) -> float:
        """The number of steps one after another, each of which takes a latency."""
        return sum(stage.steps for stage in self.stages)

    @property
    def messages(self) -> float:
        """The number of messages in all steps of the critical path."""
        return sum(stage.steps * stage.at_once for stage in self.stages)

    @property
    def bytes(self) -> float:
        """The bytes of these messages."""
        return sum(stage.steps * stage.at_once * stage.bytes for stage in self.stages)

    def count_latencies(self, eager: float = math.inf, announced: float = 3.0) -> float:
        """Return the number of one-way latencies, of which a message of more than `eager` bytes has `announced`."""
        return sum(stage.steps * (announced if stage.bytes > eager else 1.0) for stage in self.stages)

    def compute_time(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """Return seconds, with `alpha` s a step, `beta` s a byte, `gamma` s a summed byte."""
        return alpha * self.steps + beta * self.bytes + gamma * self.reduced


def _make_steps(steps: float, n: float, reduced: float = 0.0, wire: float = 0.0) -> CollectiveCost:
    """Return the cost of steps with one message of n bytes each."""
    return CollectiveCost((Stage(steps, n),), reduced, wire)


def _send_at_once(messages: float, n: float, reduced: float = 0.0, wire: float = 0.0) -> CollectiveCost:
    """Return the cost of one step with so many messages of n bytes."""
    return CollectiveCost((Stage(1, n, messages),), reduced, wire)


def _halve(n: float, power: int, times: int = 1) -> tuple[Stage, ...]:
    """Return messages of n / 2, n / 4, ... n / 2^power, each so many times."""
    return tuple(Stage(times, n / 2**bit) for bit in range(1, power + 1))


def _double(n: float, w: int) -> tuple[Stage, ...]:
    """Return messages of 1, 2, 4, ... contributions of n bytes, until (or from where) one worker has all W."""
    return tuple(Stage(1, n * min(2**bit, w - 2**bit)) for bit in range(_ceil_log2(w)))


def _fold(n: float, fold: int, times: int = 1) -> tuple[Stage, ...]:
    return (Stage(times, n),) if fold else ()


def _ceil_log2(workers: int) -> int:
    """Return ceil(lg W), the steps in which one worker's message can reach all."""
    return (workers - 1).bit_length()


def _split_power(workers: int) -> tuple[int, int]:
    """Return lg of the largest power of two that is not above W, and 1 if W is above it, else 0."""
    power = workers.bit_length() - 1
    return power, int(workers > 2**power)


def _allreduce_ring(n: float, w: int) -> CollectiveCost:
    """Return the cost of a reduce-scatter and an allgather round a ring.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce" (2009).
    """
    share = n * (w - 1) / w
    return _make_steps(2 * (w - 1), n / w, share, 2 * share * w)


def _allreduce_doubling(n: float, w: int) -> CollectiveCost:
    """Return the cost of recursive doubling: in each of lg W steps two workers swap all their bytes."""
    power, fold = _split_power(w)
    wire = 2**power * power * n + 2 * (w - 2**power) * n
    return _make_steps(power + 2 * fold, n, (power + fold) * n, wire)


def _allreduce_rabenseifner(n: float, w: int) -> CollectiveCost:
    """Return the cost of recursive halving to reduce and scatter, and doubling to gather (Rabenseifner, 2004)."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * 2 * share + 2 * (w - 2**power) * n
    return CollectiveCost(_halve(n, power, 2) + _fold(n, fold, 2), share + fold * n, wire)


def _reduce_scatter_ring(n: float, w: int) -> CollectiveCost:
    """Return the cost of a ring, or of pairwise exchange: W - 1 steps of n / W."""
    share = n * (w - 1) / w
    return _make_steps(w - 1, n / w, share, share * w)


def _reduce_scatter_halving(n: float, w: int) -> CollectiveCost:
    """Return the cost of recursive halving; the folded workers get their share, n / W, at the end."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * share + (w - 2**power) * (n + n / w)
    return CollectiveCost(_halve(n, power) + _fold(n, fold) + _fold(n / w, fold), share + fold * n, wire)


def _allgather_ring(n: float, w: int) -> CollectiveCost:
    return _make_steps(w - 1, n, wire=w * (w - 1) * n)


def _allgather_bruck(n: float, w: int) -> CollectiveCost:
    """Return the cost of Bruck et al. (1997): ceil(lg W) steps, of 1, 2, 4, ... contributions, for any W."""
    return CollectiveCost(_double(n, w), wire=w * (w - 1) * n)


def _allgather_doubling(n: float, w: int) -> CollectiveCost:
    """Return the cost of recursive doubling, for powers of two; else Bruck's, as in Open MPI and MPICH."""
    return _allgather_bruck(n, w)


def _allgather_neighbours(n: float, w: int) -> CollectiveCost:
    """Return the cost of a neighbour exchange (Chen et al., 2005), for even W; else of a ring, as in Open MPI.

    It has W / 2 steps, of two contributions after the first.
    """
    if w % 2:
        return _allgather_ring(n, w)
    return CollectiveCost((Stage(1, n), Stage(w // 2 - 1, 2 * n)), wire=w * (w - 1) * n)


def _alltoall_pairwise(n: float, w: int) -> CollectiveCost:
    return _make_steps(w - 1, n / w, wire=n * (w - 1))


def _alltoall_linear(n: float, w: int) -> CollectiveCost:
    """Return the cost of posting all messages at once: latencies overlap, bytes share the worker's link."""
    return _send_at_once(w - 1, n / w, wire=n * (w - 1))


def _alltoall_bruck(n: float, w: int) -> CollectiveCost:
    """Return the cost of Bruck et al. (1997): step k passes on the blocks whose distance has bit k, n / W each."""
    blocks = [sum(distance >> bit & 1 for distance in range(w)) for bit in range(_ceil_log2(w))]
    return CollectiveCost(tuple(Stage(1, n * passed / w) for passed in blocks), wire=n * sum(blocks))


def _bcast_binomial(n: float, w: int) -> CollectiveCost:
    return _make_steps(_ceil_log2(w), n, wire=(w - 1) * n)


def _bcast_scatter_allgather(n: float, w: int) -> CollectiveCost:
    """Return the cost of a binomial scatter and an allgather round a ring (van de Geijn)."""
    wire = n * _count_scattered(w) / w + n * (w - 1)
    return CollectiveCost((*_double(n / w, w), Stage(w - 1, n / w)), wire=wire)


def _bcast_pipeline(n: float, w: int) -> CollectiveCost:
    """Return the cost of a chain in segments of SEGMENT bytes: the last worker has the first after W - 1 steps."""
    segments = max(1, math.ceil(n / SEGMENT))
    steps = segments + w - 2
    return _make_steps(steps, n / segments, wire=(w - 1) * n)


def _bcast_linear(n: float, w: int) -> CollectiveCost:
    """Return the cost of sending to all at once: one latency, and all bytes through the root's link."""
    return _send_at_once(w - 1, n, wire=(w - 1) * n)


def _reduce_binomial(n: float, w: int) -> CollectiveCost:
    return _make_steps(_ceil_log2(w), n, _ceil_log2(w) * n, (w - 1) * n)


def _reduce_scatter_gather(n: float, w: int) -> CollectiveCost:
    """Return the cost of recursive halving, and a binomial gather at the root (Rabenseifner, 2004)."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * share + n * _count_scattered(2**power) / 2**power + (w - 2**power) * n
    return CollectiveCost(_halve(n, power, 2) + _fold(n, fold), share + fold * n, wire)


def _reduce_pipeline(n: float, w: int) -> CollectiveCost:
    chain = _bcast_pipeline(n, w)
    return dataclasses.replace(chain, reduced=chain.bytes)


def _reduce_linear(n: float, w: int) -> CollectiveCost:
    """Return the cost of all sending to the root at once, which shares its link among them (incast) and sums."""
    return _send_at_once(w - 1, n, (w - 1) * n, (w - 1) * n)


def _count_scattered(workers: int) -> int:
    """Count the contributions that a binomial scatter or gather sends: inner nodes pass on their subtrees."""
    return sum(
        min(2**bit, workers - start)
        for bit in range(_ceil_log2(workers))
        for start in range(2**bit, workers, 2 ** (bit + 1))
    )


def _gather_linear(n: float, w: int) -> CollectiveCost:
    """Return the cost of all sending to the root at once: the incast at a parameter server of W - 1 workers."""
    return _send_at_once(w - 1, n, wire=(w - 1) * n)


def _gather_binomial(n: float, w: int) -> CollectiveCost:
    return CollectiveCost(_double(n, w), wire=n * _count_scattered(w))


def _gossip_at_once(n: float, w: int) -> CollectiveCost:
    """Return the cost of swapping messages with W - 1 neighbours at once, through the worker's one link."""
    return _send_at_once(w - 1, n, wire=w * (w - 1) * n)


def _gossip_in_turn(n: float, w: int) -> CollectiveCost:
    """Return the cost of one neighbour after another, as Lian et al. (2017) count: degree times latency."""
    return _make_steps(w - 1, n, wire=w * (w - 1) * n)


COLLECTIVES: dict[str, dict[str, Callable[[float, int], CollectiveCost]]] = {
    "allreduce": {
        "ring": _allreduce_ring,
        "recursive_doubling": _allreduce_doubling,
        "rabenseifner": _allreduce_rabenseifner,
    },
    "reduce_scatter": {"ring": _reduce_scatter_ring, "recursive_halving": _reduce_scatter_halving},
    "allgather": {
        "ring": _allgather_ring,
        "recursive_doubling": _allgather_doubling,
        "bruck": _allgather_bruck,
        "neighbour_exchange": _allgather_neighbours,
    },
    "alltoall": {"pairwise": _alltoall_pairwise, "linear": _alltoall_linear, "bruck": _alltoall_bruck},
    "bcast": {
        "binomial": _bcast_binomial,
        "scatter_allgather": _bcast_scatter_allgather,
        "pipeline": _bcast_pipeline,
        "linear": _bcast_linear,
    },
    "reduce": {
        "binomial": _reduce_binomial,
        "scatter_gather": _reduce_scatter_gather,
        "pipeline": _reduce_pipeline,
        "linear": _reduce_linear,
    },
    "gather": {"linear": _gather_linear, "binomial": _gather_binomial},
    "scatter": {"linear": _gather_linear, "binomial": _gather_binomial},
    "gossip": {"at_once": _gossip_at_once, "in_turn": _gossip_in_turn},
}
"""The algorithms of each collective. `workers` counts the root, and of gossip a worker with its neighbours."""

DEFAULTS = {collective: next(iter(algorithms)) for collective, algorithms in COLLECTIVES.items()}
"""The algorithm of each collective in our runs: conf/mpi/openmpi.yaml sets rings."""


def compute_cost(collective: str, algorithm: str | None, n: float, workers: int) -> CollectiveCost:
    """Return the cost of a collective of `n` bytes (see the module); `algorithm` None is that of our runs.

    Raises:
        ValueError: there is no such collective or algorithm, or less than one worker.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"{collective}: no collective; valid is one of {', '.join(COLLECTIVES)}")
    algorithm = DEFAULTS[collective] if algorithm is None else algorithm
    if algorithm not in COLLECTIVES[collective]:
        raise ValueError(f"{algorithm}: no {collective}; valid is one of {', '.join(COLLECTIVES[collective])}")
    if workers < 1:
        raise ValueError(f"workers={workers}: valid is 1 or more")
    return COLLECTIVES[collective][algorithm](n, workers) if workers > 1 else CollectiveCost()


def compute_time(
    collective: str, algorithm: str | None, n: float, workers: int, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Return the seconds of a collective of `n` bytes; see `compute_cost` and `CollectiveCost.compute_time`."""
    return compute_cost(collective, algorithm, n, workers).compute_time(alpha, beta, gamma)
