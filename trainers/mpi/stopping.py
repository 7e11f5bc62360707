"""SIGUSR1 asks a run to save and to end; the workers agree on the step after which they do. SIGUSR2 has a rank say
where it is: the stacks of all its threads go to a file of its own, also from within a collective that never ends.

Loads the standard library only: a rank listens before it imports anything that takes time, because a signal that
nobody listens to ends the process.
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
"""What a worker may want after a step; all do what the most urgent of their wishes is."""

STACKS = "stacks-{rank}.txt"
"""In the attempt's directory: a file for each rank, as what several write at the same time would be mixed in one."""

_requested = False
_begun = False
_stacks: tuple[Path, int] | None = None  # the file, and its descriptor


def _note(number: int, frame: FrameType | None) -> None:
    global _requested
    _requested = True


def listen() -> None:
    """From now on, SIGUSR1 is a request to stop, and SIGUSR2 one for the stacks of all threads, on stderr."""
    signal.signal(signal.SIGUSR1, _note)
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # to stderr


def write_stacks_into(attempt: Path, rank: int) -> None:
    """From now on, the stacks go to the rank's file in the attempt's directory; to stderr where it cannot be made.

    The file has to be open before anything hangs. `end_stacks` removes it where nobody has asked.
    """
    global _stacks
    end_stacks()
    path = attempt / STACKS.format(rank=rank)
    with contextlib.suppress(OSError):  # a full disk
        _stacks = path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        faulthandler.register(signal.SIGUSR2, file=_stacks[1], all_threads=True)


def end_stacks() -> None:
    """Let stacks go to stderr again."""
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
    """Whether this process has been asked to stop."""
    return _requested


def request() -> None:
    """Ask for a stop as the signal does: another rank of the run has got it."""
    _note(0, None)


def forget() -> None:
    """Go on as if nobody had asked, and as if no step had begun."""
    global _requested, _begun
    _requested = _begun = False


def has_begun() -> bool:
    """Whether a step has begun since the start or `forget`: messages may be on their way."""
    return _begun


class Agreement:
    """What all workers do after a step, from what each of them wants.

    The signal may reach one rank only, and each of several at another moment. One byte travels beside the step: `ask`
    at its beginning, `answer` at its end, so that nobody waits for it (a step of two ranks takes 1 to 6 us longer).

    Where workers may be `behind` the others by some steps (exchange.backup), an answer is that to the question of so
    many steps ago, or they would wait for each other here.
    """

    def __init__(self, comm: MPI.Comm, behind: int = 0) -> None:
        from mpi4py import MPI

        self._comm, self._type, self._most = comm, MPI.UNSIGNED_CHAR, MPI.MAX
        self._behind = behind
        self._asked: collections.deque[tuple[MPI.Request, bytearray, bytearray]] = collections.deque()
        self._saved = 0  # as many answers that come yet are to questions from before the last save

    def ask(self, save: bool = False) -> None:
        """Tell the others what this worker wants: to stop where it has been asked to, else to `save` or nothing."""
        global _begun
        _begun = True
        mine, most = bytearray([STOP if _requested else SAVE if save else NOTHING]), bytearray(1)
        request = self._comm.Iallreduce([mine, self._type], [most, self._type], self._most)
        self._asked.append((request, mine, most))

    def answer(self) -> int:
        """What all do now: the same on all workers that have asked."""
        if len(self._asked) <= self._behind:
            return NOTHING
        wanted = self._take()
        if self._saved:
            self._saved -= 1
            return STOP if wanted == STOP else NOTHING
        if wanted == SAVE:
            self._saved = len(self._asked)
        return wanted

    def answer_all(self) -> int:
        """The answer to all questions so far; all workers are at the same place, so that none is behind."""
        wanted = NOTHING
        while self._asked:
            one = self._take()
            if self._saved:
                self._saved -= 1
                one = STOP if one == STOP else NOTHING
            wanted = max(wanted, one)
        self._saved = 0
        return wanted

    def _take(self) -> int:
        request, _, most = self._asked.popleft()
        request.Wait()
        return most[0]

    def close(self) -> None:
        """No more questions: wait for the answers that nobody has taken. All workers must have asked as often."""
        while self._asked:
            self._take()
