"""The result of a run that a user's program has trained: check its CSVs, and compute result.json from them."""

from __future__ import annotations

import csv
import io
import math
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files
from gradsweep.csv_columns import EPOCH_COLUMNS, LOCAL_EPOCH_COLUMNS, STEP_COLUMNS
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean
from gradsweep.run_directory import (
    CHECKPOINT,
    DIVERGED,
    DONE,
    EPOCHS,
    FORMAT,
    RESULT,
    RESULTS,
    SCRIPT_RESUMED,
    STEPS,
    STOPPED,
    YARDSTICK,
    Run,
)
from trainers.script.figures import compute_figures, summarise_yardstick

GUIDE = "docs/guide/own-scripts.md"
NEEDED = {STEPS: ("step", "step_s", "samples"), EPOCHS: ("epoch", "step")}
"""The columns that a file must have, if the script writes it."""

Row = dict[str, float]


def write_result(directory: Path, attempt: Path, config: Mapping[str, Any]) -> None:
    """Write the run's result.json after the program has ended well; nothing if it has saved its state and stopped.

    Raises:
        UsageError: the program has left no result, or its files have other columns or rows than documented.
    """
    if (attempt / STOPPED).exists():
        return
    given = _read_given(attempt / RESULT)
    status = given.get("status", DONE)
    steps = complete_steps(directory / STEPS)
    epochs = _read_rows(directory / EPOCHS, (*EPOCH_COLUMNS, *LOCAL_EPOCH_COLUMNS), has_metrics=True)
    lost = next((int(row["step"]) for row in steps if not math.isfinite(row.get("loss", 0.0))), None)
    if status == DONE and lost is not None:
        status, given["reason"] = DIVERGED, f"the loss is not finite at step {lost}"
    figures = compute_figures(steps, epochs, config["warmup_steps"], find_resumes(directory))
    yardstick = _read_rows(directory / YARDSTICK, None)
    result = {
        "format": FORMAT,
        "status": status,
        "reason": given.get("reason"),
        **figures,
        "yardstick": summarise_yardstick(yardstick, f"{socket.gethostname()} (script)"),
        "hosts": [socket.gethostname()],
        **{name: value for name, value in given.items() if name not in ("format", "status", "reason")},
        "metrics": {**figures["metrics"], **given.get("metrics", {})},
    }
    files.write_json(directory / RESULT, result)
    shutil.rmtree(directory / CHECKPOINT, ignore_errors=True)


def _read_given(path: Path) -> dict[str, Any]:
    """Return the program's own result.json.

    Raises:
        UsageError: the file is missing, is no JSON object, or has values that are no numbers.
    """
    given = files.read_json(path)
    if given is None and path.exists():
        raise UsageError(f"{RESULT}: valid is a JSON object ({GUIDE})")
    if given is None:
        raise UsageError(
            f"the script exited with 0 and left no result; valid is to call finish() of gradsweep.script.Run, or to "
            f"write $GRADSWEEP_ATTEMPT/{RESULT} ({GUIDE})"
        )
    status, metrics = given.get("status", DONE), given.get("metrics", {})
    if status not in RESULTS:
        raise UsageError(f"{RESULT}: status={status}: valid is {' or '.join(RESULTS)}")
    if not isinstance(metrics, Mapping):
        raise UsageError(f"{RESULT}: metrics={metrics}: valid is a mapping of names to numbers")
    figures = {name: value for name, value in given.items() if name not in ("format", "status", "reason", "metrics")}
    for name, value in [*figures.items(), *metrics.items()]:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UsageError(f"{RESULT}: {name}={value}: valid is a number, or null")
    return given


def find_resumes(directory: Path) -> list[int]:
    """Return the steps after which attempts went on from a checkpoint, since the last attempt that began anew."""
    run, steps = Run(directory), list[int]()
    for number in run.attempt_numbers():
        step = (files.read_json(run.attempt(number) / SCRIPT_RESUMED) or {}).get("step")
        steps = [*(each for each in steps if each < step), step] if isinstance(step, int) and step > 0 else []
    return steps


def complete_steps(path: Path) -> list[Row]:
    """Check steps.csv, add the columns that it lacks, and return its rows without the empty fields.

    Raises:
        UsageError: its columns are unknown, or its rows are not numbered from 1.
    """
    rows = _read_rows(path, STEP_COLUMNS)
    passed = 0.0
    for number, row in enumerate(rows, 1):
        if row.get("step") != number:
            raise UsageError(f"{path.name}: row {number} has step {row.get('step')}; valid is a row a step, from 1")
        if row.get("step_s", -1) < 0 or row.get("samples", -1) < 0:
            raise UsageError(f"{path.name}: row {number}: valid is a number from 0 up for step_s and samples")
        passed += row["step_s"]
        row.setdefault("epoch", 1)
        row.setdefault("time_s", passed)
    if rows:
        counted = ({**row, "step": int(row["step"]), "epoch": int(row["epoch"])} for row in rows)
        files.write_rows(path, STEP_COLUMNS, counted)
    return rows


def _read_rows(path: Path, columns: Sequence[str] | None, *, has_metrics: bool = False) -> list[Row]:
    """Return the rows of a CSV without its empty fields; none if there is no file.

    Args:
        columns: that it may have; None: any.
        has_metrics: whether it may also have columns of the script's own.

    Raises:
        UsageError: a column is unknown or missing, or a field is no number.
    """
    reader = csv.DictReader(io.StringIO(files.complete_text(path)))
    names = reader.fieldnames or []
    if not names:
        return []
    for name in names if columns is not None else ():
        assert columns is not None
        meant = did_you_mean(name, columns)
        if name not in columns and (meant or not has_metrics):
            valid = f"some of {', '.join(columns)}"
            raise UsageError(f"{path.name}: column {name}: unknown; {meant}valid is {valid} ({GUIDE})")
    for name in NEEDED.get(path.name, ()):
        if name not in names:
            raise UsageError(f"{path.name}: column {name}: missing; valid is at least {', '.join(NEEDED[path.name])}")
    rows = []
    for number, fields in enumerate(reader, 1):
        row = {}
        for name, text in fields.items():
            if columns is None and name not in ("step", "time_s", "yardstick_s"):
                continue
            try:
                if text:
                    row[name] = float(text)
            except (TypeError, ValueError):
                raise UsageError(f"{path.name}: row {number}: {name}={text}: valid is a number, or nothing") from None
        rows.append(row)
    return rows
