"""The numbers in result.json that sweep.metric may name, and how they are read."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import io
import math
import re

from gradsweep import run_directory
from gradsweep.csv_columns import TEST
from gradsweep.errors import UsageError, bad_value
from gradsweep.files import complete_text
from gradsweep.options.hints import did_you_mean
from gradsweep.run_directory import Run

MAXIMIZE, MINIMIZE = "maximize", "minimize"
MEDIAN = "median"
DEFAULT = "accuracy"
"""The default of sweep.metric."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: whether higher or lower is better, its column in epochs.csv, if any, and whether tasks differ in it."""

    goal: str
    column: str | None = None
    of_task: bool = False


METRICS = {
    "accuracy": Metric(MAXIMIZE, "test_accuracy", of_task=True),
    "best_accuracy": Metric(MAXIMIZE, "test_accuracy", of_task=True),
    "mae": Metric(MINIMIZE, "test_mae", of_task=True),
    "r2": Metric(MAXIMIZE, "test_r2", of_task=True),
    "perplexity": Metric(MINIMIZE, "test_perplexity", of_task=True),
    "bits_per_character": Metric(MINIMIZE, "test_bits_per_character", of_task=True),
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
"""The metrics that are known before a run, by the values of sweep.metric."""

VALID = f"one of {', '.join(METRICS)}, or a metric of an own task together with sweep.goal=maximize or minimize"

_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


def find_metric(name: str, goal: str | None = None) -> Metric:
    """Return a metric by its name; one that is not known is of an own task, and has the goal of sweep.goal."""
    return METRICS.get(name) or Metric(goal or MINIMIZE, f"{TEST}{name}", of_task=True)


def check_metric(name: str, goal: str | None) -> None:
    """Raise UsageError if sweep.metric is not known and sweep.goal does not say that it is of an own task, or if
    sweep.goal is given for a known one."""
    if name in METRICS:
        if goal is not None:
            valid = f"null: sweep.metric={name} is to {METRICS[name].goal} in any case"
            raise bad_value("sweep.goal", goal, valid)
    elif goal is None or not _NAME.fullmatch(name):
        raise bad_value("sweep.metric", name, VALID, did_you_mean(name, METRICS))


def check_pruning(metric: str, prune: str | None) -> None:
    """Raise UsageError if sweep.prune is invalid, or cannot be used with this metric or without Optuna."""
    if prune not in (None, MEDIAN):
        raise bad_value("sweep.prune", prune, f"{MEDIAN} or null")
    if prune is None:
        return
    if find_metric(metric).column is None:
        known = ", ".join(name for name, each in METRICS.items() if each.column is not None)
        raise UsageError(f"sweep.prune={prune}: sweep.metric={metric} is not known epoch by epoch; valid is {known}")
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(f"sweep.prune={prune}: needs Optuna (`pip install 'gradsweep[optuna]'`); valid is null")


def read_value(run: Run, metric: str) -> float:
    """Return a run's metric, NaN without a value; for a pruned run the one of its last epoch, as Optuna does."""
    if run.status() == run_directory.PRUNED:
        by_epoch = read_epochs(run, metric)
        return by_epoch[max(by_epoch)] if by_epoch else math.nan
    result = run.result() or {}
    named = result.get("metrics")  # of its task, besides the accuracy
    value = result.get(metric, named.get(metric) if isinstance(named, dict) else None)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def read_epochs(run: Run, metric: str) -> dict[int, float]:
    """Return the metric at the first evaluation in each epoch, which is at its end, by the epoch's number.

    With evaluate_every_steps it may be earlier, and an epoch may have others, too.
    """
    column = find_metric(metric).column
    values: dict[int, float] = {}
    for row in csv.DictReader(io.StringIO(complete_text(run.path(run_directory.EPOCHS)))):
        try:
            values.setdefault(int(row["epoch"]), float(row[str(column)]))
        except (KeyError, TypeError, ValueError):
            continue
    return {epoch: value for epoch, value in values.items() if not math.isnan(value)}
