"""Send a request to the launcher of a sweep (sweep/directory/requests.py), or take its place if it has ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gradsweep.errors import UsageError
from gradsweep.sweeps.sweep_lock import read_lock_owner
from gradsweep.text import describe_lock_owner
from sweep.directory import requests
from sweep.directory.requests import Request
from sweep.directory.sweep_directory import Sweep

LOOK_EVERY_S = 0.2
PATIENCE_S = 5.0


def ask(directory: Path, request: Request) -> bool:
    """Send a request to a sweep's launcher, and wait until it is done; return False if no launcher runs.

    Raises:
        OSError: the directory cannot be written.
    """
    while (by := read_lock_owner(directory)) is not None:
        path = requests.send_request(directory, request)
        report_at = time.monotonic() + PATIENCE_S
        try:
            while path.exists() and read_lock_owner(directory) == by:
                if time.monotonic() > report_at:
                    report_at = float("inf")
                    print(f"waiting for {describe_lock_owner(by)}, which runs this sweep", file=sys.stderr)
                time.sleep(LOOK_EVERY_S)
            # a new launcher removes requests to an earlier one
            if not path.exists() and read_lock_owner(directory) == by:
                return True
        finally:
            requests.remove_request(path)
    return False


def take_over(directory: Path) -> Sweep | None:
    """Open a sweep that has no launcher; return None if another process was faster.

    Raises:
        UsageError: the directory cannot be written.
    """
    try:
        return Sweep(directory, fresh=False)
    except UsageError:
        if read_lock_owner(directory) is None:
            time.sleep(LOOK_EVERY_S)
            return Sweep(directory, fresh=False)  # its lock was held for an instant, or it cannot be written
        return None
