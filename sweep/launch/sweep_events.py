"""Reports on a sweep as a whole: its first and last event, sweep.on_end, and the best run."""

from __future__ import annotations

import collections
import math
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.run_directory import Run
from gradsweep.text import duration, plural
from sweep.console import on_end
from sweep.console.console import Verbosity
from sweep.console.events import SWEEP_ENDED, SWEEP_STARTED, Events
from sweep.console.messages import print_line
from sweep.provenance import record
from sweep.settings.metrics import MAXIMIZE, find_metric, read_value
from sweep.settings.sweep import SweepSettings


class SweepEvents:
    """Writes the first event of a sweep when it is created, and the last event when the command is done."""

    def __init__(self, directory: Path, settings: SweepSettings, verbosity: Verbosity) -> None:
        self.directory, self.settings, self.verbosity = directory, settings, verbosity
        self.events = Events(directory, echo=verbosity.json)
        self._began = time.monotonic()
        self._has_ended = False
        self.events.write(
            SWEEP_STARTED,
            directory=str(directory.absolute()),
            command=record.read_command_line(),
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def end(self, runs: Sequence[Run], exit_status: int) -> None:
        """Write the last event, with the counts of `runs` by status, and start sweep.on_end, both only once."""
        if self._has_ended:
            return
        self._has_ended = True
        states = [run.state() for run in dict.fromkeys(runs)]
        counts = collections.Counter(state["status"] for state in states)
        done = sum(map(run_directory.is_fine, states))
        status = "interrupted" if exit_status > 128 else "failed" if exit_status else "done"
        self.events.write(
            SWEEP_ENDED,
            status=status,
            exit_status=exit_status,
            counts=dict(sorted(counts.items())),
            seconds=round(time.monotonic() - self._began, 3),
        )
        if self.settings.on_end:
            facts = {
                "directory": self.directory.absolute(),
                "status": status,
                "done": done,
                "failed": sum(counts.values()) - done,
                "exit_status": exit_status,
            }
            if (trouble := on_end.run_on_end(self.settings.on_end, facts)) is not None:
                print_line(self.verbosity.errors(), trouble, "yellow")

    def summarise(self, runs: Sequence[Run]) -> str:
        """Return a line with the counts of the runs by state and their total time."""
        counts = collections.Counter(run.status() for run in dict.fromkeys(runs))
        listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        return f"{os.path.relpath(self.directory)}: {listed}, {duration(time.monotonic() - self._began)}"

    def name_best(self, runs: Sequence[Run]) -> str | None:
        """Return a line with the best run by sweep.metric; None if no run has a value."""
        metric = self.settings.metric
        values = {run: read_value(run, metric) for run in dict.fromkeys(runs) if run.status() == run_directory.DONE}
        numbers = {run: value for run, value in values.items() if not math.isnan(value)}
        if not numbers:
            return None
        choose = max if find_metric(metric, self.settings.goal).goal == MAXIMIZE else min
        best = choose(numbers, key=lambda run: numbers[run])
        return f"best {metric} of {plural(len(numbers), 'run')}: {numbers[best]:.6g}, {os.path.relpath(best.directory)}"
