"""Decide whether other programs disturbed a run, by its yardstick: the times of a fixed piece of work.

A yardstick is the object of this name in result.json or in a heat of ratios.json (docs/design/run-directory.md).
Standard library only, because all programs need it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gradsweep.disk.regular_files import real_directories
from gradsweep.files import read_json
from gradsweep.run_directory import RACE_PLAN, RACES, RATIOS, Run, runs_of

SLOWER = 1.10
"""A run is disturbed if its cores were slower than the best of its sweep by more than this factor for more than a tenth
of its steps."""
FAST = 0.1
"""Share of a sweep's readings on a host that were at least as fast as its best, which is no single lucky reading."""
OTHERS = 0.03
"""A run is disturbed if other processes took more than this share of its cores."""


class Heat(NamedTuple):
    """A heat of a race.

    Attributes:
        yardstick: judges the times of the heat (`find_heat_yardsticks`).
        own: its own yardstick, which judges its ratios.
        runs: the runs with these times.
    """

    yardstick: Any
    own: Any
    runs: frozenset[str]


@dataclasses.dataclass(frozen=True)
class SweepYardsticks:
    """The yardsticks of all runs and races in a sweep's directory.

    Attributes:
        trainings: by name of a run.
        races: the heats of each race by its name; if several races measured a run, the times of the last one count.
    """

    trainings: Mapping[str, Any]
    races: Mapping[str, Sequence[Heat]]

    @classmethod
    def read(cls, sweep: Path) -> SweepYardsticks:
        trainings = {run.name: (run.result() or {}).get("yardstick") for run in runs_of(sweep)}
        try:
            names = sorted(real_directories(sweep / RACES))
        except OSError:
            names = []
        # a run is also measured alone (sweep.remeasure), but a race of several runs takes precedence
        found = sorted((_read_heats(Run(sweep / RACES / name)) for name in names), key=lambda race: race[1] > 1)
        return cls(trainings, {name: heats for name, _, heats in found})

    def explain_training(self, run: str) -> str | None:
        """Return in words how others disturbed the training of a run; None as for `explain_disturbed`."""
        return self._explain(self.trainings.get(run))

    def explain_race(self, race: str) -> str | None:
        """Return in words how others disturbed a race, at its first disturbed heat; None as for `explain_disturbed`.

        A heat is disturbed if its times are, or if other processes took its cores, which changes its ratios.
        """
        heats = self.races.get(race, ())
        times = (self._explain(heat.yardstick) for heat in heats)
        ratios = (self._explain(heat.own) for heat in heats if is_crowded(heat.own))
        return next(filter(None, (*times, *ratios)), None)

    def is_raced(self, run: str) -> bool:
        """Tell whether the times of a run are those of a race."""
        return bool(self._list_heats(run))

    def explain_raced(self, run: str) -> str | None:
        """Return in words how others disturbed the times of a run in its race; None as for `explain_disturbed`."""
        heats = self._list_heats(run)
        return self._explain(heats[0].yardstick) if heats else None

    def _list_heats(self, run: str) -> list[Heat]:
        """Return the heats of the race whose times of a run count, as far as they measured the run."""
        found = ([heat for heat in heats if run in heat.runs] for heats in self.races.values())
        return ([[]] + [heats for heats in found if heats])[-1]

    def _explain(self, yardstick: Any) -> str | None:
        return explain_disturbed(yardstick, choose_best(yardstick, self._best))

    @functools.cached_property
    def _best(self) -> dict[str, float]:
        return find_best([*self.trainings.values(), *(heat.yardstick for race in self.races.values() for heat in race)])


