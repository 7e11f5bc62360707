"""Read files that other users may have made: regular files only, up to a limit.

A results directory may be shared. Opening a FIFO in it would hang, opening a device may have side effects, a symbolic
link may lead to somebody's secrets, and a sparse file of a terabyte does not fit into memory. All of these are refused
with the reason, and not opened. Standard library only: every rank and every report loads this.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MEBIBYTE = 1 << 20
MOST_BYTES = 64 * MEBIBYTE
"""Limit of a file that is parsed as a whole, such as JSON and YAML."""
MOST_ROW_BYTES = 2048 * MEBIBYTE
"""Limit of a file with rows, such as steps.csv: ten million steps."""

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO is not waited for
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """A path leads to something that is no regular file, or to a file above the size limit."""


def stamp_file(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Return a tuple that changes whenever the file at `path` is written or replaced; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def open_regular(path: str | os.PathLike[str], most: int | None = None) -> Iterator[BinaryIO]:
    """Open a regular file for reading; refuse anything else without opening it.

    Args:
        path: of the file. Its directories may be symbolic links, the file itself may not.
        most: largest size of the file in bytes.

    Raises:
        NotRegular: it is no regular file, or larger than `most`.
        OSError: it is not there, or cannot be read.
    """
    with open(open_descriptor(path, most), "rb") as file:
        yield file


def open_descriptor(path: str | os.PathLike[str], most: int | None = None, flags: int = os.O_RDONLY) -> int:
    """Open a regular file like `open_regular`, or with other `flags`, and return the descriptor."""
    try:
        descriptor = os.open(path, flags | _FLAGS, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise NotRegular(errno.ELOOP, _KINDS[stat.S_IFLNK], os.fspath(path)) from error
        if error.errno == errno.ENXIO:
            raise NotRegular(errno.ENXIO, _KINDS[stat.S_IFSOCK], os.fspath(path)) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
            raise NotRegular(errno.EINVAL, kind, os.fspath(path))
        if most is not None and status.st_size > most:
            raise _too_large(path, most)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        NotRegular: it is no regular file, or larger than `most` bytes.
        OSError: it is not there, or cannot be read.
    """
    descriptor = open_descriptor(path, most)
    try:
        data = os.read(descriptor, os.fstat(descriptor).st_size + 1)
        while len(data) <= most and (more := os.read(descriptor, MEBIBYTE)):
            data += more
    finally:
        os.close(descriptor)
    if len(data) > most:  # it has grown since its size was asked for
        raise _too_large(path, most)
    return data


def read_text(path: str | os.PathLike[str], most: int = MOST_BYTES) -> str:
    """Return the text of a regular file in UTF-8.

    Raises:
        NotRegular: it is no regular file, or larger than `most` bytes.
        OSError: it is not there, or cannot be read.
        ValueError: it is no UTF-8.
    """
    return read_bytes(path, most).decode("utf-8")


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is a regular file at the path; a link to a file does not count."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def set_aside(path: Path) -> str | None:
    """Rename whatever is at `path` to another name in the same directory, and return that name; None if there is
    nothing.

    Raises:
        OSError: the directory cannot be written.
    """
    if not os.path.lexists(path):
        return None
    number = next(n for n in itertools.count(1) if not os.path.lexists(f"{path}.damaged-{n}"))
    os.rename(path, f"{path}.damaged-{number}")
    return f"{path.name}.damaged-{number}"


def real_directories(path: Path) -> list[str]:
    """Return the names of a directory's subdirectories, in no order; links do not count.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _too_large(path: str | os.PathLike[str], most: int) -> NotRegular:
    return NotRegular(errno.EFBIG, f"larger than {most // MEBIBYTE} MiB, the most that is read", os.fspath(path))
