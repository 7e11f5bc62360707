"""Lines for people: what failed and why, and the commands that resume a sweep."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from gradsweep import files, run_directory
from gradsweep.cli.command_names import adapt_commands
from gradsweep.run_directory import Run
from sweep.console.console import Verbosity
from sweep.provenance import record

LOG_LINES = 10  # shown of a log


def show_failures(failed: Sequence[Run], console: Console, resume_command: str) -> None:
    """Print why runs failed, the ends of their logs, and the command that computes only the missing runs."""
    for run in failed:
        state = run.state()
        print_line(console, f"\n{state['status']}: {os.path.relpath(run.directory)}", "bold red")
        if state["status"] == run_directory.RUNNING:
            print_line(console, "  it has ended, but its state could not be written; a resume sets that right")
        elif state.get("reason"):
            print_line(console, f"  {state['reason']}")
        if state["attempts"]:
            print_log_end(console, run.attempt(state["attempts"][-1]["number"]) / run_directory.STDERR)
    if any(run.status() not in run_directory.COMPLETE for run in failed):
        print_line(console, "\nTo compute only what is missing:")
        print_line(console, f"  {resume_command}")


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a line unchanged, without rich's markup and line breaks, so that it can be copied."""
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_log_end(console: Console, path: Path) -> None:
    """Print the last lines of a log."""
    for line in files.tail(path, LOG_LINES):
        print_line(console, f"  | {line}", "dim")


def report_left(sweep: Path, what: str, purposes: Mapping[str, str], verbosity: Verbosity, more: str = "") -> None:
    """Print that a sweep continues after this command, and the commands to follow it.

    Args:
        what: says how the sweep continues.
        purposes: maps each command of `python -m sweep` to print to its purpose.
        more: a last line.
    """
    if verbosity.json:  # its event says all that
        return
    print_line(verbosity.errors(), f"{os.path.relpath(sweep)}: {what}")
    console = verbosity.info()
    for verb, purpose in purposes.items():
        print_line(console, f"  {build_command(verb, sweep)}    {purpose}")
    if more:
        print_line(console, more)


def build_rerun_command(directory: Path) -> str:
    """Return this process's command line with sweep.resume=, for a sweep whose points only this command knows."""
    value = os.path.relpath(directory)
    words = [word for word in record.read_command_line() if not word.startswith("sweep.resume=")]
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", value):  # Hydra's grammar wants quotes around the rest
        value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shlex.join([*words, f"sweep.resume={value}"])


def build_command(verb: str, directory: Path) -> str:
    """Return the command line of `python -m sweep`, or `gradsweep`, for an action on a sweep."""
    return f"{adapt_commands(f'python -m sweep {verb}')} {shlex.quote(os.path.relpath(directory))}"


def build_report_command(directory: Path) -> str:
    """Return the command line that writes the report of a sweep."""
    return f"{adapt_commands('python -m reports')} {shlex.quote(os.path.relpath(directory))}"
