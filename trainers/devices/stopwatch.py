"""A stopwatch for the phases of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MEASURE = "measure"
"""The phase of measurements, which are not part of a step's time."""


class StepTimes(NamedTuple):
    """The seconds of a step, without measurements, and of each of its phases."""

    total: float
    phases: Mapping[str, float]


class Stopwatch:
    """Measures the seconds of each phase of the current step: `with watch(phase):`, any number of times.

    A phase within another phase (such as encoding in hooks during backward) interrupts the outer one. No second counts
    twice, so that the sum over the phases is never more than the step.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._within = 0.0  # of the phase that goes on: seconds that belong to phases within it
        self._started = time.perf_counter()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start, around, self._within = time.perf_counter(), self._within, 0.0
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[phase] = self.seconds.get(phase, 0.0) + elapsed - self._within
            self._within = around + elapsed

    def _begin(self) -> None:
        """Begin a step."""
        self.seconds.clear()
        self._started = time.perf_counter()

    def take(self) -> dict[str, float]:
        """Return the seconds of each phase of the current step, and begin the next step."""
        seconds = dict(self.seconds)
        self._begin()
        return seconds

    def time_steps(self, phase: str, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and start a step before getting each; the time to get an item counts as `phase`."""
        iterator = iter(items)
        while True:
            self._begin()
            with self(phase):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def measure_step(self) -> float:
        """Return the seconds of the current step so far, without measurements (the phase MEASURE)."""
        return time.perf_counter() - self._started - self.seconds.get(MEASURE, 0.0)

    def end_step(self) -> Callable[[], StepTimes]:
        """End the step, and return a function that returns its times; it may be called when later steps have begun."""
        times = StepTimes(self.measure_step(), dict(self.seconds))
        return lambda: times
