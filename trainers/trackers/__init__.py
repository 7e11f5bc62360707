"""Trackers by name, one file each: rank 0 logs a run for other programs, such as TensorBoard, besides its CSV files.

They write only under RUN/trackers/NAME and send nothing anywhere. A tracker that fails is not called again; the run
continues.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainers.config.groups import flatten_options
from trainers.config.run_config import RunConfig
from trainers.trackers.base import Tracker

METHODS: dict[str, str] = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}
"""The class of a tracker in the module of its name."""


class Trackers:
    """A listener of the recorder that passes rows to all trackers of a run, without NaN."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        self.config, self.directory = config, directory / "trackers"
        self._running: list[tuple[str, Tracker]] = []

    def begin(self, after: int) -> None:
        """Start the trackers; the run continues after step `after`, or begins with 0."""
        for name in self.config.trackers:
            self._try(name, functools.partial(self._start, name, self.directory / name, after))

    def _start(self, name: str, directory: Path, after: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        tracker: Tracker = getattr(importlib.import_module(f"trainers.trackers.{name}"), METHODS[name])()
        tracker.start(flatten_options(self.config), directory, after)
        self._running.append((name, tracker))

    def _try(self, name: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # whatever another program raises is no reason to lose the run
            print(f"trackers={name}: {type(error).__name__}: {error}; the run goes on without it", file=sys.stderr)
            return False
        return True

    def _all(self, call: Callable[[Tracker], None]) -> None:
        self._running = [
            (name, tracker) for name, tracker in self._running if self._try(name, functools.partial(call, tracker))
        ]

    def on_steps(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Send the means over these rows of steps.csv, about those of a second, to the trackers."""
        if self._running and rows:
            means = {name: _compute_mean([row[name] for row in rows]) for name in rows[0] if name != "time_s"}
            self._log("step", {**means, **{name: rows[-1][name] for name in ("step", "epoch", "lr")}})

    def on_epoch(self, row: Mapping[str, float]) -> None:
        """Send a row of epochs.csv to the trackers."""
        self._log("epoch", row)

    def _log(self, kind: str, row: Mapping[str, float]) -> None:
        """Send the numbers of a row to the trackers, with its step."""
        values = {
            f"{kind}/{name}": float(value) for name, value in row.items() if name != "step" and not math.isnan(value)
        }
        self._all(lambda tracker: tracker.log(int(row["step"]), values))

    def finish(self, status: str) -> None:
        """Tell all trackers that the run has ended, with a status as in result.json."""
        self._all(lambda tracker: tracker.finish(status))
        self._running.clear()


def _compute_mean(values: Sequence[float]) -> float:
    """Return the mean of the measured values; NaN stands for a value that was not measured."""
    measured = [value for value in values if not math.isnan(value)]
    return sum(measured) / len(measured) if measured else math.nan
