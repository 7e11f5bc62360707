"""A stopwatch for work on a GPU, which goes on after the call that starts it has returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trainers.devices.stopwatch import MEASURE, StepTimes, Stopwatch


def _cuda_event() -> Any:
    return torch.cuda.Event(enable_timing=True)


class EventStopwatch(Stopwatch):
    """A stopwatch that records events in the GPU's stream at the begin and end of each phase; `seconds` reads them.

    Work of the host in a phase (MPI, data) counts, too, because the GPU reaches the end event only after it. The time
    of an inner phase does not count for the outer phase. Reading waits for the GPU; `end_step` leaves it for later.

    Args:
        event: makes an event with `record()`, `synchronize()` and `elapsed_time(later)` in milliseconds.
    """

    def __init__(self, event: Callable[[], Any] = _cuda_event) -> None:
        self._make = event
        self._spare: list[Any] = []
        self._used: list[Any] = []  # in this step
        self._open: list[tuple[str, Any]] = []
        self._pieces: list[tuple[str, Any, Any]] = []
        self._seconds: dict[str, float] = {}
        self._begun = self._now()
        super().__init__()

    def _now(self) -> Any:
        event = self._spare.pop() if self._spare else self._make()
        self._used.append(event)
        event.record()
        return event

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase, for all phases that have ended in this step."""
        if self._pieces:
            self._pieces[-1][2].synchronize()
        _add_pieces(self._seconds, self._pieces)
        self._pieces.clear()
        return self._seconds

    @seconds.setter
    def seconds(self, value: dict[str, float]) -> None:
        self._seconds = value

    def _begin(self) -> None:
        self._pieces.clear()
        self._seconds.clear()
        self._spare, self._used = self._spare + self._used, []
        self._begun = self._now()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = self._now()
        if self._open:
            self._pieces.append((*self._open[-1], start))
        self._open.append((phase, start))
        try:
            yield
        finally:
            end = self._now()
            self._pieces.append((*self._open.pop(), end))
            if self._open:
                self._open[-1] = (self._open[-1][0], end)

    def measure_step(self) -> float:
        end = self._now()
        end.synchronize()
        return self._begun.elapsed_time(end) / 1e3 - self.seconds.get(MEASURE, 0.0)

    def end_step(self) -> Callable[[], StepTimes]:
        """End the step without waiting for the GPU; the function that is returned waits for the end of this step."""
        begun, end, pieces, seconds = self._begun, self._now(), self._pieces, dict(self._seconds)
        used, self._used, self._pieces = self._used, [], []

        def read() -> StepTimes:
            end.synchronize()
            _add_pieces(seconds, pieces)
            total = begun.elapsed_time(end) / 1e3 - seconds.get(MEASURE, 0.0)
            self._spare += used
            return StepTimes(total, seconds)

        return read


def _add_pieces(seconds: dict[str, float], pieces: list[tuple[str, Any, Any]]) -> None:
    for phase, start, end in pieces:
        seconds[phase] = seconds.get(phase, 0.0) + start.elapsed_time(end) / 1e3
