"""Remove the directories that Hydra has created for a command that is then refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gradsweep import run_directory

_absent: list[Path] = []
"""Directories that Hydra is about to make, outermost first. Its interface for callbacks has no other place for them."""


def note_absent(directory: str) -> None:
    """Record which of this directory and its parents do not exist before Hydra creates them."""
    path = Path(os.path.abspath(directory))
    _absent[:] = [folder for folder in (*reversed(path.parents), path) if not folder.exists()]


def remove_traces(directory: Path) -> None:
    """Remove what Hydra has created for a sweep that was not started: empty directories and multirun.yaml."""
    with contextlib.suppress(OSError):
        if (directory / run_directory.SWEEP).exists():
            return
        (directory / "multirun.yaml").unlink(missing_ok=True)  # by sweepers other than ours
        for path in reversed(_absent):
            with contextlib.suppress(FileNotFoundError):  # a refused sweep has removed its own
                path.rmdir()
