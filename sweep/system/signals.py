"""Turn the signals that end a program into an exception, so that it can clean up."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_received = 0  # how many signals have come
_deferring = False
_deferred: int | None = None  # the signal that has not been raised yet
_early: list[int] = []  # signals that `collect_signal` is to find

NOTHING = "interrupted; nothing was started"
PATIENCE = 2
"""Signals after which a call that does not return is interrupted, whatever it does."""


class Interrupted(SystemExit):
    """A signal has asked the program to end, with the exit status 128 + its number."""

    reported = False  # whether the user has been told of it


def is_hurried() -> bool:
    """Tell whether the user has sent a second signal (Ctrl-C), so that the program must not wait for anything."""
    return _received > 1


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Within this block, turn the first SIGINT, SIGTERM or SIGHUP into `Interrupted`; a second one sets `is_hurried`.

    If nothing has reported the interruption when the block is left, nothing was started, and a line says so. A second
    SIGHUP does not count, because some terminals send it twice when they are closed. A SIGUSR1 waits for
    `collect_signal`.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _received, _deferred
        first = _received == 0
        _received += first or number != signal.SIGHUP
        if first and _deferring:
            _deferred = number
        elif first or (_deferred is not None and _received > PATIENCE):
            _deferred = None
            raise Interrupted(128 + number)

    global _received
    _received, _deferred = 0, None
    _early.clear()
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda number, frame: _early.append(number))
    try:
        yield
    except Interrupted as interrupted:
        if not interrupted.reported:
            with suppress(OSError):  # the terminal is gone
                print(NOTHING, file=sys.stderr, flush=True)
        raise
    finally:
        _received = 0
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Within this block, raise `Interrupted` only in calls of `raise_deferred` and at the end of the block."""
    global _deferring
    _deferring = True
    try:
        yield
    finally:
        _deferring = False
    raise_deferred()


def raise_deferred() -> None:
    """Raise `Interrupted` if a signal has come since `defer_interrupts` began.

    Raises:
        Interrupted: a signal has come.
    """
    global _deferred
    if _deferred is not None:
        number, _deferred = _deferred, None
        raise Interrupted(128 + number)


@contextmanager
def collect_signal(number: signal.Signals) -> Iterator[list[int]]:
    """Within this block, append a signal to the yielded list each time it arrives, instead of being ended by it.

    The list has the signals already that have come since `raise_on_signals` began.
    """
    received = [early for early in _early if early == number]
    _early.clear()
    before = signal.signal(number, lambda came, frame: received.append(came))
    try:
        yield received
    finally:
        signal.signal(number, before)
