"""Print the last lines of a run's logs, then new lines (`logs` of `python -m sweep` and of `python -m reports`)."""

from __future__ import annotations

import argparse
import codecs
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.disk.regular_files import open_regular
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from gradsweep.sweeps.sweep_lock import read_lock_owner
from gradsweep.text import harmless
from sweep.directory import scheduler_job
from sweep.launchers import schedulers
from sweep.status import find
from sweep.status.overview import ASK_EVERY_S

EVERY_S = 0.5
BLOCK = 65536  # bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    find.add_words(parser, "the run")
    parser.add_argument("-f", "--follow", action="store_true", help="go on, also with later attempts, until it ends")
    parser.add_argument("--stderr", action="store_true", help="only what went to stderr; default: stdout, then stderr")
    parser.add_argument("--attempt", type=int, metavar="N", help="of this attempt; default: the latest")
    parser.add_argument("--lines", type=int, default=20, metavar="N", help="so many lines of each (%(default)s)")


def run(options: argparse.Namespace) -> int:
    directory, chosen = find.choose_run(options.words)
    if options.lines < 0:
        raise UsageError(f"--lines {options.lines}: valid is an integer from 0 up")
    earlier = chosen.state().get("reused_from")
    if isinstance(earlier, str):
        raise UsageError(
            f"{chosen.name}: its logs are where it was computed; valid is {earlier}, which it was taken from"
        )
    numbers = chosen.attempt_numbers()
    if options.attempt is not None and options.attempt not in numbers:
        valid = f"one of {', '.join(map(str, numbers))}" if numbers else "none yet"
        raise UsageError(f"--attempt {options.attempt}: {chosen.name} has no such attempt; valid is {valid}")
    if not numbers and not options.follow:
        raise UsageError(
            f"{chosen.name}: no attempt has begun ({chosen.status()}); valid is a run that has, or -f to wait"
        )
    files = (run_directory.STDERR,) if options.stderr else (run_directory.STDOUT, run_directory.STDERR)
    printer = LogPrinter(chosen, files, options.lines)
    if options.attempt is not None or numbers:
        printer.print_new(options.attempt or numbers[-1])
    if options.follow:
        _follow(chosen, printer, options.attempt, directory)
    return 0


def _follow(run: Run, printer: LogPrinter, only: int | None, directory: Path) -> None:
    """Show new lines of the logs until the run is complete, or until no process works on the sweep."""
    while True:
        over = run.status() in run_directory.COMPLETE or (read_lock_owner(directory) is None and not _is_scheduled(run))
        numbers = run.attempt_numbers()
        for number in numbers:
            if number == only or (only is None and number >= printer.number):
                printer.print_new(number)
        if over or (only is not None and numbers[-1] > only):
            return
        time.sleep(EVERY_S)


_asked: dict[scheduler_job.Job, tuple[float, bool]] = {}


def _is_scheduled(run: Run) -> bool:
    """Tell whether a scheduler has a job of the run; query it only now and then, else believe the run's state."""
    job = scheduler_job.read_job(run)
    settled = run.status() in (run_directory.FAILED, run_directory.TIMEOUT, run_directory.CANCELLED)
    if job is None:
        return False
    when, has_run = _asked.get(job, (-ASK_EVERY_S, False))
    if time.monotonic() - when >= ASK_EVERY_S:
        has_run = bool(schedulers.find_living_jobs([job], believed=not settled))
        _asked[job] = (time.monotonic(), has_run)
    return has_run


class LogPrinter:
    """Prints the logs of a run: first the last lines of an attempt, then all new lines, also of later attempts.

    Args:
        files: the names of an attempt's logs to show.
        lines: the number of last lines of each log to print first.
    """

    def __init__(self, run: Run, files: Sequence[str], lines: int) -> None:
        self.run, self.files, self.lines = run, files, lines
        self.number = 0  # the latest attempt that was shown
        self._offsets: dict[Path, int] = {}
        self._decoders: dict[Path, codecs.IncrementalDecoder] = {}
        self._latest: Path | None = None  # file whose text was printed last
        self._fresh_line = True

    def print_new(self, number: int) -> None:
        """Print the lines that an attempt has added to its logs since the last call."""
        first = self.number == 0
        self.number = max(self.number, number)
        for name in self.files:
            path = self.run.attempt(number) / name
            if path not in self._offsets:
                self._offsets[path] = find_last_lines(path, self.lines) if first else 0
                self._decoders[path] = codecs.getincrementaldecoder("utf-8")("replace")
            for data in self._read_new(path):
                self._print(path, data)
        sys.stdout.flush()

    def _read_new(self, path: Path) -> Iterator[bytes]:
        try:
            with open_regular(path) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(min(self._offsets[path], size))  # the file may have been cut
                while data := file.read(min(BLOCK, size - file.tell())):
                    yield data
                self._offsets[path] = file.tell()
        except FileNotFoundError:
            return

    def _print(self, path: Path, data: bytes) -> None:
        text = self._decoders[path].decode(data)
        if path != self._latest:
            before = "" if self._latest is None else "\n" if self._fresh_line else "\n\n"
            heading = f"{before}==> {path.parent.name}/{path.name} <==\n" if len(self.files) > 1 or before else ""
            sys.stdout.write(heading)
            self._latest = path
        if sys.stdout.isatty():
            sys.stdout.write(harmless(text))
        else:  # unchanged, as it may go to a file
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        self._fresh_line = data.endswith(b"\n")


def find_last_lines(path: Path, lines: int, most: int = 1 << 22) -> int:
    """Return the byte position at which a file's last `lines` lines begin, but at most `most` bytes before its end."""
    try:
        with open_regular(path) as file:
            end = file.seek(0, os.SEEK_END)
            start = end
            tail = b""
            block = BLOCK
            while start > max(0, end - most) and tail.count(b"\n") <= lines:
                start, block = max(0, end - block), 4 * block
                file.seek(start)
                tail = file.read(end - start)
    except OSError:
        return 0
    if lines == 0:
        return end
    position = len(tail) - 1 if tail.endswith(b"\n") else len(tail)
    for _ in range(lines):
        position = tail.rfind(b"\n", 0, position)
        if position < 0:
            return start
    return start + position + 1
