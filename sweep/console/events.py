"""Events of a sweep for machines, a JSON object a line: in events.jsonl, and with --json on standard output.

docs/reference/events.md lists them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from rich.console import Console

from gradsweep import files, run_directory
from sweep.console.console import Output

SWEEP_STARTED = "sweep_started"
RUNS_PLANNED = "runs_planned"
RUN_STARTED = "run_started"
RUN_ENDED = "run_ended"
RACE_STARTED = "race_started"
RACE_ENDED = "race_ended"
SWEEP_ENDED = "sweep_ended"
SWEEP_LEFT = "sweep_left"
RUNS_TAKEN_UP = "runs_taken_up"
POINT = "point"
DRY_RUN_ENDED = "dry_run_ended"


class Events:
    """Writes events as they happen into a sweep's directory, and with `echo` to standard output as well."""

    def __init__(self, directory: Path, echo: bool = False) -> None:
        self.path = directory / run_directory.EVENTS
        self._out: Console | None = Output() if echo else None

    def write(self, event: str, **fields: Any) -> None:
        """Write an event with its time and `fields` at once; if the disk is full, drop it, so that the sweep
        continues."""
        record = {"event": event, "time": files.now(), **fields}
        with contextlib.suppress(OSError):
            files.append_json(self.path, record)
        if self._out is not None:
            _print(self._out, record)

    def write_left(self, launcher: str, runs: int, missing: int, pid: int | None) -> None:
        """Write that the command ends while its sweep continues: in a detached process (`pid`), or in SLURM's jobs."""
        directory = str(self.path.parent.absolute())
        self.write(SWEEP_LEFT, directory=directory, launcher=launcher, runs=runs, missing=missing, pid=pid)


def print_event(event: str, **fields: Any) -> None:
    """Print an event on standard output only, for a command that computes nothing and so writes no events.jsonl."""
    _print(Output(), {"event": event, "time": files.now(), **fields})


def _print(console: Console, record: dict[str, Any]) -> None:
    console.out(files.json_line(record), end="", highlight=False)
