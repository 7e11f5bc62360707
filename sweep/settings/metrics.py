"""The numbers in result.json that sweep.metric may name, and how they are read."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import io
import math

from gradsweep import run_directory
from gradsweep.errors import UsageError, bad_value
from gradsweep.files import complete_text
from gradsweep.run_directory import Run

MAXIMIZE, MINIMIZE = "maximize", "minimize"
MEDIAN = "median"


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: its key in result.json, whether higher or lower is better, and its column in epochs.csv, if any."""

    goal: str
    column: str | None = None


METRICS = {
    "accuracy": Metric(MAXIMIZE, "test_accuracy"),
    "best_accuracy": Metric(MAXIMIZE, "test_accuracy"),
    "loss": Metric(MINIMIZE, "test_loss"),
    "train_loss": Metric(MINIMIZE, "train_loss"),
    "iterations_per_second": Metric(MAXIMIZE),
    "samples_per_second": Metric(MAXIMIZE),
    "time_s": Metric(MINIMIZE),
    "total_s": Metric(MINIMIZE),
    "payload_bytes": Metric(MINIMIZE),
    "sent_bytes": Metric(MINIMIZE),
    "compression_ratio": Metric(MAXIMIZE),
    "compression_error": Metric(MINIMIZE),
    "peak_memory": Metric(MINIMIZE),
}
"""The values of sweep.metric."""


def check_pruning(metric: str, prune: str | None) -> None:
    """Raise UsageError if sweep.prune is invalid, or cannot be used with this metric or without Optuna."""
    if prune not in (None, MEDIAN):
        raise bad_value("sweep.prune", prune, f"{MEDIAN} or null")
    if prune is None:
        return
    if METRICS[metric].column is None:
        known = ", ".join(name for name, each in METRICS.items() if each.column is not None)
        raise UsageError(f"sweep.prune={prune}: sweep.metric={metric} is not known epoch by epoch; valid is {known}")
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(f"sweep.prune={prune}: needs Optuna (`pip install 'gradsweep[optuna]'`); valid is null")


def read_value(run: Run, metric: str) -> float:
    """Return a run's metric, NaN without a value; for a pruned run the one of its last epoch, as Optuna does."""
    if run.status() == run_directory.PRUNED:
        by_epoch = read_epochs(run, metric)
        return by_epoch[max(by_epoch)] if by_epoch else math.nan
    value = (run.result() or {}).get(metric)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def read_epochs(run: Run, metric: str) -> dict[int, float]:
    """Return the metric after each epoch that a run has finished, by the epoch's number."""
    column = METRICS[metric].column
    values = {}
    for row in csv.DictReader(io.StringIO(complete_text(run.path(run_directory.EPOCHS)))):
        try:
            values[int(row["epoch"])] = float(row[str(column)])
        except (KeyError, TypeError, ValueError):
            continue
    return {epoch: value for epoch, value in values.items() if not math.isnan(value)}
