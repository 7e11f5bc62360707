"""Recognise the errors of a disk that cannot be written or read, and describe them in one line for users.

Standard library only, so that every package may import it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

TROUBLE = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EIO: "the disk fails",
    errno.EROFS: "the disk can only be read",
}
"""What is wrong, by the number of the error."""

WORDS = tuple(os.strerror(number) for number in TROUBLE)
"""The same in the system's words, as they stand in errors of libraries that have no numbers."""

_ADVICE = {
    errno.ENOSPC: "make room there, and give the command again",
    errno.EDQUOT: "remove what counts for that quota, or have it raised, and give the command again",
    errno.EIO: "have whoever looks after the disk see to it, or use another, and give the command again",
    errno.EROFS: "valid is a directory that can be written",
}


def is_trouble(error: BaseException) -> bool:
    """Tell whether an error means that the disk cannot be written or read (see `TROUBLE`)."""
    return isinstance(error, OSError) and error.errno in TROUBLE


def describe(error: BaseException) -> str | None:
    """Return a line that says what failed, on which file, and what to do; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in TROUBLE:
        return None
    where = error.filename2 or error.filename or _name_unnamed()
    return f"disk: {os.fsdecode(where)}: {os.strerror(error.errno)}; {_ADVICE[error.errno]}"


@contextlib.contextmanager
def add_file_name(path: Path | str) -> Iterator[None]:
    """Within the block, add the file name `path` to errors of reading and writing that name no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def _name_unnamed() -> str:
    """Return words for the file of an error that has no file name.

    If standard output cannot be written, discard its unwritten text, because Python would try to write it again.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return "standard output"
    return "standard output, or a file that a library writes"
