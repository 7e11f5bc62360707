"""The plan of a race, plan.json, as the launcher writes it and every rank reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError
from gradsweep.files import read_json
from gradsweep.run_directory import RACE_PLAN


@dataclasses.dataclass(frozen=True)
class Plan:
    """The runs and settings of a race.

    Attributes:
        runs: directories of the runs, which need the same cores or GPUs; the first is the baseline.
        seconds: longest duration of a heat, without its set-up.
        precision: half the width of a ratio's 95 % interval, relative to the ratio; a heat ends when all ratios are
            known as precisely.
        seed: of the order of turns.
        racers: by name of a racing run, the names of all runs that it represents, as their throughput is the same;
            only for the record.
        without: by name of a run that does not race after all, the reason; only for the record.
        untuned: why the exchange of the baseline stays as configured; None: a trial finds its fastest setting.
    """

    runs: tuple[Path, ...]
    seconds: float
    precision: float
    seed: int
    racers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    without: Mapping[str, str] = dataclasses.field(default_factory=dict)
    untuned: str | None = "an earlier version planned the race"

    @classmethod
    def load(cls, directory: Path) -> Plan:
        """Return the plan of the race in `directory`.

        Raises:
            UsageError: the directory has no valid plan.
        """
        plan = read_json(directory / RACE_PLAN)
        if plan is None:
            raise UsageError(f"{directory / RACE_PLAN}: missing, or not JSON")
        runs = tuple(directory / name for name in plan["runs"])
        others = {key: plan[key] for key in ("racers", "without", "untuned") if key in plan}
        return cls(runs, float(plan["seconds"]), float(plan["precision"]), int(plan["seed"]), **others)
