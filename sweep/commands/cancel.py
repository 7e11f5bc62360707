"""End a sweep, or some of its runs, and wait until nothing of them is left.

The launcher, where one is running, is asked to and goes on with the other runs. Of a launcher that was killed, what it
has left is ended. A sweep that was cancelled can be resumed; a run that was cancelled by its name is then left out,
unless it is named again."""

from __future__ import annotations

import argparse

from gradsweep import run_directory
from gradsweep.run_directory import Run, runs_of
from gradsweep.sweeps.sweep_lock import read_lock_owner
from gradsweep.text import plural
from sweep.commands.ask_launcher import ask, take_over
from sweep.directory.requests import CANCEL, Request, describe_sender
from sweep.directory.run_state import exclude
from sweep.driver.cancel_unwatched import cancel_unwatched
from sweep.status import find

SHOWN = 20  # runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    find.add_words(parser, "the runs to cancel; default: all that are not finished")


def run(options: argparse.Namespace) -> int:
    directory, words = find.find_sweep(options.words)
    runs = find.choose_runs(directory, words)
    before = {each: _read_standing(each) for each in runs}
    unfinished = [each for each in runs if before[each][0] not in run_directory.COMPLETE]
    request = Request(CANCEL, tuple(each.name for each in unfinished) if words else None, describe_sender())
    races = not words and read_lock_owner(directory) is not None  # a launcher whose runs are done may race them
    while (unfinished or races) and not ask(directory, request):
        if (sweep := take_over(directory)) is None:
            continue
        try:
            cancel_unwatched(unfinished, f"cancelled by {request.by}")
            for each in unfinished if words else ():
                exclude(each)
        finally:
            sweep.close()
        break
    after = {each: _read_standing(each) for each in runs}
    # a run whose job SLURM has ended and queued again was cancelled before
    cancelled = [each for each in runs if after[each][0] == run_directory.CANCELLED and after[each] != before[each]]
    shown = runs if words else cancelled
    if len(shown) <= SHOWN:
        for each in shown:
            print(f"{each.name}: {after[each][0]}")
    print(f"{plural(len(cancelled), 'run')} of {len(runs_of(directory))} cancelled")
    return 0


def _read_standing(run: Run) -> tuple[str, object]:
    """Return the status of a run and the reason for this status."""
    state = run.state()
    return state["status"], state.get("reason")
