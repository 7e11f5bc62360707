"""The interface of a tracker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tracker(ABC):
    """A tracker gets one `start`, then `log` calls during the run, then `finish`; after an exception, no more calls.

    All curves of a run go over its steps, those of the epochs too.
    """

    @abstractmethod
    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        """Begin a run with these options (dotted keys); `directory` exists and is this tracker's own.

        An earlier attempt may have left files there: steps behind `after` in them are computed again.
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
        """Write the rest and the run's status: `done` or another one of gradsweep/run_directory.py."""
