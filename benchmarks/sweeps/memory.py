"""The launcher's peak while very many points wait behind one that does not end."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweeps import large
from benchmarks.sweeps.measuring import Finding

ASKED_MB = 300.0


def options(parser: argparse.ArgumentParser) -> None:
    large.points_option(parser, 10_000)


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        peak = large.waiting(given.points, Path(folder))
    yield Finding(f"memory of the launcher of {given.points} points", peak, "MB", ASKED_MB)
