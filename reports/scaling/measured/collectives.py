"""Costs of collectives in the alpha-beta-gamma model: latency a message, time a byte, time a summed byte.

A message of n bytes takes alpha + n beta. A worker sends one message and receives one at the same time. All links are
alike and independent of each other. The forms are those of Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH" (2005), and of Chan, Heimlich, Purkayastha and van de Geijn, "Collective
Communication: Theory, Practice, and Experience" (2007), unless a function says otherwise. lg is log2.

If the number of workers W is no power of two, recursive doubling and halving first fold: W - 2^floor(lg W) workers give
their bytes to a neighbour (one message of n), and get the result at the end (another).

`n` is, for allreduce, the bytes of one worker's own buffer; for allgather, of one worker's own contribution; for
alltoall, of one worker's whole send buffer; for gossip, of what every neighbour gets.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of `steps` consecutive rounds, in each of which a worker sends `at_once` messages of `bytes`."""

    steps: float
    bytes: float
    at_once: float = 1.0


@dataclasses.dataclass(frozen=True)
class CollectiveCost:
    """The costs of a collective: messages and sums on its critical path, and bytes on the network.

    Attributes:
        stages: the messages on the critical path.
        reduced: the bytes that are summed between them.
        wire: the payload bytes that all workers together send.
    """

    stages: tuple[Stage, ...] = ()
    reduced: float = 0.0
    wire: float = 0.0

    @property
    def messages(self) -> float:
        """The number of messages in all steps of the critical path."""
        return sum(stage.steps * stage.at_once for stage in self.stages)

    @property
    def bytes(self) -> float:
        """The bytes of all messages on the critical path."""
        return sum(stage.steps * stage.at_once * stage.bytes for stage in self.stages)

    def count_latencies(self, eager: float = math.inf, announced: float = 3.0) -> float:
        """Return the number of one-way latencies: one for each message, but `announced` for one above `eager` bytes."""
        return sum(stage.steps * (announced if stage.bytes > eager else 1.0) for stage in self.stages)


def _make_steps(steps: float, n: float, reduced: float = 0.0, wire: float = 0.0) -> CollectiveCost:
    """Return the cost of this number of steps with one message of n bytes each."""
    return CollectiveCost((Stage(steps, n),), reduced, wire)


def _send_at_once(messages: float, n: float, reduced: float = 0.0, wire: float = 0.0) -> CollectiveCost:
    """Return the cost of one step in which a worker sends this number of messages of n bytes."""
    return CollectiveCost((Stage(1, n, messages),), reduced, wire)


def _ceil_log2(workers: int) -> int:
    """Return ceil(lg W), the rounds after which one worker's message can have reached all workers."""
    return (workers - 1).bit_length()


def _split_power(workers: int) -> tuple[int, int]:
    """Return lg of the largest power of two up to W, and 1 if workers are left over (W is no power of two), else 0."""
    power = workers.bit_length() - 1
    return power, int(workers > 2**power)


def _allreduce_ring(n: float, w: int) -> CollectiveCost:
    """Return the cost of a ring allreduce: a reduce-scatter and an allgather around a ring.

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
    """Return the cost of a reduce-scatter by recursive halving and an allgather by doubling (Rabenseifner, 2004)."""
    power, fold = _split_power(w)
    share = n * (1 - 2.0**-power)
    wire = 2**power * 2 * share + 2 * (w - 2**power) * n
    halves = tuple(Stage(2, n / 2**bit) for bit in range(1, power + 1))
    return CollectiveCost((*halves, Stage(2 * fold, n)), share + fold * n, wire)


def _allgather_ring(n: float, w: int) -> CollectiveCost:
    return _make_steps(w - 1, n, wire=w * (w - 1) * n)


def _allgather_bruck(n: float, w: int) -> CollectiveCost:
    """Return the cost of Bruck's allgather (1997): ceil(lg W) steps with 1, 2, 4, ... contributions, for any W."""
    stages = tuple(Stage(1, n * min(2**bit, w - 2**bit)) for bit in range(_ceil_log2(w)))
    return CollectiveCost(stages, wire=w * (w - 1) * n)


def _allgather_neighbours(n: float, w: int) -> CollectiveCost:
    """Return the cost of an allgather by neighbour exchange (Chen et al., 2005) if W is even, and by a ring if it is
    odd, as in Open MPI.

    A neighbour exchange has W / 2 steps: a worker sends one contribution in the first step, and two in each other step.
    """
    if w % 2:
        return _allgather_ring(n, w)
    return CollectiveCost((Stage(1, n), Stage(w // 2 - 1, 2 * n)), wire=w * (w - 1) * n)


def _alltoall_pairwise(n: float, w: int) -> CollectiveCost:
    return _make_steps(w - 1, n / w, wire=n * (w - 1))


def _alltoall_linear(n: float, w: int) -> CollectiveCost:
    """Return the cost of an alltoall with all messages sent at once: latencies overlap, bytes share a worker's link."""
    return _send_at_once(w - 1, n / w, wire=n * (w - 1))


def _alltoall_bruck(n: float, w: int) -> CollectiveCost:
    """Return the cost of Bruck's alltoall (1997): step k passes on the blocks, n / W each, whose distance has bit k."""
    blocks = [sum(distance >> bit & 1 for distance in range(w)) for bit in range(_ceil_log2(w))]
    return CollectiveCost(tuple(Stage(1, n * passed / w) for passed in blocks), wire=n * sum(blocks))


def _gossip_at_once(n: float, w: int) -> CollectiveCost:
    """Return the cost of swapping messages with W - 1 neighbours at once, through the worker's one link."""
    return _send_at_once(w - 1, n, wire=w * (w - 1) * n)


def _gossip_in_turn(n: float, w: int) -> CollectiveCost:
    """Return the cost of swapping messages with W - 1 neighbours in turn, as Lian et al. (2017) count: degree times
    latency.
    """
    return _make_steps(w - 1, n, wire=w * (w - 1) * n)


COLLECTIVES: dict[str, dict[str, Callable[[float, int], CollectiveCost]]] = {
    "allreduce": {
        "ring": _allreduce_ring,
        "recursive_doubling": _allreduce_doubling,
        "rabenseifner": _allreduce_rabenseifner,
    },
    "allgather": {
        "ring": _allgather_ring,
        "recursive_doubling": _allgather_bruck,  # for powers of two the same; else it is Bruck's in Open MPI and MPICH
        "bruck": _allgather_bruck,
        "neighbour_exchange": _allgather_neighbours,
    },
    "alltoall": {"pairwise": _alltoall_pairwise, "linear": _alltoall_linear, "bruck": _alltoall_bruck},
    "gossip": {"at_once": _gossip_at_once, "in_turn": _gossip_in_turn},
}
"""Functions of the bytes and 2 workers or more by collective and algorithm; of gossip, a worker with its neighbours.

The first algorithm of each is that of our runs: conf/mpi/openmpi.yaml sets rings.
"""
