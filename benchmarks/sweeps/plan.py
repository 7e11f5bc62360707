"""A dry run of many points, which composes, checks and names them all and reads what is finished."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweeps import large
from benchmarks.sweeps.measuring import PROGRAM, Finding, timed

ASKED_S = 10.0


def options(parser: argparse.ArgumentParser) -> None:
    large.points_option(parser, 1000)


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        done = timed([*PROGRAM, *large.grid(given.points), "sweep.dry_run=true"], Path(folder))
    assert f"{given.points} runs to do" in done.out, done.out
    yield Finding(f"dry run of {given.points} points", done.seconds, "s", ASKED_S, done.more)
