"""The plan of a race, heat.json, as the launcher writes it and every rank reads it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gradsweep.errors import UsageError
from gradsweep.files import read_json
from gradsweep.run_directory import RACE_PLAN


@dataclasses.dataclass(frozen=True)
class Plan:
    """The runs and settings of a race.

    Attributes:
        runs: directories of the runs, which need the same place; the first is the baseline.
        seconds: of a heat, at most, without its set-up.
        precision: half the width of a ratio's 95 % interval, relative to the ratio; a heat ends where all have it.
        seed: of the order of turns.
    """

    runs: tuple[Path, ...]
    seconds: float
    precision: float
    seed: int

    @classmethod
    def load(cls, directory: Path) -> Plan:
        """Return the plan of the race in `directory`.

        Raises:
            UsageError: it has none.
        """
        plan = read_json(directory / RACE_PLAN)
        if plan is None:
            raise UsageError(f"{directory / RACE_PLAN}: missing, or not JSON")
        runs = tuple(directory / name for name in plan["runs"])
        return cls(runs, float(plan["seconds"]), float(plan["precision"]), int(plan["seed"]))
