"""The signals that end programs, as an exception that lets everything be tidied up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(SystemExit):
    """A signal asked the program to end; its exit status will be 128 + the signal's number."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`, once: a second one does not disturb the tidying."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(128 + number)

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def noticed(number: signal.Signals) -> Iterator[list[int]]:
    """Collect a signal, as often as it comes, instead of ending of it."""
    received: list[int] = []
    before = signal.signal(number, lambda came, frame: received.append(came))
    try:
        yield received
    finally:
        signal.signal(number, before)
