"""Delete checkpoints, or what failed attempts have left, of a sweep that nobody needs to go on with.

Shows what would go, and asks. What is running is left alone: runs whose state says so, and as long as somebody runs
the sweep all that are not complete. A symbolic link is never followed.

--checkpoints: RUN/checkpoint. A run that is not done is then computed from its beginning if it is resumed.
--failed-attempts: RUN/attempt-N of attempts that have ended without a result, but not the latest of a run, which tells
why it failed, nor those that a run has gone on from or may."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from gradsweep.sweeps.sweep_lock import hold_unlocked
from gradsweep.text import align, one_line, plural
from reports.commands.run_text import format_size
from sweep.status import find
from sweep.status.overview import Overview


@dataclasses.dataclass(frozen=True)
class Deletion:
    """A directory to delete."""

    path: Path
    bytes: int
    why: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="DIR, RUN", nargs="+", help="a sweep, and runs of it; default: all its runs")
    parser.add_argument("--checkpoints", action="store_true", help="from which runs could go on, RUN/checkpoint")
    parser.add_argument(
        "--failed-attempts", action="store_true", help="logs and records of attempts that ended without a result"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    if not options.checkpoints and not options.failed_attempts:
        raise UsageError("prune: nothing to delete is named; valid is --checkpoints, --failed-attempts or both")
    directory, words = find.find_sweep(options.words)
    runs = find.choose_runs(directory, words)
    doomed = _print_deletions(directory, runs, options)
    if not doomed:
        print("nothing to delete")
        return 0
    if not options.yes:
        if not sys.stdin.isatty():
            raise UsageError("prune: nothing was deleted, as standard input is no terminal to ask on; valid is --yes")
        if input("delete them? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was deleted")
            return 0
    failed = 0
    with hold_unlocked(directory) as is_free:  # no resume can begin meanwhile
        now = {each.path for each in _find_deletions(directory, runs, options, is_free)[0]}
        for each in doomed:
            if each.path not in now:
                print(f"left alone: {_format_path(each.path, directory)}: it is in use now, or has gone")
            elif not _delete(each.path):
                failed = 1
    return failed


def _print_deletions(directory: Path, runs: Sequence[Run], options: argparse.Namespace) -> list[Deletion]:
    with hold_unlocked(directory) as is_free:
        doomed, spared = _find_deletions(directory, runs, options, is_free)
    rows = [(format_size(each.bytes), _format_path(each.path, directory), each.why) for each in doomed]
    if rows:
        total = format_size(sum(each.bytes for each in doomed))
        count = len(doomed)
        print(f"{one_line(str(directory))}: {count} {'directory' if count == 1 else 'directories'}, {total}")
        print("\n".join(align(rows, (0,))))
    for line in spared:
        print(f"left alone: {line}")
    return doomed


def _find_deletions(
    directory: Path, runs: Sequence[Run], options: argparse.Namespace, is_free: bool
) -> tuple[list[Deletion], list[str]]:
    """Return the directories to delete, and a description of each requested directory that is kept."""
    overview = Overview(directory)
    overview.refresh()
    doomed, spared = [], []
    busy = 0
    for one in runs:
        status = one.status()
        if status == run_directory.RUNNING or (
            status not in run_directory.COMPLETE and (overview.active or not is_free)
        ):
            busy += 1
        else:
            found = [*(_find_checkpoint(one, status) if options.checkpoints else ())]
            found += [*(_find_attempts(one, status) if options.failed_attempts else ())]
            doomed += [Deletion(path, _count_bytes(path), why) for path, why in found if not path.is_symlink()]
            spared += [f"{_format_path(path, directory)}: a symbolic link" for path, _ in found if path.is_symlink()]
    if busy:
        spared.append(f"{plural(busy, 'run')} that {'is' if busy == 1 else 'are'} running or may be taken up")
    return doomed, spared


def _find_checkpoint(one: Run, status: str) -> Iterator[tuple[Path, str]]:
    path = one.path(run_directory.CHECKPOINT)
    if os.path.lexists(path):
        yield path, "" if status in run_directory.COMPLETE else f"{status}: a resume computes it from the beginning"


def _find_attempts(one: Run, status: str) -> Iterator[tuple[Path, str]]:
    if status not in run_directory.COMPLETE and one.path(run_directory.CHECKPOINT).exists():
        return  # a resume needs the records of the machines that made it
    kept = {*one.contributors(), *one.attempt_numbers()[-1:]}
    for attempt in one.state()["attempts"]:
        number, ended = attempt.get("number"), attempt.get("status")
        if not isinstance(number, int) or number in kept or ended in (run_directory.RUNNING, *run_directory.FINE):
            continue
        if os.path.lexists(path := one.attempt(number)):
            yield path, str(ended)


def _count_bytes(directory: Path) -> int:
    return sum(os.lstat(os.path.join(above, name)).st_size for above, _, names in os.walk(directory) for name in names)


def _delete(path: Path) -> bool:
    try:
        shutil.rmtree(path)
    except OSError as error:
        print(f"reports: {error.filename or path}: {error.strerror}", file=sys.stderr)
        return False
    return True


def _format_path(path: Path, directory: Path) -> str:
    return one_line(os.path.relpath(path, directory))
