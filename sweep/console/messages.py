"""What is said at the end of a sweep: what failed and why, and the command that computes what is missing."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from sweep.console.console import Verbosity
from sweep.provenance import record
from sweep.system.signals import Interrupted

LOG_LINES = 10  # of a failed run, shown at the end

_growing: set[Path] = set()


def show_failures(failed: Sequence[Run], directory: Path, console: Console) -> None:
    """Why runs failed, the end of their logs, and the command that computes only what is missing."""
    for run in failed:
        state = run.state()
        print_line(console, f"\n{state['status']}: {os.path.relpath(run.directory)}", "bold red")
        if state["status"] == run_directory.RUNNING:
            print_line(console, "  it has ended, but its state could not be written; a resume sets that right")
        elif state.get("reason"):
            print_line(console, f"  {state['reason']}")
        if state["attempts"]:
            log = run.attempt(state["attempts"][-1]["number"]) / run_directory.STDERR
            for line in files.tail(log, LOG_LINES):
                print_line(console, f"  | {line}", "dim")
    if any(run.status() not in run_directory.COMPLETE for run in failed):
        print_line(console, "\nTo compute only what is missing:")
        print_line(console, f"  {resume_command(directory)}")


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: neither markup nor line breaks of rich's own, so that it can be copied."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def report_left(sweep: Path, what: str, purposes: Mapping[str, str], how: Verbosity, more: str = "") -> None:
    """Say that a sweep goes on without this command, and what to type to follow it.

    Args:
        what: becomes of it.
        purposes: of commands of `python -m sweep`.
        more: a last line.
    """
    if how.json:  # its event says all that
        return
    print_line(how.errors(), f"{os.path.relpath(sweep)}: {what}")
    console = how.info()
    for verb, purpose in purposes.items():
        print_line(console, f"  {command(verb, sweep)}    {purpose}")
    if more:
        print_line(console, more)


def report_interrupted(interrupted: Interrupted, directories: Iterable[Path]) -> None:
    """Say how to go on with sweeps that this process has opened, unless that has been said or nothing was written."""
    from sweep.directory import (
        completion,  # with YAML, which the rest does without
        restore_runs,
    )

    if interrupted.reported:
        return
    for directory in directories:
        if (directory / run_directory.SWEEP).is_file():
            interrupted.reported = True
            finished = not is_growing(directory) and all(map(completion.is_complete, run_directory.runs_of(directory)))
            if finished and not restore_runs.list_missing(directory):
                what, how = "interrupted; all runs are computed. To report on them", report_command(directory)
            else:
                what, how = "interrupted. To go on", resume_command(directory)
            with suppress(OSError):  # a terminal that has gone
                print(f"\n{what}:\n  {how}", file=sys.stderr, flush=True)


def note_growing(directory: Path) -> None:
    """Remember that the points of a sweep come batch after batch: only its own command knows those to come."""
    _growing.add(directory)


def is_growing(directory: Path) -> bool:
    """Whether the points of a sweep come from a sweeper that looks for something."""
    return directory in _growing


def resume_command(directory: Path) -> str:
    """What computes what is missing in `directory`: this command line again where not all points are laid out."""
    if directory not in _growing:
        return command("resume", directory)
    value = os.path.relpath(directory)
    words = [word for word in record.command_line() if not word.startswith("sweep.resume=")]
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", value):  # Hydra's grammar wants quotes around the rest
        value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shlex.join([*words, f"sweep.resume={value}"])


def command(verb: str, directory: Path) -> str:
    """What to type to have `python -m sweep` do something with a sweep."""
    return shlex.join(["python", "-m", "sweep", verb, os.path.relpath(directory)])


def report_command(directory: Path) -> str:
    """What to type to have the report of a sweep written."""
    return shlex.join(["python", "-m", "reports", os.path.relpath(directory)])
