"""TensorBoard's event files, by tensorboardX, which needs a tenth of what TensorBoard itself installs.

Not by its SummaryWriter: that has a thread, which dies of a full disk, and the run waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.trackers.base import Tracker, prefixed

FLUSH_S = 10.0
"""Between two times that what was written is to be seen."""


class TensorBoard(Tracker):
    """Scalars over the steps; the options as text. To see them: `tensorboard --logdir OUTPUT`."""

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        is_again = any(directory.iterdir())
        self._events = EventsWriter(str(directory / "events"))
        self._flush_at = 0.0
        if is_again:  # where an earlier attempt has come further, TensorBoard leaves out what it wrote of these steps
            self._write(step=after + 1, session_log=SessionLog(status=SessionLog.START))
        lines = ["| option | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in config.items())]
        self._text("config", "\n".join(lines))

    def _write(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._events.write_event(Event(wall_time=time.time(), **fields))

    def _text(self, name: str, words: str) -> None:
        from tensorboardX.summary import text

        self._write(summary=text(name, words))

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.summary import scalar

        for name, value in values.items():
            self._write(step=step, summary=scalar(name, value))
        if time.monotonic() >= self._flush_at:
            self._events.flush()
            self._flush_at = time.monotonic() + FLUSH_S

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._scalars(step, prefixed("step", values))

    def epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        self._scalars(int(values["step"]), prefixed("epoch", values))

    def finish(self, status: str) -> None:
        self._text("status", status)
        self._events.close()
