"""Sweeps of stand-in ranks under a real launcher: seconds where torch would take minutes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.directory import run_layout
from sweep.directory.run_identity import Point
from sweep.system.log_pipes import OUTPUT_VARIABLE
from sweep.system.processes import ATTEMPT_VARIABLE, kill_processes
from tests.conftest import ROOT, eventually

HERE = Path(__file__).parent


def ranks(rows: int, seconds: float, workers: int = 1) -> str:
    """A shell's script that plays mpirun: starts ranks, ends as the first that fails. "$4" is the run."""
    python = shlex.quote(sys.executable)
    begin = "".join(
        f'{python} -S {shlex.quote(str(HERE / "rank.py"))} {rank} {rows} {seconds} "$4" & r{rank}=$!; '
        for rank in range(workers)
    )
    trap = "trap 'kill -USR1 $r0; wait $r0' USR1; "  # as mpirun passes it on
    return begin + trap + "; ".join(f"wait $r{rank} || exit $?" for rank in range(workers))


def by_seed(*scripts: str) -> str:
    """A script: each run does its own."""
    cases = "".join(f"*/seed={seed}-*) {script};; " for seed, script in enumerate(scripts))
    return f'case "$4" in {cases}esac'


class StandIn:
    """A sweep directory with `points` runs of a `script`, and its launcher.

    Args:
        directory: of the sweep.
        script: for sh; the run's directory is "$4".
        environment: of the ranks of all runs, or of those of each.
        sweep: settings of the section `sweep`.
    """

    def __init__(
        self,
        directory: Path,
        script: str,
        points: int = 1,
        environment: Mapping[str, str] | Sequence[Mapping[str, str]] = (),
        **sweep: Any,
    ) -> None:
        self.directory, self.temporary = directory, directory.parent / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.environment = {"TMPDIR": str(self.temporary)}
        self.processes: list[subprocess.Popen[str]] = []
        environments = [environment] * points if isinstance(environment, Mapping) else environment or [{}] * points
        self.configs = [
            {
                "seed": seed,
                "workers": 1,
                "threads_per_worker": 1,
                "exchange": {"name": "allreduce"},
                "epochs": 1,
                "max_steps": None,
                "launcher": {"cluster": "local"},
                "mpi": {"command": ["sh", "-c", script, "{workers}"], "environment": dict(variables)},
                "sweep": {"backoff_s": 0, "snapshot": False, **sweep},
            }
            for seed, variables in zip(range(points), environments, strict=True)
        ]
        directory.mkdir()
        self.lay_out()

    def lay_out(self) -> None:
        run_layout.lay_out(self.directory, [Point(config, {"seed": str(config["seed"])}) for config in self.configs])

    @property
    def runs(self) -> list[Run]:
        return runs_of(self.directory)

    @property
    def run(self) -> Run:
        (run,) = self.runs
        return run

    def start(self, **popen: Any) -> subprocess.Popen[str]:
        """The launcher, in the background."""
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
            "cwd": self.directory.parent,
            "env": {**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
        }
        command = [sys.executable, str(HERE / "launcher.py"), str(self.directory)]
        process = subprocess.Popen(command, **{**given, **popen})
        self.processes.append(process)
        return process

    def finish(self, **popen: Any) -> tuple[int, str]:
        """The launcher, to its end: exit status and output. Nothing of it is left then."""
        process = self.start(**popen)
        out, _ = process.communicate(timeout=300)
        self.nothing_is_left()
        return process.returncode, out

    def left(self) -> list[str]:
        """Processes of the attempts and of their logs, and temporary files."""
        marks = [f"{name}={self.directory}/".encode() for name in (ATTEMPT_VARIABLE, OUTPUT_VARIABLE)]
        found = []
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
                if any(mark in environment for mark in marks):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found + [path.name for path in self.temporary.glob("gradsweep-*")]

    def nothing_is_left(self) -> None:
        eventually(lambda: not self.left())

    def training(self, run: Run | None = None) -> Run:
        """A run, once it has written a row."""

        def ready() -> Run | None:
            some = [run] if run is not None else self.runs
            return next((each for each in some if files.last_row(each.path(run_directory.STEPS)) is not None), None)

        found = eventually(ready)
        assert isinstance(found, Run)
        return found

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.communicate(timeout=120)
                except subprocess.TimeoutExpired:
                    process.kill()
        for run in self.runs:
            for number in run.attempt_numbers():
                kill_processes(run.attempt(number).absolute())


StandInOf = Callable[..., StandIn]


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandInOf]:
    """Lay out a sweep of stand-ins, in the test's directory unless it says another."""
    made: list[StandIn] = []

    def make(script: str, points: int = 1, *, directory: Path | None = None, **given: Any) -> StandIn:
        made.append(StandIn(directory or tmp_path / "sweep", script, points, **given))
        return made[-1]

    yield make
    for each in made:
        each.end()


def attempts(run: Run) -> list[tuple[str, str | None]]:
    """Status and cause of every attempt."""
    return [(each["status"], each["cause"]) for each in run.state()["attempts"]]
