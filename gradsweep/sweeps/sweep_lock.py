"""Read which process holds the lock of a sweep; sweep_directory.py takes the lock."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradsweep import files
from gradsweep.disk import file_lock

LOCK = ".lock"  # in the sweep's directory


def read_lock_owner(directory: Path) -> dict[str, Any] | None:
    """Return the process that runs the sweep in `directory` (host, pid, since); None if no process runs it.

    If we cannot see whether that process has ended, the result also has `remove`: the lock file that a user has to
    remove if it has.
    """
    lock = directory / LOCK
    try:
        if not file_lock.is_held(lock):
            return None
        by = files.read_json(lock) or {}
    except OSError:
        return None
    file = file_lock.to_remove(lock)
    return by if file is None else {**by, "remove": str(file)}


@contextlib.contextmanager
def hold_unlocked(directory: Path) -> Iterator[bool]:
    """Yield whether no process runs the sweep in `directory`; if so, no process can start it within this block."""
    lock = directory / LOCK
    with contextlib.ExitStack() as stack:
        try:
            if not (is_held := file_lock.is_held(lock)):
                stack.enter_context(file_lock.take(lock, shared=True, make=False))
        except BlockingIOError:
            is_held = True
        except OSError:  # never run here, or not ours to change
            pass
        yield not is_held
