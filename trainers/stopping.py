"""SIGUSR1 asks a run to save and to end; the workers agree on the step after which they do.

Loads the standard library only: a rank listens before it imports anything that takes time, because a signal that
nobody listens to ends the process.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

NOTHING, SAVE, STOP = 0, 1, 2
"""What a worker may want after a step; all do what the most urgent of their wishes is."""

_requested = False


def _note(number: int, frame: FrameType | None) -> None:
    global _requested
    _requested = True


def listen() -> None:
    """From now on, SIGUSR1 is a request to stop."""
    signal.signal(signal.SIGUSR1, _note)


def requested() -> bool:
    """Whether this process has been asked to stop."""
    return _requested


def forget() -> None:
    """Go on as if nobody had asked."""
    global _requested
    _requested = False


class Agreement:
    """What all workers do after a step, from what each of them wants.

    The signal may reach one rank only, and each of several at another moment. One byte travels beside the step: `ask`
    at its beginning, `answer` at its end, so that nobody waits for it (a step of two ranks takes 1 to 6 us longer).
    """

    def __init__(self, comm: MPI.Comm) -> None:
        from mpi4py import MPI

        self._comm, self._type, self._most = comm, MPI.UNSIGNED_CHAR, MPI.MAX
        self._mine, self._all = bytearray(1), bytearray(1)
        self._request: MPI.Request | None = None

    def ask(self, save: bool = False) -> None:
        """Tell the others what this worker wants: to stop where it has been asked to, else to `save` or nothing."""
        self._mine[0] = STOP if _requested else SAVE if save else NOTHING
        self._request = self._comm.Iallreduce([self._mine, self._type], [self._all, self._type], self._most)

    def answer(self) -> int:
        """What all do now: the same on all workers that have asked."""
        assert self._request is not None
        self._request.Wait()
        self._request = None
        return self._all[0]
