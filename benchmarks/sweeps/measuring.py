"""What all parts use: commands and how they are timed, and how a figure is shown beside what is asked for."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = [sys.executable, str(ROOT / "multirun.py")]

HEADINGS = ("what", "seen", "asked")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A figure, and what is asked of it."""

    what: str
    value: float
    unit: str = "s"
    limit: float | None = None
    """At most so much is asked for; None: nothing is."""

    more: str = ""
    """What else was seen, such as CPU time."""

    @property
    def seen(self) -> str:
        return f"{_figure(self.value, self.unit)}{', ' if self.more else ''}{self.more}"

    @property
    def asked(self) -> str:
        if self.limit is None:
            return ""
        return f"{_figure(self.limit, self.unit)} at most{'' if self.value <= self.limit else ': missed'}"


def _figure(value: float, unit: str) -> str:
    """To about three digits."""
    digits = 0 if unit == "MB" or value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{' ' if unit else ''}{unit}"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def environment(**more: str) -> dict[str, str]:
    """Ours, with what mpirun needs to start as root."""
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}


def quoted(words: Iterable[str]) -> str:
    """A list as an override takes it, whatever is in its words."""
    return "[" + ",".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words) + "]"


@dataclasses.dataclass(frozen=True)
class Timed:
    """A command that has ended well: seconds, CPU seconds with all that it has waited for, peak in MB, output."""

    seconds: float
    cpu: float
    peak_mb: float
    out: str

    @property
    def more(self) -> str:
        return f"cpu {self.cpu:.1f} s, peak {self.peak_mb:.0f} MB"


def timed(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> Timed:
    """Run a command that has to succeed, in `folder`.

    Raises:
        SystemExit: it has failed; with its output.
    """
    began = time.perf_counter()
    with (folder / "out").open("w+b") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(**(variables or {})), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}\n{text}")
    return Timed(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, text)
