"""Find sweeps and their runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gradsweep import errors, run_directory
from reports.reading.run_files import LeftOut, format_reason
from reports.reading.text import clean


def find_sweeps(*paths: Path) -> list[Path]:
    """Return the sweep directories at these paths or up to two levels below, each once, sorted by name.

    Raises:
        gradsweep.errors.UsageError: there is no sweep at or below one of the paths, or a sweep whose path is not UTF-8.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        below = (directory for pattern in ("*", "*/*") for directory in sorted(path.glob(pattern)))
        here = [path] if is_sweep(path) else [directory for directory in below if is_sweep(directory)]
        if not here:
            raise errors.UsageError(
                f"{path}: no runs here; "
                f"expected a sweep's directory (with {run_directory.RUNS}/*/{run_directory.CONFIG}), "
                "a date's (output/<date>) or the root of both (output)"
            )
        for directory in here:
            if not _is_utf8(os.fspath(directory)):
                raise errors.UsageError(f"{directory}: its name is not UTF-8")
        found |= {directory.resolve(): directory for directory in here}
    return list(found.values())


def is_sweep(directory: Path) -> bool:
    """Tell whether a directory has at least one run, readable or not."""
    try:
        return any(_list_directories(directory))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # there are runs, which the report lists as unreadable
        return True


def get_sweep_name(directory: Path) -> str:
    """Return the name of a sweep: its date and time, and its own name if it has one, such as `2026-11-20/14-03-22`."""
    return clean("/".join(directory.resolve().parts[-2:]).lstrip("/"))


def list_run_names(sweep: Path) -> tuple[list[str], list[LeftOut]]:
    """Return the sorted names of a sweep's run directories, and those directories that cannot be used."""
    try:
        names = sorted(_list_directories(sweep))
    except OSError as error:
        return [], [LeftOut(sweep / run_directory.RUNS, format_reason(error))]
    left_out = [
        LeftOut(sweep / run_directory.RUNS / name, "its name is not UTF-8") for name in names if not _is_utf8(name)
    ]
    return [name for name in names if _is_utf8(name)], left_out


def _list_directories(sweep: Path) -> Iterator[str]:
    with os.scandir(sweep / run_directory.RUNS) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and _is_directory(entry):
                yield entry.name


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link into a directory without permission
        return True


def _is_utf8(name: str) -> bool:
    return name.encode("utf-8", "ignore").decode() == name
