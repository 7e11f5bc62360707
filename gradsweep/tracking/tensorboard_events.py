"""Write event files of TensorBoard by tensorboardX, which needs a tenth of what TensorBoard itself installs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any


class EventFile:
    """An event file in a directory; events have the time `at_s` (Unix time in s), by default the present one.

    tensorboardX's SummaryWriter is not used: on a full disk its thread dies, and its callers wait forever.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        self._writer = EventsWriter(os.path.join(directory, "events"))

    def add_options(self, options: Mapping[str, Any], at_s: float | None = None) -> None:
        """Write the options of a run as a table in the text `config`."""
        lines = ["| option | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in options.items())]
        self.add_text("config", "\n".join(lines), at_s)

    def add_text(self, name: str, words: str, at_s: float | None = None) -> None:
        from tensorboardX.summary import text

        self._write(at_s, summary=text(name, words))

    def add_scalars(self, step: int, values: Mapping[str, float], at_s: float | None = None) -> None:
        """Write all values of a step as one event: an event for each value takes ten times as long."""
        from tensorboardX.proto.summary_pb2 import Summary

        tagged = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(at_s, step=step, summary=Summary(value=tagged))

    def add_hparams(
        self, options: Mapping[str, Any], results: Mapping[str, float], has_ended: bool, at_s: float | None = None
    ) -> None:
        """Write the options and figures for TensorBoard's table of hyper-parameters, into this directory."""
        from tensorboardX.summary import hparams

        experiment, start, end = hparams(dict(options), dict(results))
        for summary in (experiment, start, *([end] if has_ended else [])):
            self._write(at_s, summary=summary)

    def restart(self, step: int) -> None:
        """Tell TensorBoard to ignore the values that earlier files of the directory have for this and later steps."""
        from tensorboardX.proto.event_pb2 import SessionLog

        self._write(None, step=step, session_log=SessionLog(status=SessionLog.START))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, at_s: float | None, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time() if at_s is None else at_s, **content))
