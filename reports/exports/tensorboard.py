"""TensorBoard's event files, by tensorboardX: a directory for each run, with its curves, options and results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gradsweep import disk_errors
from gradsweep import run_directory as rundir
from reports.exports.runs import Ended, Point

EVENTS = "events.out.tfevents.*"


def export(runs: Iterable[Ended], into: Path) -> Iterator[tuple[Ended, bool]]:
    """Into `into/RUN`; the event files that an earlier export has left there are replaced."""
    for run in runs:
        directory = into / run.name
        directory.mkdir(parents=True, exist_ok=True)
        with disk_errors.naming(directory), tempfile.TemporaryDirectory(dir=directory, prefix=".export.") as temporary:
            _write(run, temporary)
            for old in directory.glob(EVENTS):
                old.unlink()
            for new in Path(temporary).glob(EVENTS):
                os.replace(new, directory / new.name)
        yield run, True


def _write(run: Ended, directory: str) -> None:
    """Write the event file of a run.

    Not by a SummaryWriter: its thread dies of a full disk, and everybody waits for it.
    """
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import hparams, text

    def add(summary: Any, time_s: float, step: int = 0) -> None:
        events.write_event(Event(summary=summary, wall_time=time_s, step=step))

    lines = ["| option | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in run.options.items())]
    events = EventsWriter(os.path.join(directory, "events"))
    try:
        add(text("config", "\n".join(lines)), run.began_s)
        # what add_hparams writes, which would put it into a directory of its own
        experiment, start, end = hparams(dict(run.options), dict(run.results))
        for summary in (experiment, start, *([end] if run.status == rundir.DONE else [])):
            add(summary, run.began_s)
        results = Point(run.steps, run.ended_s, run.results)
        # one event for all values of a point; one for each takes ten times the time
        for point in (*run.read(), results):
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            add(Summary(value=values), point.wall_s, int(point.step))
        add(text("status", run.status), run.ended_s)
        if run.reason:
            add(text("reason", run.reason), run.ended_s)
    finally:
        events.close()
