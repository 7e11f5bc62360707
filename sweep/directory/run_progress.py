"""Tell how many steps and epochs a run has done, by the last rows of its steps.csv and epochs.csv."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gradsweep.files import last_row
from gradsweep.run_directory import EPOCHS, STEPS, Run


class RunProgress:
    """A run's progress by the last rows of its CSVs; values are None without rows or if they are damaged.

    Raises:
        OSError: a file cannot be read.
    """

    def __init__(self, run: Run) -> None:
        step, epoch = last_row(run.path(STEPS)), last_row(run.path(EPOCHS))
        self.epoch, self.loss, self.steps = (_read_number(step, column) for column in ("epoch", "loss", "step"))
        self.accuracy, self.evaluate_s = _read_number(epoch, "test_accuracy"), _read_number(epoch, "evaluate_s")
        self.finished_epochs, self._steps_then = _read_number(epoch, "epoch"), _read_number(epoch, "step")
        time_s = _read_number(step, "time_s")
        self.iterations_per_second = self.steps / time_s if self.steps and time_s else None

    def plan_steps(self, epochs: int | None, max_steps: int | None) -> float | None:
        """Return the run's total number of steps, including those still to do; None if it is not known yet.

        Args:
            epochs: of the run; None: unknown, or evaluations are not at the ends of epochs.
            max_steps: of the run; None: no limit.
        """
        planned = [] if max_steps is None else [float(max_steps)]
        if self._steps_then and self.finished_epochs and epochs:
            planned.append(self._steps_then / self.finished_epochs * epochs)
        return min(planned, default=None)

    def compute_share(self, epochs: int | None, max_steps: int | None) -> float | None:
        """Return the fraction of the run's steps that are done, from 0 to 1; None if it is not known yet."""
        planned = self.plan_steps(epochs, max_steps)
        return min(1.0, self.steps / planned) if self.steps and planned else None


def _read_number(row: Mapping[str, str] | None, column: str) -> float | None:
    try:
        value = float(row[column]) if row is not None else math.nan
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
