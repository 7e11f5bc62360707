"""Serve the files of a sweep: those of its report and of its runs, and no others.

No symbolic link is followed: each directory of a path is opened relative to the one before. So a path cannot lead out
of the sweep, even if somebody changes directories meanwhile.
"""

from __future__ import annotations

import contextlib
import html
import os
import stat
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradsweep import run_directory
from reports.building.sweep_report import PLOTS, TABLES

_REPORT = {
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".parquet": "application/vnd.apache.parquet",
}
_FOLDERS = (TABLES, PLOTS)
TEXT = "text/plain; charset=utf-8"


def parse_target(target: str) -> tuple[str, ...] | None:
    """Return the decoded names in a request's target (`/runs/a%3D1/x`); None if the target is not served.

    A slash at the end, which means a directory, gives an empty last name.
    """
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/"):
        return None
    names = tuple(urllib.parse.unquote(part, errors="surrogateescape") for part in path[1:].split("/"))
    wrong = any(name.startswith(".") or "/" in name or "\0" in name for name in names) or "" in names[:-1]
    return None if wrong or not _is_served(names) else names


def _is_served(names: Sequence[str]) -> bool:
    if names == (run_directory.SUMMARY,):
        return True
    # In runs/ the content of a run's directory; not the list of all runs, which is the report.
    return (
        len(names) > 1
        and names[1] != ""
        and (names[0] == run_directory.RUNS or (names[0] in _FOLDERS and len(names) == 2))
    )


def choose_media_type(names: Sequence[str]) -> str:
    """Return the media type of a file; files that a run has written are served as text."""
    return TEXT if names[0] == run_directory.RUNS else _REPORT.get(os.path.splitext(names[-1])[1], TEXT)


@contextlib.contextmanager
def open_file(root: Path, names: Sequence[str]) -> Iterator[int]:
    """Yield the descriptor of an opened regular file, or of a directory if the last name is empty.

    Raises:
        OSError: the file does not exist or may not be read, or a symbolic link is on its path.
    """
    *above, last = names
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in above:
            descriptor = _open_in(descriptor, name, os.O_DIRECTORY)
        if last:
            descriptor = _open_in(descriptor, last, os.O_NONBLOCK)  # opening a FIFO would block
        if last and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(last)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_in(directory: int, name: str, flags: int) -> int:
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)
    os.close(directory)
    return opened


def render_listing(descriptor: int, names: Sequence[str]) -> bytes:
    """Return an HTML page with links to the content of a run's directory."""
    lines = []
    for name in sorted(os.listdir(descriptor)):
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:  # it was removed meanwhile
            continue
        is_directory = stat.S_ISDIR(found.st_mode)
        if name.startswith(".") or not (is_directory or stat.S_ISREG(found.st_mode)):
            continue
        link = urllib.parse.quote(os.fsencode(name)) + ("/" if is_directory else "")
        size = "" if is_directory else f" {found.st_size:,} bytes"
        lines.append(f'<li><a href="./{link}">{html.escape(name)}</a>{size}</li>')
    title = html.escape("/".join(names[:-1]))
    head = f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
    text = f"{head}<body><h1>{title}</h1><ul>{''.join(lines)}</ul></body></html>\n"
    return text.encode("utf-8", "replace")
