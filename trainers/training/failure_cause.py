"""Find the cause of a failure (gradsweep/failure_causes.py) from an exception.

Loads the standard library only: torch's exceptions are recognised by their names.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.failure_causes import DISK, ERROR, INPUT, MEMORY

_NO_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory", "std::bad_alloc")


class RunFailed(Exception):
    """A run of a race has failed on this rank; other ranks may wait for it, so the world must end.

    Args:
        run: its name.
        error: why; it is raised from this.
        in_trial: whether it was in the trial of the run's exchange, not in the race.
    """

    def __init__(self, run: str, error: BaseException, in_trial: bool = False) -> None:
        super().__init__(f"{run}: {type(error).__name__}: {error}")
        self.run, self.in_trial = run, in_trial


def find_cause(error: BaseException) -> str:
    """Return the cause of `error`, or of the exceptions from which it was raised.

    A UsageError that was raised from an error of the user's code has the cause of that error: no memory, or the disk.
    """
    otherwise = ERROR
    for link in _chain(error):
        if isinstance(link, UsageError):
            if any(words in str(link) for words in disk_errors.WORDS):  # a required checkpoint could not be written
                return DISK
            otherwise = INPUT
        if isinstance(link, MemoryError) or type(link).__name__ == "OutOfMemoryError":
            return MEMORY
        if isinstance(link, OSError) and link.errno == errno.ENOMEM:
            return MEMORY
        if disk_errors.is_trouble(link):
            return DISK
        if isinstance(link, RuntimeError):  # allocators and writers of torch and MPI raise no types of their own
            if any(words in str(link) for words in _NO_MEMORY):
                return MEMORY
            if any(words in str(link) for words in disk_errors.WORDS):
                return DISK
    return otherwise


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
