"""The numbers in result.json of a run that a user's program has trained, from the rows of its CSVs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradsweep import timed_steps
from gradsweep.csv_columns import EPOCH_COLUMNS, LOCAL_EPOCH_COLUMNS, PHASES, TEST
from trainers.recording.batch_means import BatchMeans

Row = Mapping[str, float]

SLOW = 0.9
"""Share of the steps in which the yardstick took at most `slow_s`."""


def compute_figures(
    steps: Sequence[Row], epochs: Sequence[Row], warmup: int, resumed_after: Sequence[int]
) -> dict[str, Any]:
    """Return the figures of a run, named as those of our own training; None for what its rows do not tell.

    Args:
        warmup: the steps at the beginning of every attempt that do not count for the throughput.
        resumed_after: the steps after which an attempt went on from a checkpoint.
    """
    late = [row for row in steps if not _is_warming_up(int(row["step"]), warmup, resumed_after)]
    left_out = len(steps) - len(late)
    counted = late or steps  # a run that ends within its warm-up is measured over all its steps
    step_s = _average(counted, "step_s")
    rate = 1 / step_s if step_s else None
    batches = BatchMeans()
    for row in late:
        batches.add(row["step_s"])
    margin = batches.compute_margin()
    is_sure = margin is not None and step_s is not None and margin < step_s
    samples = _average(counted, "samples")
    last = epochs[-1] if epochs else {}
    accuracies = [row["test_accuracy"] for row in epochs if "test_accuracy" in row]
    phases = {phase: _average(counted, f"{phase}_s") for phase in PHASES}
    own = (name for name in last if name not in (*EPOCH_COLUMNS, *LOCAL_EPOCH_COLUMNS))
    return {
        "steps": len(steps),
        "epochs": int(last.get("epoch", 0)),
        "accuracy": last.get("test_accuracy"),
        "best_accuracy": max(accuracies, default=None),
        "loss": last.get("test_loss"),
        "train_loss": last.get("train_loss"),
        "metrics": {name.removeprefix(TEST): last[name] for name in own},
        "iterations_per_second": rate,
        "throughput_low": 1 / (step_s + margin) if is_sure and step_s and margin is not None else None,
        "throughput_high": 1 / (step_s - margin) if is_sure and step_s and margin is not None else None,
        "samples_per_second": samples * rate if samples is not None and rate else None,
        "warmup_steps": left_out if late else 0,
        "timed_steps": timed_steps.after_warmup(len(steps), left_out),
        "resumed_after": list(resumed_after),
        "time_s": steps[-1]["time_s"] if steps else 0.0,
        "evaluate_s": sum(row.get("evaluate_s", 0.0) for row in epochs),
        **{
            name: _average(steps, name)
            for name in ("payload_bytes", "sent_bytes", "compression_ratio", "compression_error")
        },
        "phases_s": {phase: seconds for phase, seconds in phases.items() if seconds is not None},
    }


def _is_warming_up(step: int, warmup: int, resumed_after: Iterable[int]) -> bool:
    return step <= warmup + max((begin for begin in resumed_after if begin < step), default=0)


def _average(rows: Sequence[Row], column: str) -> float | None:
    values = [row[column] for row in rows if column in row]
    return math.fsum(values) / len(values) if values else None


def summarise_yardstick(readings: Sequence[Row], host: str) -> dict[str, Any] | None:
    """Return the figures of rank 0's readings of its yardstick; None without readings.

    Args:
        host: its name, marked as a script's: the work differs from that of our own training.
    """
    readings = [row for row in readings if row.get("yardstick_s", 0) > 0]
    if not readings:
        return None
    times = sorted(row["yardstick_s"] for row in readings)
    low, median, high = (times[min(int(share * len(times)), len(times) - 1)] for share in (0.1, 0.5, SLOW))
    begun = [0.0, *(row["step"] for row in readings)]
    weighted = sorted((row["yardstick_s"], row["step"] - before) for row, before in zip(readings, begun, strict=False))
    whole, reached, slow = sum(weight for _, weight in weighted), 0.0, times[-1]
    for seconds, weight in weighted:
        reached += weight
        if reached >= SLOW * whole:
            slow = seconds
            break
    return {
        "best_s": times[0],
        "median_s": median,
        "spread": (high - low) / median,
        "slow_s": slow,
        "cores_of_others": None,
        "readings": len(readings),
        "by_host": {host: times[0]},
    }
