"""Find the sweep and the runs that words on the command line name."""

from __future__ import annotations

import argparse
import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean
from gradsweep.run_directory import Run, runs_of
from gradsweep.sweeps.sweep_locations import OUTPUT, is_sweep, last_sweep


def add_words(parser: argparse.ArgumentParser, runs: str) -> None:
    """Add to `parser` the words that `find_sweep` reads; `runs` is the help on the names of runs."""
    parser.add_argument("words", metavar="DIR, RUN", nargs="*", help=f"a sweep, and {runs}")


def find_sweep(words: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the sweep that the first word names, or else the latest sweep, and the words that name runs.

    The directory of a run, and SWEEP/RUN, name a sweep and a run.

    Raises:
        UsageError: there is no such sweep.
    """
    if not words or words[0] == "last":
        return find_last(), list(words[1:])
    first = Path(words[0])
    if is_sweep(first):
        return first, list(words[1:])
    if first.parent.name == run_directory.RUNS and is_sweep(first.parent.parent):
        return first.parent.parent, [first.name, *words[1:]]
    if "/" in words[0] and not first.is_dir() and is_sweep(first.parent):
        return first.parent, [first.name, *words[1:]]
    if "/" in words[0] or first.is_dir():
        raise UsageError(
            f"{words[0]}: there is no sweep in it (no {run_directory.SWEEP}); valid is output/<date>/<time>"
        )
    return find_last(), list(words)


def find_last() -> Path:
    """Return the sweep below output/ that was last started or resumed.

    Raises:
        UsageError: there is none.
    """
    found = last_sweep(OUTPUT)
    if found is None:
        raise UsageError(f"last: there is no sweep in {OUTPUT.absolute()}; valid is the directory of a sweep")
    return found


def choose_runs(directory: Path, words: Sequence[str], missing: Sequence[str] = ()) -> list[Run]:
    """Return the runs that words name, sorted by name; without words return all runs.

    Args:
        missing: the names of recorded runs without a directory, which may also be named.

    Raises:
        UsageError: a word names no run, or is the beginning of several.
    """
    runs = runs_of(directory)
    if missing:
        runs = sorted(
            {*runs, *(Run(directory / run_directory.RUNS / name) for name in missing)}, key=lambda run: run.name
        )
    if not words:
        return runs
    wanted = {name for word in words for name in match_names(word, [run.name for run in runs])}
    return [run for run in runs if run.name in wanted]


def choose_run(words: Sequence[str]) -> tuple[Path, Run]:
    """Return the sweep and the run that words name.

    Raises:
        UsageError: the words name no run, or several.
    """
    directory, rest = find_sweep(words)
    runs = choose_runs(directory, rest)
    if len(runs) != 1:
        raise UsageError(f"RUN: {len(runs)} runs; valid is one of them" if runs else f"{directory}: it has no runs")
    return directory, runs[0]


def match_names(word: str, names: Sequence[str]) -> list[str]:
    """Return the names of the runs that a word matches.

    Raises:
        UsageError: no name is or begins with the word, or several names begin with it.
    """
    if word in names:
        return [word]
    if re.search(r"[*?\[]", word):
        matches = [name for name in names if fnmatch.fnmatchcase(name, word)]
    else:
        matches = [name for name in names if name.rpartition("-")[2] == word]
        matches = matches or [name for name in names if name.startswith(word)]
        if len(matches) > 1:
            shown = ", ".join(matches[:3]) + (", ..." if len(matches) > 3 else "")
            raise UsageError(f"{word}: {len(matches)} runs begin so ({shown}); valid is more of a name, or '{word}*'")
    if not matches:
        meant = did_you_mean(word, [name.rpartition("-")[0] for name in names[:1000]])
        raise UsageError(f"{word}: no such run; {meant}valid is a name, its beginning, a pattern or a signature")
    return matches
