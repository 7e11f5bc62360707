"""The cause (gradsweep/failure_causes.py) that an exception stands for: some may pass, most do not.

Loads the standard library only: torch's exceptions are known by their names.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from gradsweep import disk_errors
from gradsweep.errors import UsageError
from gradsweep.failure_causes import DISK, ERROR, INPUT, MEMORY

_NO_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory", "std::bad_alloc")


def find_cause(error: BaseException) -> str:
    """The kind of `error`, or of what it was raised from."""
    for each in _chain(error):
        if isinstance(each, UsageError):  # also for a checkpoint that was asked for and could not be written
            return DISK if any(words in str(each) for words in disk_errors.WORDS) else INPUT
        if isinstance(each, MemoryError) or type(each).__name__ == "OutOfMemoryError":
            return MEMORY
        if isinstance(each, OSError) and each.errno == errno.ENOMEM:
            return MEMORY
        if disk_errors.is_trouble(each):
            return DISK
        if isinstance(
            each, RuntimeError
        ):  # of torch and of MPI, whose allocators and writers have no types of their own
            if any(words in str(each) for words in _NO_MEMORY):
                return MEMORY
            if any(words in str(each) for words in disk_errors.WORDS):
                return DISK
    return ERROR


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
