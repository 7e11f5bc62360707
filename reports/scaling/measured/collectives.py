"""What collectives cost in the alpha-beta-gamma model: latency a message, time a byte, time a summed byte.

A message of n bytes takes alpha + n beta, a worker sends one and receives one at a time, both at once, and all links
are alike and independent of each other. The forms are those of Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH" (2005), and of Chan, Heimlich, Purkayastha and van de Geijn, "Collective
Communication: Theory, Practice, and Experience" (2007), unless a function says otherwise. lg is log2.

With a number of workers W that is no power of two, recursive doubling and halving first fold: W - 2^floor(lg W) workers
give what they have to a neighbour (one message of n), and get the result at the end (another).

What `n` is: allreduce, reduce, bcast and reduce_scatter: the bytes of one worker's own buffer; allgather, gather and
scatter: of one worker's own contribution; alltoall: of one worker's whole send buffer; gossip: of what every neighbour
gets.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

SEGMENT = 2**17
"""Bytes of a segment of a pipeline, as in Open MPI's own decisions for long messages."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """`steps` one after another, in each of which a worker sends `at_once` messages of `bytes`."""

    steps: float
    bytes: float
    at_once: float = 1.0


@dataclasses.dataclass(frozen=True)
class CollectiveCost:
    """What a collective does on its critical path, and what it puts on the network altogether.

    stages: the messages on the critical path. reduced: bytes that are summed between them. wire: payload bytes that
    all workers together send.
    """

    stages: tuple[Stage, ...] = ()
    reduced: float = 0.0
    wire: float = 0.0

    @property
    def steps(self) -> float:
        """One after another, each of a latency."""
        return sum(stage.steps for stage in self.stages)

    @property
    def messages(self) -> float:
        """In these steps."""
        return sum(stage.steps * stage.at_once for stage in self.stages)

    @property
    def bytes(self) -> float:
        """In these messages."""
        return sum(stage.steps * stage.at_once * stage.bytes for stage in self.stages)

    def count_latencies(self, eager: float = math.inf, announced: float = 3.0) -> float:
        """One-way times that are waited for, where messages of more than `eager` bytes wait for so many."""
        return sum(stage.steps * (announced if stage.bytes > eager else 1.0) for stage in self.stages)

    def compute_time(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """Seconds, with `alpha` s a step, `beta` s a byte, `gamma` s a summed byte."""
        return alpha * self.steps + beta * self.bytes + gamma * self.reduced


def _make_steps(steps: float, n: float, reduced: float = 0.0, wire: float = 0.0) -> CollectiveCost:
    """Steps of one message of n bytes."""
    return CollectiveCost((Stage(steps, n),), reduced, wire)


def _send_at_once(messages: float, n: float, reduced: float = 0.0, wire: float = 0.0) -> CollectiveCost:
    """One step of so many messages of n bytes."""
    return CollectiveCost((Stage(1, n, messages),), reduced, wire)


def _halve(n: float, power: int, times: int = 1) -> tuple[Stage, ...]:
    """Messages of n / 2, n / 4, ... n / 2^power, each so many times."""
    return tuple(Stage(times, n / 2**bit) for bit in range(1, power + 1))


def _double(n: float, w: int) -> tuple[Stage, ...]:
    """Messages of 1, 2, 4, ... contributions of n bytes, of which one worker has all W in the end, or at the start."""
    return tuple(Stage(1, n * min(2**bit, w - 2**bit)) for bit in range(_ceil_log2(w)))


def _fold(n: float, fold: int, times: int = 1) -> tuple[Stage, ...]:
    return (Stage(times, n),) if fold else ()


def _ceil_log2(workers: int) -> int:
    """ceil(lg W): the steps in which one worker's word can reach all."""
    return (workers - 1).bit_length()


def _split_power(workers: int) -> tuple[int, int]:
    """lg of the largest power of two that is not above W, and 1 where W is above it, else 0."""
    power = workers.bit_length() - 1
    return power, int(workers > 2**power)


def _allreduce_ring(n: float, w: int) -> CollectiveCost:
    """A reduce-scatter and an allgather round a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce", 2009)."""
    share = n * (w - 1) / w
    return _make_steps(2 * (w - 1), n / w, share, 2 * share * w)


def _allreduce_doubling(n: float, w: int) -> CollectiveCost:
    """Recursive doubling: in each of lg W steps two workers swap all they have."""
    power, fold = _split_power(w)
    wire = 2**power * power * n + 2 * (w - 2**power) * n
    return _make_steps(power + 2 * fold, n, (power + fold) * n, wire)


def _allreduce_rabenseifner(n: float, w: int) -> CollectiveCost:
    """Recursive halving to reduce and scatter, recursive doubling to gather (Rabenseifner, 2004)."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * 2 * share + 2 * (w - 2**power) * n
    return CollectiveCost(_halve(n, power, 2) + _fold(n, fold, 2), share + fold * n, wire)


def _reduce_scatter_ring(n: float, w: int) -> CollectiveCost:
    """Round a ring, or pairwise: W - 1 steps of n / W."""
    share = n * (w - 1) / w
    return _make_steps(w - 1, n / w, share, share * w)


def _reduce_scatter_halving(n: float, w: int) -> CollectiveCost:
    """Recursive halving. Those who were folded get their share, n / W, at the end."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * share + (w - 2**power) * (n + n / w)
    return CollectiveCost(_halve(n, power) + _fold(n, fold) + _fold(n / w, fold), share + fold * n, wire)


def _allgather_ring(n: float, w: int) -> CollectiveCost:
    return _make_steps(w - 1, n, wire=w * (w - 1) * n)


def _allgather_bruck(n: float, w: int) -> CollectiveCost:
    """Bruck et al. (1997): ceil(lg W) steps, of 1, 2, 4, ... contributions, whatever W is."""
    return CollectiveCost(_double(n, w), wire=w * (w - 1) * n)


def _allgather_doubling(n: float, w: int) -> CollectiveCost:
    """Recursive doubling, which is for powers of two; else Bruck's algorithm, as in Open MPI and MPICH."""
    return _allgather_bruck(n, w)


def _allgather_neighbours(n: float, w: int) -> CollectiveCost:
    """Neighbour exchange (Chen et al., 2005), for even W: W / 2 steps, of two contributions after the first; else a
    ring, as in Open MPI."""
    if w % 2:
        return _allgather_ring(n, w)
    return CollectiveCost((Stage(1, n), Stage(w // 2 - 1, 2 * n)), wire=w * (w - 1) * n)


def _alltoall_pairwise(n: float, w: int) -> CollectiveCost:
    return _make_steps(w - 1, n / w, wire=n * (w - 1))


def _alltoall_linear(n: float, w: int) -> CollectiveCost:
    """All messages are posted at once: their latencies overlap, their bytes share the worker's link."""
    return _send_at_once(w - 1, n / w, wire=n * (w - 1))


def _alltoall_bruck(n: float, w: int) -> CollectiveCost:
    """Bruck et al. (1997): step k passes on the blocks whose distance has bit k, n / W each."""
    blocks = [sum(distance >> bit & 1 for distance in range(w)) for bit in range(_ceil_log2(w))]
    return CollectiveCost(tuple(Stage(1, n * passed / w) for passed in blocks), wire=n * sum(blocks))


def _bcast_binomial(n: float, w: int) -> CollectiveCost:
    return _make_steps(_ceil_log2(w), n, wire=(w - 1) * n)


def _bcast_scatter_allgather(n: float, w: int) -> CollectiveCost:
    """Van de Geijn: a binomial scatter, and an allgather round a ring."""
    wire = n * _count_scattered(w) / w + n * (w - 1)
    return CollectiveCost((*_double(n / w, w), Stage(w - 1, n / w)), wire=wire)


def _bcast_pipeline(n: float, w: int) -> CollectiveCost:
    """Along a chain, in segments of SEGMENT bytes: the last worker has the first after W - 1 steps."""
    segments = max(1, math.ceil(n / SEGMENT))
    steps = segments + w - 2
    return _make_steps(steps, n / segments, wire=(w - 1) * n)


def _bcast_linear(n: float, w: int) -> CollectiveCost:
    """The root sends to all at once: one latency, and all bytes through its link."""
    return _send_at_once(w - 1, n, wire=(w - 1) * n)


def _reduce_binomial(n: float, w: int) -> CollectiveCost:
    return _make_steps(_ceil_log2(w), n, _ceil_log2(w) * n, (w - 1) * n)


def _reduce_scatter_gather(n: float, w: int) -> CollectiveCost:
    """Rabenseifner (2004): recursive halving, and a binomial gather at the root."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * share + n * _count_scattered(2**power) / 2**power + (w - 2**power) * n
    return CollectiveCost(_halve(n, power, 2) + _fold(n, fold), share + fold * n, wire)


def _reduce_pipeline(n: float, w: int) -> CollectiveCost:
    chain = _bcast_pipeline(n, w)
    return dataclasses.replace(chain, reduced=chain.bytes)


def _reduce_linear(n: float, w: int) -> CollectiveCost:
    """All send to the root at once, whose link is shared (incast) and who sums what comes."""
    return _send_at_once(w - 1, n, (w - 1) * n, (w - 1) * n)


def _count_scattered(workers: int) -> int:
    """Contributions that a binomial scatter or gather sends altogether: its inner nodes pass on their subtrees."""
    return sum(
        min(2**bit, workers - start)
        for bit in range(_ceil_log2(workers))
        for start in range(2**bit, workers, 2 ** (bit + 1))
    )


def _gather_linear(n: float, w: int) -> CollectiveCost:
    """All send to the root at once, whose link is shared: the incast at a parameter server of W - 1 workers."""
    return _send_at_once(w - 1, n, wire=(w - 1) * n)


def _gather_binomial(n: float, w: int) -> CollectiveCost:
    return CollectiveCost(_double(n, w), wire=n * _count_scattered(w))


def _gossip_at_once(n: float, w: int) -> CollectiveCost:
    """A worker swaps messages with its W - 1 neighbours at once, through its one link."""
    return _send_at_once(w - 1, n, wire=w * (w - 1) * n)


def _gossip_in_turn(n: float, w: int) -> CollectiveCost:
    """With one neighbour after another, as Lian et al. (2017) count: the degree times the latency."""
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
"""The algorithm of each that runs use: conf/mpi/openmpi.yaml asks for rings."""


def compute_cost(collective: str, algorithm: str | None, n: float, workers: int) -> CollectiveCost:
    """What `workers` do in a collective of `n` bytes (what n is: see the module); `algorithm` None: that of runs.

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
    """Seconds that a collective of `n` bytes takes; the arguments are those of `cost` and of `Cost.time`."""
    return compute_cost(collective, algorithm, n, workers).compute_time(alpha, beta, gamma)
