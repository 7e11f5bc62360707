"""The result of a simulation."""

from __future__ import annotations

import dataclasses

import numpy as np

from reports.scaling.simulator.cluster import Floats


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """The times at which workers were ready, exchanged and finished, in seconds since the start.

    Attributes:
        ready: when the gradient was computed and encoded, (steps, workers).
        exchanged: when all messages of the step were sent and received, (steps, workers).
        finished: when the step was finished, (steps, workers).
        engine: `rounds` or `events`.
        exact: the times are exactly those of the model; else messages of different workers met on links, and were
            assumed to share them as if all messages of a round were in transit at once.
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
