"""Trackers by name, one file each: other programs' logs of a run, beside its CSV files, on rank 0 only.

They keep all they write under RUN/trackers/NAME and send nothing anywhere. One that fails is left out from then on; the
run goes on.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainers.config.groups import GROUPS, get_name
from trainers.config.run_config import RunConfig
from trainers.trackers.base import Tracker

METHODS: dict[str, str] = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}
"""The class of a tracker in the module of its name."""


def flatten_options(config: RunConfig) -> dict[str, Any]:
    """All options of a run as dotted keys with plain values; a group goes by its name, as on a command line."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in GROUPS:
            found[field.name] = get_name(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found |= _flatten(f"{field.name}.", dataclasses.asdict(value))
        else:
            found[field.name] = value
    return found


def _flatten(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flatten(f"{prefix}{name}.", value)
        else:
            found[f"{prefix}{name}"] = value
    return found


class Trackers:
    """The trackers of a run, together; a listener of the recorder. Of what it is told it passes on numbers only."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        self.config, self.directory = config, directory / "trackers"
        self._running: list[tuple[str, Tracker]] = []

    def begin(self, after: int) -> None:
        """Start them, in a run that goes on after step `after`, 0 at its beginning."""
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
        """Pass on the means of these rows of steps.csv, about a second's, as one point."""
        if self._running and rows:
            means = {
                name: _compute_mean([row[name] for row in rows]) for name in rows[0] if name not in ("step", "time_s")
            }
            means["epoch"], means["lr"] = rows[-1]["epoch"], rows[-1]["lr"]
            step = int(rows[-1]["step"])
            self._all(lambda tracker: tracker.log(step, _select_numbers(means)))

    def on_epoch(self, row: Mapping[str, float]) -> None:
        """Pass on a row of epochs.csv."""
        self._all(lambda tracker: tracker.log_epoch(int(row["epoch"]), _select_numbers(row)))

    def finish(self, status: str) -> None:
        """The run has ended, with a status as in result.json."""
        self._all(lambda tracker: tracker.finish(status))
        self._running.clear()


def _compute_mean(values: Sequence[float]) -> float:
    """Return the mean of what was measured; a step in which something was not measured has NaN."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _select_numbers(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}
