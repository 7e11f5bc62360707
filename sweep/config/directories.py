"""Name the directory of a sweep, and take back the directories that Hydra makes for a command that is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gradsweep.sweep_locations import last_sweep, root_of

_fresh: set[str] = set()
_absent: list[Path] = []  # directories that Hydra is about to make, outermost first


def choose_sweep_directory(resume: str | None, fresh: str, name: str | None, *, is_probe: bool = False) -> str:
    """Return the directory to resume, or a new one named by the time; the resolver behind hydra.sweep.dir.

    `resume=last` is the sweep that was started or resumed last below the same root as `fresh`.
    """
    root = root_of(Path(fresh))
    if resume == "last":
        return str(last_sweep(root) or root / "last")
    if resume is not None:
        return resume
    words = [fresh, *([name] if name else []), *(["probe"] if is_probe else [])]
    directory = "-".join(words)
    _fresh.add(os.path.abspath(directory))
    return directory


def is_fresh(directory: str) -> bool:
    """Tell whether `choose_sweep_directory` made up this name, so that another would do as well."""
    return os.path.abspath(directory) in _fresh


def note_absent(directory: str) -> None:
    """Remember which of this directory and its parents do not exist yet: Hydra makes them before anything runs."""
    path = Path(os.path.abspath(directory))
    _absent[:] = [each for each in (*reversed(path.parents), path) if not each.exists()]


def remove_made() -> None:
    """Remove the directories that did not exist at `note_absent`, where they are empty."""
    for path in reversed(_absent):
        with contextlib.suppress(FileNotFoundError):  # a refused sweep has removed its own
            path.rmdir()
