"""Make tables, plots and pages of run directories.

Only the files that a sweep left behind are read. `python -m reports PATH` rebuilds every report below PATH;
`reports.load(PATH)` gives the same numbers as DataFrames.

Importing this package loads neither pandas nor matplotlib, and nothing here loads torch or hydra.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.reading.report import Report

__all__ = ["load"]


def load(*paths: str | os.PathLike[str]) -> Report:
    """Read the runs below one or more sweep directories, date directories or output roots.

    Returns:
        `runs`, one row per run, and, read when first used, `epochs` and `steps`, one row per epoch
        and step of every run, and `profile`, the steps in few rows; `sweep` and `run` identify the
        run in all of them. Columns, units and dtypes are in `reports.reading.columns`.

    Raises:
        gradsweep.errors.UsageError: there is no sweep at or below a path.
    """
    from pathlib import Path

    from reports.reading.find_runs import find_sweeps
    from reports.reading.report import Report

    return Report(find_sweeps(*map(Path, paths)))
