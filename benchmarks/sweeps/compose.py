"""Hydra composing some of many points one by one, and the launcher all of them: milliseconds a point."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.sweeps import large
from benchmarks.sweeps.measuring import ROOT, Finding

CODE = """
import sys, time
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from sweep.config import grid, schema
from sweep.config.composer import Composer
from trainers.config.groups import GROUPS
from trainers.config.run_config import RunConfig

schema.register(RunConfig, GROUPS)
schema.register_resolvers()
with initialize_config_dir(sys.argv[1], version_base="1.3", job_name="multirun"):
    loader = GlobalHydra.instance().config_loader()
    master = loader.load_configuration("config", [], RunMode.MULTIRUN)
    points = grid.expand_points({}, sys.argv[2:], [], OverridesParser.create(config_loader=loader))
    some = points[:: max(1, len(points) // 20)]
    began = time.perf_counter()
    for point in some:
        loader.load_sweep_config(master, point)
    between = time.perf_counter()
    Composer(loader, master).compose(points)
    ended = time.perf_counter()
    print(1000 * (between - began) / len(some), 1000 * (ended - between) / len(points))
"""


def options(parser: argparse.ArgumentParser) -> None:
    large.points_option(parser, 1000)


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    command = [sys.executable, "-c", CODE, str(ROOT / "conf"), *large.grid(given.points)[1:]]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    one, fast = map(float, done.stdout.split())
    yield Finding("composing a point by Hydra", one, "ms")
    yield Finding(
        f"composing a point of {given.points} as the launcher does", fast, "ms", None, f"{one / fast:.0f} times faster"
    )
