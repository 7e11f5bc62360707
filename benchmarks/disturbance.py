"""Check the thresholds by which runs are marked as disturbed, and measure what the yardstick costs.

    python benchmarks/disturbance.py            # some minutes on a machine that does nothing else
    python benchmarks/disturbance.py --quick    # a minute: whether it works
    python benchmarks/disturbance.py --into docs/design/benchmarks.md

The digits are trained many times, first alone, then beside a busy loop of another program on the run's first core. No
run that is alone may be marked, and each run beside the loop must be. The best readings are those of the same sweep.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import yaml  # noqa: E402

from benchmarks.measuring import PROGRAM, ROOT, keep_busy, make_parser, print_tables  # noqa: E402
from gradsweep import disturbance  # noqa: E402
from gradsweep.run_directory import runs_of  # noqa: E402
from sweep.settings.mpi import MpiSettings, choose_transport  # noqa: E402
from sweep.system.job_environment import build_job_environment  # noqa: E402

READ = """
import sys, time
from mpi4py import MPI
from trainers.devices.yardstick import Yardstick
yardstick, readings = Yardstick(MPI.COMM_WORLD, 1), 50
yardstick.read()
began = time.perf_counter()
for _ in range(readings):
    yardstick.read()
if MPI.COMM_WORLD.rank == 0:
    print((time.perf_counter() - began) / readings, yardstick.every_s)
"""


def train(workers: int, loops: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Train a sweep on the first cores, one run at a time, and return the results."""
    cores = sorted(os.sched_getaffinity(0))[:workers]
    with tempfile.TemporaryDirectory() as folder, keep_busy(loops, cores[:1]):
        sweep = Path(folder) / "sweep"
        runs, steps = (2, 60) if arguments.quick else (arguments.runs, 300)
        words = ["-m", f"seed=range({runs})", f"workers={workers}", f"max_steps={steps}", "epochs=100", "race=off"]
        places = [f"hydra.launcher.cores={cores}", f"hydra.sweep.dir={sweep}"]
        subprocess.run([*PROGRAM, "--quiet", *words, *places], check=True, stdout=subprocess.DEVNULL)
        return [result for run in runs_of(sweep) if (result := run.result()) is not None]


def check_marks(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of marks."""
    yield ["workers", "busy loops", "runs", "marked", "asked", "drift", "cores of others", "spread within a run"]
    for workers in arguments.workers:
        for loops in (0, 1):
            found = [result["yardstick"] for result in train(workers, loops, arguments)]
            best = disturbance.find_best(found)
            bests = [disturbance.choose_best(each, best) for each in found]
            marked = sum(disturbance.explain_disturbed(*each) is not None for each in zip(found, bests, strict=True))
            drifts = [disturbance.compute_drift(*each) or 0.0 for each in zip(found, bests, strict=True)]
            others = [disturbance.get_share_of_others(each) or 0.0 for each in found]
            asked = str(len(found) if loops else 0)
            asked += "" if str(marked) == asked else ": missed"
            spread = f"up to {100 * max(each['spread'] for each in found):.0f} %"
            ranges = (f"{min(drifts):.3f} to {max(drifts):.3f}", f"{min(others):.3f} to {max(others):.3f}")
            yield [str(workers), str(loops), str(len(found)), str(marked), asked, *ranges, spread]


def measure_cost(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of what a reading takes."""
    mpi = MpiSettings(**choose_transport(yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()), "local"))
    yield ["workers", "a reading", "read every", "share of the training time"]
    for workers in arguments.workers:
        mpirun = [word.replace("{workers}", str(workers)) for word in mpi.resolve_command()]
        with tempfile.TemporaryDirectory() as scratch:
            environment = build_job_environment({**mpi.variables, "OMP_NUM_THREADS": "1"}, None, scratch)
            command = [*mpirun, sys.executable, "-c", READ]
            said = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        taken_s, every_s = map(float, said.stdout.split())
        yield [str(workers), f"{1000 * taken_s:.2f} ms", f"{every_s:.1f} s", f"{100 * taken_s / every_s:.2f} %"]


def main(given: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each kind (20)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers (1 2)")
    parser.add_argument("--quick", action="store_true", help="two short runs of each kind")
    print_tables(parser, "disturbance", {"marks": check_marks, "cost": measure_cost}, given)


if __name__ == "__main__":
    main()
