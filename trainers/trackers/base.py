"""The interface of a tracker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tracker(ABC):
    """A writer of a run's figures for another program: `start`, then `log` during the run, then `finish`.

    After an exception it is not called again. All curves are over the steps of the run, also those of epochs.
    """

    @abstractmethod
    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        """Begin a run with these options (dotted keys); `directory` exists and is this tracker's own.

        An earlier attempt may have left files there: their values for steps after `after` will be logged again.
        """

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write values at this step.

        Args:
            values: by `step/COLUMN` means of columns of steps.csv, about once a second; or a row of epochs.csv, by
                `epoch/COLUMN`.
        """

    @abstractmethod
    def finish(self, status: str) -> None:
        """Write what is still buffered, and the run's status: `done` or another one of gradsweep/run_directory.py."""
