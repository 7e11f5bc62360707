"""What this process says and does about a sweep beside its runs: the first and the last event, sweep.on_end."""

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
from sweep.console.console import manner
from sweep.console.events import SWEEP_ENDED, SWEEP_STARTED, Events
from sweep.console.messages import is_growing, print_line
from sweep.provenance import record
from sweep.settings.metrics import MAXIMIZE, METRICS, value_of
from sweep.settings.sweep import SweepSettings


class Closing:
    """Begins where a sweep is first computed in; `end` is for when nothing is to follow."""

    def __init__(self, directory: Path, settings: SweepSettings) -> None:
        self.directory, self.settings = directory, settings
        self.manner = manner(settings)
        self.events = Events(directory, echo=self.manner.json)
        self._began = time.monotonic()
        self._ended = False
        self.events.write(
            SWEEP_STARTED,
            directory=str(directory.absolute()),
            command=record.command_line(),
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def end(self, runs: Sequence[Run], exit_status: int) -> None:
        """Write the last event and start sweep.on_end; once, however often it is called.

        Args:
            runs: that this process was asked for.
        """
        if self._ended:
            return
        self._ended = True
        counts = collections.Counter(run.status() for run in dict.fromkeys(runs))
        done = sum(counts[status] for status in run_directory.FINE)
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
            if (trouble := on_end.run(self.settings.on_end, facts)) is not None:
                print_line(self.manner.errors(), trouble, "yellow")

    def summary(self, runs: Sequence[Run]) -> str:
        """The sweep in a line: for those who want no more."""
        counts = collections.Counter(run.status() for run in dict.fromkeys(runs))
        listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        return f"{os.path.relpath(self.directory)}: {listed}, {duration(time.monotonic() - self._began)}"

    def best(self, runs: Sequence[Run]) -> str | None:
        """The run that a sweeper was looking for, in a line; None where all of it was known beforehand."""
        if not is_growing(self.directory):
            return None
        metric = self.settings.metric
        values = {run: value_of(run, metric) for run in dict.fromkeys(runs) if run.status() == run_directory.DONE}
        known = {run: value for run, value in values.items() if not math.isnan(value)}
        if not known:
            return None
        choose = max if METRICS[metric].goal == MAXIMIZE else min
        run = choose(known, key=lambda each: known[each])
        return f"best {metric} of {plural(len(known), 'run')}: {known[run]:.6g}, {os.path.relpath(run.directory)}"
