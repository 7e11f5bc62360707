"""What an export says of a run: options, points over its steps with their wall times, and final results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports import machines
from reports.collect import RUN_COLUMNS, LeftOut, Report
from sweep import run as rundir

NOT_ENDED = (rundir.PENDING, rundir.RUNNING)
LAST = ("step", "epoch", "time_s", "lr")  # of several steps as one point: these are the last one's, others means
RESULTS = [name for name, dtype in RUN_COLUMNS.items() if dtype in ("Int64", "float64") and name not in machines.RATES]


@dataclasses.dataclass(frozen=True)
class Point:
    """What was measured up to a step; names begin with `step/` or `epoch/`, as live trackers have them."""

    step: int
    wall_s: float  # Unix time
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A run that is neither pending nor running.

    Attributes:
        began_s, ended_s: Unix times; 0 where they are not known.
        options: as dotted keys, those that decide the numbers of the run.
        results: its figures in `Report.runs`, as `result/accuracy`; without those that are not known.
    """

    sweep: str
    name: str
    signature: str
    status: str
    reason: str
    attempts: int
    began_s: float
    ended_s: float
    options: Mapping[str, Any]
    results: Mapping[str, float]
    points: list[Point]

    @property
    def version(self) -> str:
        """Changes when the run has gone on."""
        return f"{self.status} {self.attempts} {self.ended_s:.3f} {len(self.points)}"


def ended(report: Report, every_s: float = 1.0) -> Iterator[Ended]:
    """The runs of a report that have ended and left any step, read one by one: the steps of all may not fit.

    The others are added to `report.left_out`.

    Args:
        every_s: seconds of training whose steps are one point, with their means, as live trackers have it; 0: each
            step is one.
    """
    options = [column for column in report.runs if column not in RUN_COLUMNS]
    epochs = dict(list(report.epochs.groupby(["sweep", "run"], observed=True)))
    for place, row in report.runs.iterrows():
        directory = Path(row["directory"])
        if row["status"] in NOT_ENDED:
            report.left_out.append(LeftOut(directory, f"not exported: {row['status']}"))
            continue
        one = Report(())
        one.runs = report.runs.loc[[place]].reset_index(drop=True)
        steps, own = one.steps, epochs.get((row["sweep"], row["run"]), report.epochs.iloc[:0])
        report.left_out.extend(one.left_out)
        if len(steps) or len(own):
            yield _ended(row, options, steps, own, every_s)
        else:
            report.left_out.append(LeftOut(directory, "not exported: no step was taken"))


def _ended(row: pd.Series, options: list[str], steps: pd.DataFrame, epochs: pd.DataFrame, every_s: float) -> Ended:
    began, end = (0.0 if pd.isna(row[name]) else row[name].timestamp() for name in ("started", "ended"))
    return Ended(
        sweep=row["sweep"],
        name=row["run"],
        signature=row["signature"],
        status=row["status"],
        reason="" if pd.isna(row["reason"]) else row["reason"],
        attempts=int(row["attempts"]),
        began_s=began,
        ended_s=end,
        options={_as_typed(key): _plain(row[key]) for key in options if not pd.isna(row[key])},
        results={f"result/{name}": float(row[name]) for name in RESULTS if not pd.isna(row[name])},
        points=points(steps, epochs, end, every_s),
    )


def points(steps: pd.DataFrame, epochs: pd.DataFrame, ended_s: float, every_s: float = 1.0) -> list[Point]:
    """Points over the steps, by wall time.

    Wall times are counted back from the end of the run, in training and evaluation seconds: as if all its attempts
    were one that ended when the last one did. Forward from 0 where that is not known.
    """
    steps, epochs = map(_numbers, (steps, epochs))
    steps = _averaged(steps, every_s) if every_s else steps
    evaluated = np.concatenate([[0.0], epochs["evaluate_s"].fillna(0.0).cumsum()])
    # a row of epochs.csv is written after its evaluation, that of its last step before it
    step_at = steps["time_s"] + evaluated[np.searchsorted(epochs["step"], steps["step"], side="left")]
    epoch_at = epochs["time_s"] + evaluated[1:]
    begin = max(ended_s - max([0.0, *step_at[-1:], *epoch_at[-1:]]), 0.0)
    told = [*_points("step", steps, begin + step_at), *_points("epoch", epochs, begin + epoch_at)]
    return sorted(told, key=lambda point: point.step)


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Without the names of the run; times that are not known are those before them."""
    numbers = frame.drop(columns=["sweep", "run"]).astype("float64")
    return numbers.assign(time_s=numbers["time_s"].ffill().fillna(0.0))


def _averaged(steps: pd.DataFrame, every_s: float) -> pd.DataFrame:
    groups = steps.groupby(steps["time_s"] // every_s)
    means = groups.mean()
    means[list(LAST)] = groups[list(LAST)].last()
    return means.reset_index(drop=True)


def _points(prefix: str, frame: pd.DataFrame, walls: pd.Series) -> Iterator[Point]:
    """Without the step, which is where a value stands, and without what live trackers are not told either."""
    names = [name for name in frame if name != "step" and (prefix, name) != ("step", "time_s")]
    for step, wall, row in zip(frame["step"], walls, frame[names].to_numpy(), strict=True):
        values = {f"{prefix}/{name}": value for name, value in zip(names, row.tolist(), strict=True)}
        yield Point(int(step), float(wall), {name: x for name, x in values.items() if not math.isnan(x)})


def _as_typed(key: str) -> str:
    return key.removeprefix("config.") if key.removeprefix("config.") in RUN_COLUMNS else key


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
