"""Export runs as event files of TensorBoard: a directory for each run, with its curves, options and results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gradsweep import run_directory
from gradsweep.disk import disk_errors
from gradsweep.tracking.tensorboard_events import EventFile
from reports.exports.runs import EndedRun

EVENTS = "events.out.tfevents.*"


def export(runs: Iterable[EndedRun], into: Path) -> Iterator[tuple[EndedRun, bool]]:
    """Write each run into `into/RUN`, and delete the event files of earlier exports there."""
    for run in runs:
        directory = into / run.name
        directory.mkdir(parents=True, exist_ok=True)
        with (
            disk_errors.add_file_name(directory),
            tempfile.TemporaryDirectory(dir=directory, prefix=".export.") as temporary,
        ):
            _write(run, temporary)
            for old in directory.glob(EVENTS):
                old.unlink()
            for new in Path(temporary).glob(EVENTS):
                os.replace(new, directory / new.name)
        yield run, True


def _write(run: EndedRun, directory: str) -> None:
    """Write the event file of a run."""
    events = EventFile(directory)
    try:
        events.add_options(run.options, run.began_s)
        events.add_hparams(run.options, run.results, run.status == run_directory.DONE, run.began_s)
        for sample in run.read():
            events.add_scalars(sample.step, sample.values, sample.wall_s)
        events.add_scalars(run.steps, run.results, run.ended_s)
        events.add_text("status", run.status, run.ended_s)
        if run.reason:
            events.add_text("reason", run.reason, run.ended_s)
    finally:
        events.close()
