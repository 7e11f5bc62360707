"""TensorBoard's event files, by tensorboardX: a directory for each run, with its curves, options and results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from reports.exports.runs import Ended, Point
from sweep import run as rundir

EVENTS = "events.out.tfevents.*"


def export(runs: Iterable[Ended], into: Path) -> Iterator[tuple[Ended, bool]]:
    """Into `into/RUN`; the event files that an earlier export has left there are replaced."""
    for run in runs:
        directory = into / run.name
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".export.") as temporary:
            _write(run, temporary)
            for old in directory.glob(EVENTS):
                old.unlink()
            for new in Path(temporary).glob(EVENTS):
                os.replace(new, directory / new.name)
        yield run, True


def _write(run: Ended, directory: str) -> None:
    from tensorboardX import SummaryWriter
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import hparams

    lines = ["| option | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in run.options.items())]
    with SummaryWriter(logdir=directory) as writer:
        writer.add_text("config", "\n".join(lines), walltime=run.began_s)
        # what add_hparams writes, which would put it into a directory of its own
        experiment, start, end = hparams(dict(run.options), dict(run.results))
        for summary in (experiment, start, *([end] if run.status == rundir.DONE else [])):
            writer.file_writer.add_summary(summary, walltime=run.began_s)
        results = Point(run.steps, run.ended_s, run.results)
        # one event for all values of a point; add_scalar makes one of each, in ten times the time
        for point in (*run.read(), results):
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            writer.file_writer.add_summary(Summary(value=values), point.step, walltime=point.wall_s)
        writer.add_text("status", run.status, walltime=run.ended_s)
        if run.reason:
            writer.add_text("reason", run.reason, walltime=run.ended_s)
