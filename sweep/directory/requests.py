"""Requests of other shells to the process that runs a sweep: a JSON file each, in the sweep's directory.

A request is written at once, under a name that no other has, and the launcher removes it when it has done it.
The sender waits for that, or for the launcher's end: then it may take the sweep over itself.
Opening a sweep removes the requests to an earlier launcher.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from gradsweep import files, run_directory

FOLDER = "requests"  # in the sweep's directory
EVERY_S = 1.0  # between two looks of a launcher
CANCEL, RESUME = "cancel", "resume"
KINDS = (CANCEL, RESUME)


@dataclasses.dataclass(frozen=True)
class Request:
    """A request to the launcher of a sweep.

    Args:
        kind: of KINDS.
        runs: names of the runs that it is about; None: all that are not finished.
        by: who asks, for people.
    """

    kind: str
    runs: tuple[str, ...] | None
    by: str = ""


def send_request(directory: Path, request: Request) -> Path:
    """Write a request to the launcher of the sweep in `directory`; return the file, which the launcher removes when
    done.

    Raises:
        OSError: the directory cannot be written.
    """
    folder = directory / FOLDER
    path = folder / f"{time.time_ns()}-{request.kind}-{secrets.token_hex(4)}.json"
    while True:
        folder.mkdir(exist_ok=True)
        try:
            files.write_json(path, {"format": run_directory.FORMAT, "time": files.now(), **dataclasses.asdict(request)})
            return path
        except FileNotFoundError:  # the empty folder, or the sweep, has just been removed
            continue


def remove_request(path: Path) -> None:
    """Remove the file of a finished or withdrawn request if it still exists, and the folder if it is then empty."""
    for remove in (path.unlink, path.parent.rmdir):
        with contextlib.suppress(OSError):  # it has gone, or there are others in the folder
            remove()


def describe_sender() -> str:
    """Return the text for `Request.by` that names this process."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


def clear_requests(directory: Path) -> None:
    """Remove all requests; the caller has just locked the sweep."""
    for path in _list_files(directory):
        remove_request(path)
    with contextlib.suppress(OSError):  # it has gone, or has other files
        (directory / FOLDER).rmdir()


class Inbox:
    """The requests as the launcher reads them. `read_new` may be called at any rate and looks once in `every_s`
    seconds."""

    def __init__(self, directory: Path, every_s: float = EVERY_S) -> None:
        self.directory, self.every_s = directory, every_s
        self._next = 0.0
        self._seen: set[Path] = set()
        self._latest: Path | None = None

    def read_new(self) -> Iterator[Request | str]:
        """Yield the requests since the last call, and a line for each file that is no request.

        A request is removed when the next one is asked for, which is when it has been done, unless it is held.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self.every_s
        for path in _list_files(self.directory):
            if path in self._seen:
                continue
            self._seen.add(path)  # also where it cannot be removed
            self._latest = path
            yield read_request(path) or f"{path}: not a request; it is ignored"
            if self._latest is not None:
                remove_request(path)

    def hold(self) -> Path:
        """Keep the request that `read_new` yielded last until `remove_request` is called; return its file."""
        assert self._latest is not None
        path, self._latest = self._latest, None
        return path


def read_request(path: Path) -> Request | None:
    """Return the request in a file; None if there is none, or its kind is not in KINDS."""
    try:
        content = files.read_json(path) or {}
    except OSError:
        return None
    runs = content.get("runs")
    if content.get("kind") not in KINDS or "runs" not in content:
        return None
    if runs is not None and not (isinstance(runs, list) and all(isinstance(name, str) for name in runs)):
        return None
    return Request(content["kind"], None if runs is None else tuple(runs), str(content.get("by", "")))


def _list_files(directory: Path) -> list[Path]:
    """Return the files of requests. The folder is opened, because a network file system may cache its list of files."""
    try:
        with os.scandir(directory / FOLDER) as entries:
            there = [entry for entry in entries if entry.is_file()]
    except OSError:
        return []
    return sorted(
        Path(entry.path) for entry in there if entry.name.endswith(".json") and not entry.name.startswith(".")
    )
