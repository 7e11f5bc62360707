"""Schedules of collectives as rounds of messages, for any number of workers unless a function says otherwise.

Names and sizes are those of the closed forms in reports/scaling/measured/collectives.py: n is the bytes of one worker's
own buffer for allreduce, reduce and bcast, of its own contribution for allgather, of its whole send buffer for
alltoall, and of what every neighbour gets for gossip. If W is no power of two, recursive doubling and halving first
fold: the workers above it give their bytes to a neighbour, and get the result at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from reports.scaling.simulator.cluster import Floats, Ints


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
    """Messages that do not wait for each other.

    Attributes:
        sources, targets: the endpoints of each message, (messages,).
        bytes: the size of each message, (messages,).
        repeats: the number of such rounds in succession.
        sums: whether receivers add up what they receive.
    """

    sources: Ints
    targets: Ints
    bytes: Floats
    repeats: int = 1
    sums: bool = False

    @property
    def endpoints(self) -> int:
        """The number of endpoints that a cluster needs: one more than the highest."""
        return max((int(end.max()) + 1 for end in (self.sources, self.targets) if len(end)), default=0)


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """A sequence of rounds; an endpoint begins a round when its own messages of the previous round have left and
    arrived.

    Attributes:
        members: rounds or schedules, one after another.
        repeats: the number of times that the sequence is repeated.
    """

    members: tuple[Round | Schedule, ...] = ()
    repeats: int = 1

    def __add__(self, other: Schedule) -> Schedule:
        """Return the schedule that consists of this one and then the other."""
        return Schedule(self._alone + other._alone)

    def __mul__(self, times: int) -> Schedule:
        """Return the schedule repeated `times` times, as for a message sent in this many parts."""
        return Schedule(self._alone, times) if self.members and times != 1 else self

    @property
    def _alone(self) -> tuple[Round | Schedule, ...]:
        """The members of this schedule without its repeats."""
        return self.members if self.repeats == 1 else (self,)

    def iterate_rounds(self) -> Iterator[Round]:
        """Yield all rounds, each as often as it is repeated."""
        for _ in range(self.repeats):
            for one in self.members:
                yield from one.iterate_rounds() if isinstance(one, Schedule) else [one] * one.repeats

    @property
    def messages(self) -> int:
        sizes = (one.messages if isinstance(one, Schedule) else one.repeats * len(one.sources) for one in self.members)
        return self.repeats * sum(sizes)

    @property
    def endpoints(self) -> int:
        """The number of endpoints that a cluster needs: one more than the highest."""
        return max((one.endpoints for one in self.members), default=0)


def make_messages(
    sources: Sequence[int] | Ints, targets: Sequence[int] | Ints, n: float, repeats: int = 1, sums: bool = False
) -> Schedule:
    """Return a round, or `repeats` equal rounds, of messages of n bytes each."""
    of, to = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    if repeats < 1 or not len(of):
        return Schedule()
    return Schedule((Round(of, to, np.full(len(of), float(n)), repeats, sums),))


def group_endpoints(schedule: Schedule, groups: Sequence[Sequence[int]] | Ints) -> Schedule:
    """Return the schedule executed by several groups of endpoints at the same time.

    Args:
        groups: (groups, members): the endpoints that take the roles of the schedule's endpoints 0, 1, ...
    """
    of = np.asarray(groups, np.int64)

    def place(one: Round | Schedule) -> Round | Schedule:
        if isinstance(one, Schedule):
            return group_endpoints(one, of)
        sources, targets = of[:, one.sources].ravel(), of[:, one.targets].ravel()
        return dataclasses.replace(one, sources=sources, targets=targets, bytes=np.tile(one.bytes, len(of)))

    return Schedule(tuple(map(place, schedule.members)), schedule.repeats)


def _shift(workers: int, distance: int, n: float, repeats: int = 1, sums: bool = False) -> Schedule:
    """Return rounds in which each worker sends to the worker at this distance after it."""
    all_ = np.arange(workers)
    return make_messages(all_, (all_ + distance) % workers, n, repeats if workers > 1 else 0, sums)


def _swap(power: int, bit: int, n: float, sums: bool = False) -> Schedule:
    """Return a round in which the 2^power workers swap messages in pairs whose numbers differ in this bit."""
    all_ = np.arange(2**power)
    return make_messages(all_, all_ ^ (1 << bit), n, sums=sums)


def _join(schedules: Sequence[Schedule]) -> Schedule:
    return Schedule(tuple(one for schedule in schedules for one in schedule._alone))


def _fold(workers: int, n: float, inside: Callable[[int], Schedule]) -> Schedule:
    """Return a schedule for W workers: `inside` on the largest power of two up to W, and rounds before and after it for
    the other workers.
    """
    power = workers.bit_length() - 1
    above = np.arange(2**power, workers)
    return (
        make_messages(above, above - 2**power, n, sums=True) + inside(power) + make_messages(above - 2**power, above, n)
    )


def allreduce_ring(workers: int, n: float) -> Schedule:
    """Return an allreduce round a ring (Patarasuk and Yuan, 2009): 2 (W - 1) rounds of n / W."""
    return reduce_scatter_ring(workers, n) + _shift(workers, 1, n / workers, workers - 1)


def allreduce_doubling(workers: int, n: float) -> Schedule:
    """Return an allreduce by recursive doubling: lg W rounds of n (Thakur, Rabenseifner and Gropp, 2005)."""
    return _fold(workers, n, lambda power: _join([_swap(power, bit, n, True) for bit in range(power)]))


def allreduce_rabenseifner(workers: int, n: float) -> Schedule:
    """Return an allreduce by recursive halving, then doubling (Rabenseifner, 2004): n / 2, n / 4, ... and back."""

    def inside(power: int) -> Schedule:
        parts = [(bit, n / 2 ** (power - bit)) for bit in reversed(range(power))]
        halving = [_swap(power, bit, part, True) for bit, part in parts]
        return _join(halving + [_swap(power, bit, part) for bit, part in reversed(parts)])

    return _fold(workers, n, inside)


def reduce_scatter_ring(workers: int, n: float) -> Schedule:
    """Return a reduce-scatter round a ring: W - 1 rounds of n / W."""
    return _shift(workers, 1, n / workers, workers - 1, sums=True)


def allgather_ring(workers: int, n: float) -> Schedule:
    """Return an allgather round a ring: W - 1 rounds of n."""
    return _shift(workers, 1, n, workers - 1)


def allgather_bruck(workers: int, n: float) -> Schedule:
    """Return the allgather of Bruck et al. (1997): ceil(lg W) rounds of 1, 2, 4, ... contributions, for any W."""
    hops = [2**bit for bit in range((workers - 1).bit_length())]
    return _join([_shift(workers, -hop, min(hop, workers - hop) * n) for hop in hops])


def alltoall_pairwise(workers: int, n: float) -> Schedule:
    """Return an alltoall of W - 1 rounds of n / W, in each of which a worker has another partner."""
    return _join([_shift(workers, distance, n / workers) for distance in range(1, workers)])


def alltoall_linear(workers: int, n: float) -> Schedule:
    """Return an alltoall with all messages in one round."""
    of, to = np.nonzero(~np.eye(workers, dtype=bool))
    return make_messages(of, to, n / workers)


def bcast_binomial(workers: int, n: float) -> Schedule:
    """Return a broadcast from worker 0 along a binomial tree, farthest first, as in Open MPI and MPICH."""
    hops = [2**bit for bit in reversed(range((workers - 1).bit_length()))]
    return _join([_make_tree_round(workers, hop, n) for hop in hops])


def reduce_binomial(workers: int, n: float) -> Schedule:
    """Return a reduction to worker 0: the broadcast in reverse."""
    parts = list(bcast_binomial(workers, n).iterate_rounds())
    return _join([make_messages(one.targets, one.sources, n, sums=True) for one in reversed(parts)])


def _make_tree_round(workers: int, hop: int, n: float) -> Schedule:
    """Return the round in which every (2 hop)-th worker sends to the worker at distance `hop` after it."""
    of = np.arange(0, workers - hop, 2 * hop)
    return make_messages(of, of + hop, n)


def bcast_linear(workers: int, n: float) -> Schedule:
    """Return a round in which worker 0 sends to all."""
    return make_messages([0] * (workers - 1), np.arange(1, workers), n)


def gather_linear(workers: int, n: float) -> Schedule:
    """Return a round in which all send to worker 0, whose link is shared: incast."""
    return make_messages(np.arange(1, workers), [0] * (workers - 1), n)


def server(workers: int, n: float, answer: float | None = None, dedicated: bool = False) -> Schedule:
    """Return the exchange with a synchronous parameter server: all send n bytes, the server sums and answers all.

    Args:
        answer: bytes of an answer; None: n.
        dedicated: the server is the first endpoint behind the workers; else it is worker 0.
    """
    place = workers if dedicated else 0
    of = np.arange(0 if dedicated else 1, workers)
    at = np.full_like(of, place)
    return make_messages(of, at, n, sums=True) + make_messages(at, of, n if answer is None else answer)


def hierarchical(workers: int, per_node: int, n: float, leaders: Schedule) -> Schedule:
    """Return a hierarchical exchange: sums of n bytes within nodes, an exchange of their first workers, broadcasts
    within nodes.

    Args:
        leaders: the exchange between nodes, with the numbers of nodes as endpoints.

    Raises:
        ValueError: nodes would not be full.
    """
    if workers % per_node:
        raise ValueError(f"workers={workers}: valid is a multiple of per_node={per_node}")
    nodes = np.arange(workers).reshape(-1, per_node)
    inner = group_endpoints(reduce_binomial(per_node, n), nodes), group_endpoints(bcast_binomial(per_node, n), nodes)
    return inner[0] + group_endpoints(leaders, nodes[None, :, 0]) + inner[1]


def gossip(neighbours: Sequence[Sequence[int]], n: float) -> Schedule:
    """Return a round in which each worker i sends n bytes to its neighbours `neighbours[i]`."""
    of = np.repeat(np.arange(len(neighbours)), [len(each) for each in neighbours])
    return make_messages(of, [to for each in neighbours for to in each], n)
