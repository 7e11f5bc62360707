"""Signals to a rank: SIGUSR1 asks the run to save and end, SIGUSR2 asks for stack traces.

The workers agree on the step after which they save and end. On SIGUSR2 a rank writes the stacks of all its threads to
a file of its own, even from within a collective that hangs. Loads the standard library only: a rank installs the
handlers before slow imports, because an unhandled signal would end it.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

NOTHING, SAVE, STOP = 0, 1, 2
"""Requests of a worker after a step; all workers follow the largest of them."""

STACKS = "stacks-{rank}.txt"
"""Name of a rank's file in the attempt's directory; in one file the stacks of several ranks would be interleaved."""

_requested = False
_begun = False
_stacks: tuple[Path, int] | None = None  # the file, and its descriptor


def _note(number: int, frame: FrameType | None) -> None:
    global _requested
    _requested = True


def listen() -> None:
    """Install the signal handlers: SIGUSR1 requests a stop, SIGUSR2 writes the stacks of all threads to stderr."""
    signal.signal(signal.SIGUSR1, _note)
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # to stderr


def write_stacks_into(attempt: Path, rank: int) -> None:
    """Open the rank's file for stacks in the attempt's directory; on failure, stacks still go to stderr.

    The file must be open before anything hangs. `end_stacks` removes it if it is empty.
    """
    global _stacks
    end_stacks()
    path = attempt / STACKS.format(rank=rank)
    with contextlib.suppress(OSError):  # a full disk
        _stacks = path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        faulthandler.register(signal.SIGUSR2, file=_stacks[1], all_threads=True)


def end_stacks() -> None:
    """Close the file for stacks, and remove it if it is empty; stacks go to stderr again."""
    global _stacks
    if _stacks is None:
        return
    (path, descriptor), _stacks = _stacks, None
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_size == 0:
            path.unlink()
    os.close(descriptor)


def is_requested() -> bool:
    """Tell whether this process has been asked to stop."""
    return _requested


def request() -> None:
    """Request a stop, for a signal that another rank of the run has received."""
    _note(0, None)


def forget() -> None:
    """Forget requests to stop and past steps, because the process's next run begins."""
    global _requested, _begun
    _requested = _begun = False


def has_begun() -> bool:
    """Tell whether a step has begun since the start or `forget`, so that messages may be in transit."""
    return _begun


class Agreement:
    """Lets all workers agree on a common action after a step: continue, save, or save and stop.

    A signal may reach only one rank, or several at different moments. A non-blocking allreduce of one byte runs during
    the step: `ask` starts it at the beginning, and `answer` reads it at the end. So no worker waits for it (a step of
    two ranks takes 1 to 6 us longer).

    Args:
        behind: `answer` returns the answer to the question of so many steps ago. Otherwise workers would wait for each
            other here in steps in which they exchange less: with exchange.backup, local steps or neighbours.
    """

    def __init__(self, comm: MPI.Comm, behind: int = 0) -> None:
        from mpi4py import MPI

        self._comm, self._type, self._most = comm, MPI.UNSIGNED_CHAR, MPI.MAX
        self._behind = behind
        self._asked: collections.deque[tuple[MPI.Request, bytearray, bytearray]] = collections.deque()
        self._saved = 0  # coming answers to questions from before the last save

    def ask(self, save: bool = False) -> None:
        """Send this worker's request: to stop if a signal requested it, else to `save` if given, else nothing."""
        global _begun
        _begun = True
        mine, most = bytearray([STOP if _requested else SAVE if save else NOTHING]), bytearray(1)
        request = self._comm.Iallreduce([mine, self._type], [most, self._type], self._most)
        self._asked.append((request, mine, most))

    def answer(self) -> int:
        """Return the action on which the workers have agreed: NOTHING, SAVE or STOP, the same on all workers."""
        if self._behind:
            self._asked[-1][0].Test()  # MPI goes on with all of them when it is called
        if len(self._asked) <= self._behind:
            return NOTHING
        return self._take()

    def answer_all(self, but: int = 0) -> int:
        """Return the strongest action (STOP, SAVE, NOTHING) of all questions but the last few; all workers are at one
        step.
        """
        return max((self._take() for _ in range(len(self._asked) - but)), default=NOTHING)

    def note_save(self) -> None:
        """Ignore earlier requests to save that are still to be answered, because all workers have just saved."""
        self._saved = len(self._asked)

    def _take(self) -> int:
        """Return the answer to the oldest open question; ignore requests to save from before the last save."""
        request, _, most = self._asked.popleft()
        request.Wait()
        if not self._saved:
            return most[0]
        self._saved -= 1
        return STOP if most[0] == STOP else NOTHING

    def close(self) -> None:
        """Wait for the remaining answers. All workers must have asked equally often."""
        while self._asked:
            self._take()
