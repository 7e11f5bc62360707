"""Event files of TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.tracking.tensorboard_events import EventFile
from trainers.trackers.base import Tracker

FLUSH_S = 10.0
"""Seconds between two flushes; TensorBoard shows values after a flush."""


class TensorBoard(Tracker):
    """Writes scalars over the steps, and the options as text. See them by `tensorboard --logdir OUTPUT`."""

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        is_again = any(directory.iterdir())
        self._events = EventFile(directory)
        self._flush_at = 0.0
        if is_again:  # an earlier attempt may have come further
            self._events.restart(after + 1)
        self._events.add_options(config)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._events.add_scalars(step, values)
        if time.monotonic() >= self._flush_at:
            self._events.flush()
            self._flush_at = time.monotonic() + FLUSH_S

    def finish(self, status: str) -> None:
        self._events.add_text("status", status)
        self._events.close()
