"""Check that a run with a result.json is whole: that its CSVs have all rows that the result implies.

If somebody removes files while ranks write to them, the ranks continue, and rows are missing at the end. The check is
cheap: it reads the first and the last row of a CSV and counts lines.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep import failure_causes, files, run_directory, yaml_files
from gradsweep.disk.regular_files import MOST_ROW_BYTES, is_regular, open_regular
from gradsweep.run_directory import Run
from sweep.directory import run_identity

BLOCK = 1 << 20  # bytes, in which lines are counted

End = tuple[str, str | None, str | None]
"""Status, reason and cause."""


def judge_result(run: Run, attempt: int | None = None) -> End | None:
    """Return the status, reason and cause of a run by its result.json; None without a result.

    If the run is not whole, its result and checkpoint are moved into the attempt's directory, so that a resume starts
    from the beginning.

    Args:
        attempt: the number of the attempt that wrote the result, whose provenance.json must exist; None: unknown.
    """
    result = run.result()
    if result is None:
        return None
    lacks = explain_lacking(run, result, attempt)
    if lacks is None:
        return str(result.get("status", run_directory.DONE)), result.get("reason"), None
    _set_result_aside(run, attempt)
    return run_directory.FAILED, f"not whole: {lacks}; a resume computes it again", failure_causes.INPUT


def is_whole(run: Run) -> bool:
    """Tell whether a run has a result and all files and rows that the result implies."""
    result = run.result()
    return result is not None and explain_lacking(run, result) is None


def explain_lacking(run: Run, result: Mapping[str, Any], attempt: int | None = None) -> str | None:
    """Return which files, or rows of its CSVs, a run with this result.json lacks, in words; None if nothing."""
    try:
        return _explain_lacking(run, result, attempt)
    except (OSError, ValueError, csv.Error) as error:
        return f"its files cannot be read ({error})"


def _explain_lacking(run: Run, result: Mapping[str, Any], attempt: int | None) -> str | None:
    if (wrong := run_identity.explain_unfit(run)) is not None:
        return wrong.partition(";")[0]
    if attempt is not None and not (run.attempt(attempt) / run_directory.PROVENANCE).is_file():
        return f"{run.attempt(attempt).name}/{run_directory.PROVENANCE} has been removed"
    return _explain_lacking_rows(run, result)


def _explain_lacking_rows(run: Run, result: Mapping[str, Any]) -> str | None:
    steps, epochs = result.get("steps"), result.get("epochs")
    if not isinstance(steps, int):  # of a probe
        return None
    wrong = _explain_wrong_rows(run.path(run_directory.STEPS), "step", steps, steps)
    column, every, workers = _read_evaluation_settings(run)
    last = steps if column == "step" else epochs
    if wrong is None and isinstance(last, int) and every is not None:
        evaluations = -(-last // every)  # the last epoch, or step, has one in any case
        wrong = _explain_wrong_rows(run.path(run_directory.EPOCHS), column, last, evaluations, min(every, last))
        if wrong is None and "consensus_distance" in result:
            models = run.path(run_directory.LOCAL_MODELS)
            wrong = _explain_wrong_rows(models, column, last, evaluations * workers, min(every, last))
    return wrong


def _read_evaluation_settings(run: Run) -> tuple[str, int | None, int]:
    """Return the column that counts evaluations, after how many of it there is one, and the number of workers.

    They are those of a run's config, which has been parsed before. A script evaluates when it wants to: then the second
    is None.
    """
    config = yaml_files.read_sections(run.path(run_directory.CONFIG))
    if run_directory.is_script(config):
        return "epoch", None, 1
    column = "epoch" if config.get("evaluate_every_steps") is None else "step"
    every = config.get("evaluate_every" if column == "epoch" else "evaluate_every_steps")
    workers = config.get("workers")
    return column, every if isinstance(every, int) and every > 0 else 1, workers if isinstance(workers, int) else 1


def _explain_wrong_rows(path: Path, column: str, last: int, count: int, first: int = 1) -> str | None:
    """Return the error in a CSV that should have `count` rows, numbered `first` to `last` in a column; or None."""
    if not count:
        return None
    if not is_regular(path):
        return f"{path.name} has been removed"
    with open_regular(path, MOST_ROW_BYTES) as file:
        header, begin = file.readline(BLOCK), file.readline(BLOCK)
        lines = begin.count(b"\n")
        while block := file.read(BLOCK):
            lines += block.count(b"\n")
    found = [_parse_value(header, begin, column), (files.last_row(path) or {}).get(column)]
    if found == [str(first), str(last)] and lines == count:
        return None
    return f"{path.name} has {lines} rows, from {column} {found[0]} to {found[1]}, of {count} from {first} to {last}"


def _parse_value(header: bytes, row: bytes, column: str) -> str | None:
    keys, values = (next(csv.reader([line.decode("utf-8", "replace").strip()]), []) for line in (header, row))
    return dict(zip(keys, values, strict=False)).get(column)


def _set_result_aside(run: Run, attempt: int | None) -> None:
    number = attempt if attempt is not None else max([1, *run.attempt_numbers()])
    with contextlib.suppress(OSError):
        run.attempt(number).mkdir(exist_ok=True)
        for name in (run_directory.RESULT, run_directory.CHECKPOINT):
            if run.path(name).exists():
                run.path(name).rename(run.attempt(number) / name)
