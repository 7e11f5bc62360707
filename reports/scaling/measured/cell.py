"""The measurements of one method with one number of workers on one network, for the cost model."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from reports.scaling.measured.links import Links
from reports.scaling.measured.traffic import Traffic

RACED_LEVEL = 0.95
"""The level of the intervals that races measure."""


class RacedRatio(NamedTuple):
    """The speed of a method relative to the method `base`, as a race has measured it, with its interval."""

    base: str
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class MeasuredCell:
    """The measurements of one method, number of workers, network and batch; times in s, means over steps and workers.

    Attributes:
        workload: the name of the computed task, without the method; empty if all cells compute the same.
        network: its name; `links` are its measurements.
        load: ranks times threads, divided by the cores that they have; at most 1 if there are enough cores.
        samples: of a worker in a step; `batch` names the swept options of the batch.
        compute_s: data, forward, backward, update, and the gaps between; all that the other times do not contain.
        communicate_s: until the end of the exchange, including the wait for other workers.
        backward_s: the part of `compute_s` in backward.
        beside_s: the part of `compute_s` during which an overlapping exchange can continue.
        overlaps: whether the exchange overlaps with it.
        is_fair: whether its communication was limited by the network, not by the CPUs.
        expected: the configured links of the network, if there are any.
        hosts: the number of hosts of the workers; 0 if it is not known.
        part: the length of the exchange's parts, in usual lengths (see `Traffic`).
        allreduce: the algorithm of its sums (see `Traffic`).
        raced: the ratio that a race has measured; None without a race.
    """

    workload: str
    method: str
    workers: int
    network: str
    links: Links
    load: float
    samples: float
    compute_s: float
    encode_s: float
    communicate_s: float
    decode_s: float
    backward_s: float
    beside_s: float
    overlaps: bool = False
    is_fair: bool = True
    expected: Links | None = None
    hosts: int = 0
    batch: str = ""
    part: float = 1.0
    allreduce: str = ""
    raced: RacedRatio | None = None

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """The key of the cell: a tuple that identifies it."""
        return self.workload, self.method, self.network, self.workers, self.batch

    def get_traffic(self, traffic: Traffic) -> Traffic:
        """Return the traffic of this cell's method, with the setting of the exchange in this cell."""
        return dataclasses.replace(traffic.change_parts(self.part), allreduce=self.allreduce)

    @property
    def step_s(self) -> float:
        return self.compute_s + self.encode_s + self.communicate_s + self.decode_s
