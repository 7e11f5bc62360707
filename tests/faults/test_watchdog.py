"""Runs that hang, and runs that are only slow."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import failure_causes, run_directory
from sweep.attempts.run_task import RunTask
from sweep.attempts.watchdog import Watch
from sweep.executors.local import SlotExecutor
from sweep.settings.limits import Limits
from sweep.system.processes import find_processes
from tests.conftest import ENDLESS, Program, eventually
from tests.faults.conftest import StandInOf, attempts, by_seed, ranks
from tests.faults.real_runs import SWEEP, has_left_nothing, list_ranks, wait_for_training

pytestmark = pytest.mark.thorough

IN_MPI = """
import os, sys, time
from pathlib import Path
from trainers.mpi import stopping
stopping.listen()
stopping.write_stacks_into(Path(os.environ["GRADSWEEP_ATTEMPT"]), int(os.environ["OMPI_COMM_WORLD_RANK"]))
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    def stuck():
        time.sleep(1000)
    stuck()
def waits():
    MPI.COMM_WORLD.Barrier()
waits()
"""


def test_a_run_that_hangs_is_ended_and_tried_again(stand_in: StandInOf) -> None:
    sweep = stand_in(f'if [ ! -e "$4/attempt-2" ]; then sleep 1000; fi; {ranks(2, 0)}', points=2, hang_minutes=0.1)
    code, out = sweep.finish()
    assert code == 0, out
    for run in sweep.runs:
        assert attempts(run) == [("failed", failure_causes.HANG), ("done", None)]
        assert "no progress for 0.1 minutes" in run.state()["attempts"][0]["reason"]


def test_one_that_does_not_end_of_sigterm_either(stand_in: StandInOf) -> None:
    sweep = stand_in("trap '' USR2 TERM; sleep 1000 & wait; sleep 1000", hang_minutes=0.01, retries=0)
    assert sweep.finish()[0] == 1
    assert attempts(sweep.run) == [("failed", failure_causes.HANG)]


def test_whoever_makes_progress_is_left_alone(stand_in: StandInOf) -> None:
    """For three times as long as it may make none: by rows, by output, by checkpoints."""
    again = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {}; sleep 1.5; done; " + ranks(1, 0)
    works = (ranks(12, 1.5), again.format("echo $i"), again.format('mkdir -p "$4/checkpoint/$i"'))
    sweep = stand_in(by_seed(*works), len(works), hang_minutes=6 / 60, retries=0, share_cores=True, max_parallel=3)
    code, out = sweep.finish()
    assert code == 0, out


def test_only_time_that_somebody_watched_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher and its ranks were stopped (Ctrl-Z), and go on."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watch = Watch([tmp_path / "file"], 100)
    for clock[0] in range(0, 90, 5):
        assert not watch.has_hung()
    clock[0] = 10_000.0
    assert not watch.has_hung()
    (tmp_path / "file").touch()
    clock[0] += 5
    assert not watch.has_hung() and watch.idle_s == 0
    for _ in range(20):
        clock[0] += 5
        hung = watch.has_hung()
    assert hung


@pytest.mark.mpi
def test_every_rank_says_where_it_hangs(tmp_path: Path) -> None:
    """Also one that waits for the others within MPI."""
    program = tmp_path / "hangs.py"
    program.write_text(IN_MPI)
    mpirun = str(Path(sys.executable).parent / "mpirun")
    command = [mpirun, "--bind-to", "none", "--oversubscribe", "-n", "{workers}", sys.executable, str(program)]
    (tmp_path / "run").mkdir()
    task = RunTask(str(tmp_path / "run"), 3, 1, command, {}, limits=Limits(hang_s=10))
    executor = SlotExecutor(tmp_path)
    (job,) = executor.submit_runs([task])
    job.wait()
    assert (job.status, job.cause) == (run_directory.FAILED, failure_causes.HANG)
    texts = [(task.run.attempt(1) / f"stacks-{rank}.txt").read_text() for rank in range(3)]
    assert [(text.count(" in waits"), text.count(" in stuck")) for text in texts] == [(0, 1), (1, 0), (1, 0)]
    assert "attempt-1/stacks-*.txt say where" in str(job.reason)
    assert find_processes(task.run.attempt(1).absolute()) == []


@pytest.mark.mpi
@pytest.mark.slow  # longer without a word than torch takes to load on a busy machine
def test_a_training_that_hangs_shows_its_stacks(start: Callable[..., Program], tmp_path: Path) -> None:
    """One rank is stopped, which leaves the other waiting for it in a collective."""
    program = start("-m", SWEEP, *ENDLESS, "workers=2", "sweep.hang_minutes=1.5", "sweep.retries=0")
    run = wait_for_training(tmp_path, "")
    os.kill(list_ranks(run)[-1], signal.SIGSTOP)
    code, out, err = program.end(400)
    assert code == 1 and "no progress for 1.5 minutes" in out
    assert attempts(run) == [("failed", failure_causes.HANG)]
    assert 'trainers/training/loop.py", line' in (run.attempt(1) / "stacks-0.txt").read_text()
    assert not (run.attempt(1) / "stacks-1.txt").exists()  # of the one that was stopped: it was empty
    eventually(lambda: has_left_nothing(run))
