"""The result of a simulation."""

from __future__ import annotations

import dataclasses

import numpy as np

from reports.scaling.simulator.cluster import Floats


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """The times at which workers were ready, exchanged and finished, in seconds since the start.

    Attributes:
        ready: gradient computed and encoded, (steps, workers).
        exchanged: all messages of the step sent and received, (steps, workers).
        finished: the step, (steps, workers).
        engine: `rounds` or `events`.
        exact: it is what the model says; else messages of different workers met on links, and were taken to share them
            as if all of a round were under way at once.
    """

    ready: Floats
    exchanged: Floats
    finished: Floats
    engine: str
    exact: bool

    @property
    def durations(self) -> Floats:
        """Seconds of every step of every worker, (steps, workers)."""
        return np.diff(self.finished, axis=0, prepend=0.0)

    @property
    def step_s(self) -> float:
        """Seconds of a step, as a mean over steps and workers."""
        return float(self.finished[-1].mean()) / len(self.finished)

    @property
    def exchange_s(self) -> float:
        """Seconds of an exchange including the wait for others, as a mean over steps and workers."""
        return float((self.exchanged - self.ready).mean())
