"""The interface of a tracker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tracker(ABC):
    """`start` once, then `log` and `epoch` as the run goes on, then `finish`. May raise: it is then asked no more.

    The curve of a run goes over its steps, that of the epochs, too. Names begin with `step/` or `epoch/`.
    """

    @abstractmethod
    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        """Begin a run with these options (dotted keys); `directory` exists and is this tracker's own.

        An earlier attempt may have left something there: what it says of steps behind `after` is computed again.
        """

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Means, up to this step, of columns of steps.csv; about once a second."""

    @abstractmethod
    def log_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """The columns of epochs.csv for this epoch; `step` is one of them."""

    @abstractmethod
    def finish(self, status: str) -> None:
        """The run has ended: `done` or another status of gradsweep/run_directory.py. Write what has not been
        written."""


def prefix_columns(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return the columns, prefixed, without the step, which is where a value stands, not what it is."""
    return {f"{prefix}/{name}": value for name, value in values.items() if name != "step"}
