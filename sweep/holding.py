"""Who runs a sweep: whoever has its lock (directory.py takes it). This only looks."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep import run as names

LOCK = ".lock"  # in the sweep's directory


def holder(directory: Path) -> dict[str, Any] | None:
    """Who runs the sweep in `directory` at this moment (host, pid, since); None where nobody does."""
    try:
        with (directory / LOCK).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return names.read_json(directory / LOCK) or {}
    except OSError:
        pass
    return None


@contextlib.contextmanager
def unheld(directory: Path) -> Iterator[bool]:
    """Whether nobody runs the sweep in `directory`; then nobody can begin to as long as this context lasts."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context((directory / LOCK).open())
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # never run here, or a file system without locks
            pass
        yield True