def _read_heats(race: Run) -> tuple[str, int, list[Heat]]:
    """Return the name of a race, the number of its racers, and its heats."""
    ratios = read_json(race.path(RATIOS)) or {}
    # the first versions wrote no racers into ratios.json
    racers = _as_mapping(ratios.get("racers", (read_json(race.path(RACE_PLAN)) or {}).get("racers")))
    heats = [_as_mapping(heat) for heat in _as_list(ratios.get("heats"))]
    found = []
    for heat, yardstick in zip(heats, find_heat_yardsticks(heats), strict=True):
        served = [name for racer in _as_mapping(heat.get("runs")) for name in _as_list(racers.get(racer))]
        found.append(Heat(yardstick, heat.get("yardstick"), frozenset(map(str, served))))
    return race.name, len(racers), found


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def find_best(yardsticks: Iterable[Mapping[str, Any] | None]) -> dict[str, float]:
    """Return for each host the time in seconds of a sweep's yardstick while nobody slowed its cores down.

    That is the time of the fastest run or heat, by the fastest tenth of its readings. Runs with less than a tenth of
    all readings of the sweep on the host do not count: the shortest of many times is short by chance.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for yardstick in yardsticks:
        weight = _get_positive(yardstick, "readings") or 1.0
        for host, seconds in _get_readings(yardstick).items():
            found.setdefault(host, []).append((seconds, weight))
    return {host: _find_quantile(sorted(times)) for host, times in found.items()}


def _find_quantile(times: Sequence[tuple[float, float]]) -> float:
    """Return the first of ascending (time, weight) up to which times have at least FAST of all weights."""
    least = FAST * sum(weight for _, weight in times)
    reached = itertools.accumulate(weight for _, weight in times)
    return next(time for (time, _), sofar in zip(times, reached, strict=True) if sofar >= least * (1 - 1e-9))


def choose_best(yardstick: Mapping[str, Any] | None, best: Mapping[str, float]) -> float | None:
    """Return the time in seconds to compare a run's yardstick with; None if there is none.

    A run waits for its slowest host, so of several hosts the one with the longest of these times counts.

    Args:
        yardstick: of the run.
        best: the sweep's best time on each host, by `find_best`.
    """
    return max((best[host] for host in _get_readings(yardstick) if host in best), default=None)


def find_heat_yardsticks(heats: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return for each heat of a race (ratios.json) the yardstick that judges its times.

    Reports convert the times of a later heat to those of the first heat with the same baseline, by the baseline's time
    in both. So it is that heat's yardstick that tells whether these times were disturbed.
    """
    first: dict[str, Any] = {}
    return [first.setdefault(str(heat.get("baseline")), heat.get("yardstick")) for heat in heats]


def compute_drift(yardstick: Mapping[str, Any] | None, best_s: float | None) -> float | None:
    """Return the ratio to `best_s` that the yardstick's time did not exceed in nine tenths of the steps.

    None: unknown.
    """
    slow = _get_positive(yardstick, "slow_s")
    return slow / best_s if slow is not None and best_s else None


def get_share_of_others(yardstick: Mapping[str, Any] | None) -> float | None:
    """Return the share of a run's cores that other processes took, from 0 to 1; None: unknown."""
    found = _get_number(yardstick, "cores_of_others")
    return found if found is not None and 0 <= found <= 1 else None


def is_crowded(yardstick: Mapping[str, Any] | None) -> bool:
    """Tell whether other processes took more of a run's cores than OTHERS."""
    others = get_share_of_others(yardstick)
    return others is not None and others > OTHERS


def explain_disturbed(yardstick: Mapping[str, Any] | None, best_s: float | None) -> str | None:
    """Return in words how other programs disturbed a run; None if they did not, or if it is unknown.

    Args:
        yardstick: of the run; None: an earlier version trained it.
        best_s: the sweep's best yardstick time on the same host, in seconds (see `choose_best`).
    """
    reasons = []
    drift, others = compute_drift(yardstick, best_s), get_share_of_others(yardstick)
    if drift is not None and drift > SLOWER:
        slower = f"{100 * (drift - 1):.0f} % slower than the best of the sweep"
        reasons.append(f"its cores were {slower} for more than a tenth of its steps")
    if is_crowded(yardstick) and others is not None:
        reasons.append(f"other processes took {100 * others:.0f} % of its cores")
    return ", and ".join(reasons) or None


def _get_readings(yardstick: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the run's low yardstick time on each host (`by_host`), in seconds, without invalid values."""
    found = yardstick.get("by_host") if isinstance(yardstick, Mapping) else None
    readings = {host: _get_positive(found, host) for host in found} if isinstance(found, Mapping) else {}
    return {host: seconds for host, seconds in readings.items() if seconds is not None}


def _get_positive(values: Mapping[str, Any] | None, key: str) -> float | None:
    found = _get_number(values, key)
    return found if found is not None and 0 < found < math.inf else None


def _get_number(values: Mapping[str, Any] | None, key: str) -> float | None:
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if abs(found) < 1e300 else None
