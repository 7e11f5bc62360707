"""Plan rounds: compute the times of their messages, and find equal rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from reports.scaling.simulator.cluster import Cluster, Floats, Ints
from reports.scaling.simulator.schedules import Round, Schedule
from reports.scaling.simulator.sharing import fair_rates

SAME = 1e-9
"""Relative difference of times and rates that count as equal."""


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedRound:
    """A round with the times of its messages, (messages,), as if all were in transit at once.

    Attributes:
        wire_s: from the departure of a message's first byte to that of its last.
        sums_s: the time that each endpoint takes to add up what it has received.
        shift: the distance at which every endpoint up to `members` sends an equal message to the endpoint ahead; None
            if the round has other messages.
    """

    round: Round
    paths: Ints
    rates: Floats
    latency_s: Floats
    wire_s: Floats
    is_announced: np.ndarray
    sums_s: Floats
    shift: int | None
    members: int

    @property
    def repeats(self) -> int:
        return self.round.repeats

    def is_like(self, other: PlannedRound) -> bool:
        """Tell whether a round, perhaps of another collective, has the same messages with the same times."""
        pairs = (
            (self.round.sources, other.round.sources),
            (self.round.targets, other.round.targets),
            (self.round.bytes, other.round.bytes),
            (self.sums_s, other.sums_s),
        )
        return all(one is two or np.array_equal(one, two) for one, two in pairs)

    def repeat(self, repeats: int) -> PlannedRound:
        """Return the round with this number of repeats."""
        return dataclasses.replace(self, round=dataclasses.replace(self.round, repeats=repeats))

    def advance(self, times: Floats) -> tuple[Floats, Floats, Floats]:
        """Return when each endpoint finishes the round, (endpoints,), and when each message begins and has left,
        (messages,).
        """
        of, to = self.round.sources, self.round.targets
        begun = times[of]
        heard = np.maximum(begun + self.latency_s, times[to]) + self.latency_s
        begun = np.where(self.is_announced, heard, begun)
        left = begun + self.wire_s
        after = times.copy()
        np.maximum.at(after, of, left)
        np.maximum.at(after, to, left + self.latency_s)
        return after + self.sums_s, begun, left


def plan_round(one: Round, cluster: Cluster) -> PlannedRound:
    """Compute the rates and times of a round's messages, as if all were in transit at once."""
    paths = cluster.find_paths(one.sources, one.targets)
    rates = fair_rates(paths, 1 / cluster.s_per_byte)
    bytes_come = np.bincount(one.targets, weights=one.bytes, minlength=cluster.endpoints)
    latency, wire = cluster.get_latencies(one.sources, one.targets), one.bytes / rates
    is_announced = one.bytes > cluster.eager_bytes
    sums_s = np.asarray(bytes_come * (cluster.summing_s_per_byte * one.sums), np.float64)
    members = len(one.sources)
    shift = int(one.targets[0]) % members
    is_ring = np.array_equal(one.sources, np.arange(members)) and np.array_equal(
        one.targets, (one.sources + shift) % members
    )
    alike = all(np.ptp(each) <= SAME * each.max() for each in (latency, wire, one.bytes))
    ring = shift if is_ring and alike else None
    return PlannedRound(one, paths, rates, latency, wire, is_announced, sums_s, ring, members)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The planned rounds of a schedule; consecutive equal rounds are stored once with their number of repeats."""

    members: tuple[PlannedRound | Plan, ...]
    repeats: int

    def list_rounds(self) -> Iterator[PlannedRound]:
        """Yield the rounds in order, each repeated round only once."""
        for one in self.members:
            yield from one.list_rounds() if isinstance(one, Plan) else [one]


def plan_schedule(schedule: Schedule, cluster: Cluster) -> Plan:
    """Plan the rounds of a schedule, and merge consecutive equal rounds."""
    members: list[PlannedRound | Plan] = []
    for each in schedule.members:
        one = plan_schedule(each, cluster) if isinstance(each, Schedule) else plan_round(each, cluster)
        if isinstance(one, Plan) and len(one.members) == 1 and isinstance(one.members[0], PlannedRound):
            one = one.members[0]
        last = members[-1] if members else None
        if isinstance(one, PlannedRound) and isinstance(last, PlannedRound) and last.is_like(one):
            members[-1] = last.repeat(last.repeats + one.repeats)
        else:
            members.append(one)
    if len(members) == 1 and isinstance(members[0], PlannedRound):
        return Plan((members[0].repeat(schedule.repeats * members[0].repeats),), 1)
    return Plan(tuple(members), schedule.repeats)
