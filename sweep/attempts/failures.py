"""Explains why an attempt ended without a result, or could not be started."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from pathlib import Path

from gradsweep import files
from gradsweep.disk import disk_errors
from gradsweep.failure_causes import DISK, ERROR, KILLED, LOST_CONNECTION, MEMORY, START, UNKNOWN

ROOM = 64 * 1024
"""Bytes: with less room left, a full disk is taken for the cause of a failure."""

ANYTHING = (KILLED, UNKNOWN)
"""Causes that say how an attempt ended, but not why: a node may have been lost."""


def explain_exit(attempt: Path, exit_code: int, *, out_of_memory: bool = False) -> tuple[str, str]:
    """Return the reason and the cause of a failed attempt, from the first rank's failure report or from the exit code.

    Args:
        attempt: its directory.
        exit_code: the exit code of the MPI launcher, negative if a signal has ended it.
        out_of_memory: whether the kernel has lately killed a process because memory ran out.
    """
    reports = [report for path in attempt.glob("failure-*.json") if (report := files.read_json(path)) is not None]
    if reports:
        first = min(reports, key=lambda report: str(report.get("time")))
        return str(first.get("reason")), str(first.get("cause", ERROR))
    number = -exit_code if exit_code < 0 else exit_code - 128
    if exit_code and 0 < number < 65:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        whom = "the MPI launcher" if exit_code < 0 else "a rank"
        if name == "SIGKILL" and out_of_memory:
            return f"{whom} was killed by the kernel: no memory was left", MEMORY
        return f"{whom} was killed by {name}", KILLED
    if exit_code == LOST_CONNECTION:
        if out_of_memory:
            return "a rank was killed by the kernel: no memory was left", MEMORY
        return "a rank was killed: the others lost their connections to it", KILLED
    if exit_code == 0:
        reason = "the MPI launcher exited with 0, but rank 0 left no result"
    else:
        reason = f"the MPI launcher exited with {exit_code}"
    if (trouble := find_disk_trouble(attempt)) is not None:
        return f"{reason}; {trouble}", DISK
    return reason, UNKNOWN


def explain_start_error(error: OSError) -> tuple[str, str]:
    """Return why a run could not be started: the reason for people, and the cause."""
    return f"could not be started: {error}", DISK if disk_errors.is_trouble(error) else START


def find_disk_trouble(directory: Path) -> str | None:
    """Return why a directory cannot be written (no space, no file, a quota, a failing disk); None if it can."""
    try:
        disk = os.statvfs(directory)
        if disk.f_bavail * disk.f_frsize < ROOM or (disk.f_files > 0 and disk.f_favail == 0):
            return disk_errors.TROUBLE[errno.ENOSPC]
        with tempfile.TemporaryFile(dir=directory) as file:  # a quota shows only when something is written
            file.write(bytes(ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return disk_errors.TROUBLE.get(error.errno or 0)
    return None
