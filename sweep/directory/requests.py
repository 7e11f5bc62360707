"""Requests of other shells to the process that runs a sweep, each as a JSON file in the sweep's directory.

A request is written atomically under a unique name, and the launcher removes it when it is done. The sender waits for
the removal, or for the launcher's end, after which it may take over the sweep. Opening a sweep removes the requests to
an earlier launcher.
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
        kind: one of KINDS.
        runs: names of the runs to cancel or resume; None: all unfinished runs.
        by: the sender, for messages to people.
    """

    kind: str
    runs: tuple[str, ...] | None
    by: str = ""


def send_request(directory: Path, request: Request) -> Path:
    """Write a request to the launcher of a sweep; return its file, which the launcher removes when the request is done.

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
    """Return the name of this process for `Request.by`."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


def clear_requests(directory: Path) -> None:
    """Remove all requests, which were sent to an earlier launcher; the caller has just locked the sweep."""
    for path in _list_files(directory):
        remove_request(path)
    with contextlib.suppress(OSError):  # it has gone, or has other files
        (directory / FOLDER).rmdir()


class Inbox:
    """Reads requests for the launcher; `read_new` may be called often, and looks once in `every_s` seconds."""

    def __init__(self, directory: Path, every_s: float = EVERY_S) -> None:
        self.directory, self.every_s = directory, every_s
        self._next = 0.0
        self._seen: set[Path] = set()
        self._latest: Path | None = None

    def read_new(self) -> Iterator[Request | str]:
        """Yield the requests since the last call, and an error line for each file that is no request.

        The caller must carry out a request before it takes the next one, because the file is removed then, except after
        `hold`.
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
    """Return the files of requests; open the folder, because a network file system may cache its list of files."""
    try:
        with os.scandir(directory / FOLDER) as entries:
            there = [entry for entry in entries if entry.is_file()]
    except OSError:
        return []
    return sorted(
        Path(entry.path) for entry in there if entry.name.endswith(".json") and not entry.name.startswith(".")
    )
