"""The first steps of a run's epochs: conversion between steps and epochs of any lengths. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Consecutive epochs of equal length, from number `epoch` (from 0) on; the first begins after `steps` steps."""

    epoch: int
    steps: int
    per_epoch: int


@dataclasses.dataclass(frozen=True)
class Epochs:
    """The epochs of a run of `steps` steps: `stretches` in order, the first from epoch 0; the last may be cut."""

    steps: int
    stretches: tuple[Stretch, ...]

    @classmethod
    def from_lengths(cls, lengths: Sequence[tuple[int, int]], epochs: int, max_steps: int | None = None) -> Epochs:
        """Return the epochs of a run whose epochs have these lengths, cut after `max_steps`.

        Args:
            lengths: pairs (epoch, steps per epoch): the length of all epochs from this one on, the first from 0.
        """
        stretches = [Stretch(0, 0, lengths[0][1])]
        for epoch, per_epoch in lengths[1:]:
            last = stretches[-1]
            stretches.append(Stretch(epoch, last.steps + (epoch - last.epoch) * last.per_epoch, per_epoch))
        last = stretches[-1]
        planned = last.steps + (epochs - last.epoch) * last.per_epoch
        return cls(planned if max_steps is None else min(planned, max_steps), tuple(stretches))

    @property
    def length(self) -> float:
        """The number of epochs of the whole run."""
        return self.count_passed(self.steps)

    def count_done(self, step: int) -> int:
        """Return how many epochs are complete before `step` (from 1)."""
        part = self._find_last(lambda one: one.steps <= step - 1)
        return part.epoch + (step - 1 - part.steps) // part.per_epoch

    def count_passed(self, steps: float) -> float:
        """Convert a number of steps since the start into a number of epochs, with a fraction."""
        part = self._find_last(lambda one: one.steps <= steps)
        return part.epoch + (steps - part.steps) / part.per_epoch

    def count_steps_until(self, epochs: float) -> float:
        """Convert a number of epochs since the start into a number of steps, with a fraction."""
        part = self._find_last(lambda one: one.epoch <= epochs)
        return part.steps + (epochs - part.epoch) * part.per_epoch

    def _find_last(self, begun: Callable[[Stretch], bool]) -> Stretch:
        return next(one for one in reversed(self.stretches) if begun(one))
