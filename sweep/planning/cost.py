"""The estimated cost of a grid's runs: time, core-hours and node-hours, and the finished runs used for the estimate."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Sequence
from pathlib import Path

from gradsweep.text import duration, plural
from sweep.planning.estimate import LIKENESS, Estimate
from sweep.planning.row import Row

SURE = "the same"
"""Likeness of the runs behind an estimate that needs no mark."""

LEAST = "≥"
"""Mark of an estimate below which a run hardly stays."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """The estimated cost of some runs together, without those of unknown duration. Times are in seconds."""

    runs: int
    unknown: int
    """The number of runs of unknown length."""

    cores: int | None
    """Of this machine; None where a scheduler has the cores."""

    wall_s: float | None
    """Until the last run ends, when each starts as soon as its cores are free; None with a scheduler."""

    run_s: float
    core_hours: float
    node_hours: float | None
    """None on this machine."""

    rests: list[str]
    """On which finished runs it rests, in words."""

    least: bool = False
    """Some of the runs may take far longer."""

    @classmethod
    def add_up(cls, wanted: Sequence[Row], cores: int | None, max_parallel: int | None) -> Cost:
        """Return the total cost of runs, given in the order of their starts.

        Args:
            cores: the number of this machine's cores for the runs; None: a scheduler has the cores.
            max_parallel: the largest number of runs at the same time.
        """
        known = [(row, row.estimate) for row in wanted if row.estimate is not None]
        estimates = [estimate for _, estimate in known]
        taken = [(row.cores if cores is None else min(row.cores, cores), likely.seconds) for row, likely in known]
        return cls(
            runs=len(wanted),
            unknown=len(wanted) - len(known),
            cores=cores,
            wall_s=None if cores is None or not known else simulate_wall_s(taken, cores, max_parallel),
            run_s=sum((likely.seconds for likely in estimates), 0.0),
            core_hours=sum(used * seconds for used, seconds in taken) / 3600,
            node_hours=None if cores is not None else sum(row.nodes * likely.seconds for row, likely in known) / 3600,
            rests=_describe_sources(estimates),
            least=any(likely.least for likely in estimates),
        )

    def describe(self, roots: Sequence[Path]) -> list[str]:
        """Return lines on the cost; `roots` are the directories that were searched for finished runs."""
        if not self.runs:
            return ["estimated: nothing to do"]
        if self.unknown == self.runs:
            where = " or ".join(map(str, roots))
            cut = "those that max_steps has cut short tell nothing of whole epochs"
            return [f"estimated: unknown; no finished run below {where} has this model and data ({cut})"]
        parts = [f"{duration(self.run_s)} of runs", f"{self.core_hours:.3g} core-hours"]
        if self.wall_s is not None and self.cores is not None:
            parts.insert(0, f"{duration(self.wall_s)} with {plural(self.cores, 'core')}")
        if self.node_hours is not None:
            parts.append(f"{self.node_hours:.3g} node-hours")
        if self.unknown:
            parts.append(f"without {plural(self.unknown, 'run')} of unknown length")
        atleast = "at least " if self.least else ""
        return [f"estimated: {atleast}{', '.join(parts)}", f"  each from finished runs: {'; '.join(self.rests)}"]


def _describe_sources(estimates: Sequence[Estimate]) -> list[str]:
    rests = []
    for likeness, scaled, least in itertools.product(LIKENESS, (False, True), (False, True)):
        alike = [each for each in estimates if (each.likeness, each.scaled, each.least) == (likeness, scaled, least)]
        counts = [each.runs for each in alike]
        if counts:
            kind = "with the same settings" if likeness == SURE else f"{likeness} to it ({LEAST if least else '~'})"
            kind += ", with other workers or cores, scaled by how many have a core" if scaled else ""
            kind += ", none with so many to a core" if least else ""
            rests.append(f"{len(counts)} from {_format_range(counts)} {kind}")
    return rests


def _format_range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return plural(low, "run") if low == high else f"{low} to {high} runs"


def simulate_wall_s(runs: Sequence[tuple[int, float]], cores: int, max_parallel: int | None) -> float:
    """Return the seconds until the last of these runs (cores, seconds) ends, if each starts once its cores are free."""
    now, free, ends = 0.0, cores, list[tuple[float, int]]()
    for wanted, seconds in runs:
        wanted = min(wanted, cores)
        while free < wanted or (max_parallel is not None and len(ends) >= max_parallel):
            now, returned = heapq.heappop(ends)
            free += returned
        free -= wanted
        heapq.heappush(ends, (now + seconds, wanted))
    return max((end for end, _ in ends), default=0.0)
