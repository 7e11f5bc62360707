"""Allocations that serve many runs, as far as no SLURM is needed: fake_slurm.py plays its commands."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from gradsweep import failure_causes, run_directory
from gradsweep.files import read_json, write_json
from gradsweep.run_directory import WORLD_CONTROL, Run
from sweep.attempts.run_task import RunTask
from sweep.directory import scheduler_job
from sweep.directory.run_state import write_state
from sweep.driver.cancel_unwatched import cancel_unwatched
from sweep.executors.slurm.batch import read_batch
from sweep.executors.slurm.executor import SlurmJob, SlurmRunExecutor
from sweep.executors.slurm.shares import find_in_shared_jobs, share_out
from sweep.executors.slurm_job.base import count_preemptions
from sweep.system.processes import WORLD_VARIABLE, find_processes
from tests.conftest import ROOT, eventually
from tests.sweep.executors.slurm.test_submitted_jobs import began, polled, quick
from tests.sweep.fake_slurm import FakeSlurm, fake

pytestmark = pytest.mark.thorough

__all__ = ["fake", "quick"]
FAKE = ROOT / "tests" / "sweep" / "fake_world.py"
Make = Callable[..., RunTask]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def task(name: str, workers: int = 1, **options: Any) -> RunTask:
        directory = tmp_path / "sweep" / run_directory.RUNS / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / run_directory.CONFIG).touch()
        launcher = {"cluster": "slurm", "poll_s": 0.1, "time": 5, **options}
        return RunTask(str(directory), workers, 1, [sys.executable, str(FAKE), "{workers}"], {}, launcher=launcher)

    return task


@pytest.fixture
def executor(tmp_path: Path, fake: FakeSlurm) -> SlurmRunExecutor:
    return SlurmRunExecutor(tmp_path / "sweep", 0.05, packed=True)


def submit(executor: SlurmRunExecutor, *tasks: RunTask) -> list[SlurmJob]:
    return [job for job in executor.submit_runs(tasks) if isinstance(job, SlurmJob)]


def test_shares_are_about_equally_long_and_none_is_empty(make: Make) -> None:
    tasks = [make(str(seconds), allocations=3) for seconds in (1, 2, 3, 10, 11, 12)]
    shares = share_out(tasks, lambda task: float(task.run.name))
    assert [[task.run.name for task in share] for share in shares] == [["1", "12"], ["2", "11"], ["3", "10"]]
    assert [len(share) for share in share_out(tasks)] == [2, 2, 2]
    assert [len(share) for share in share_out(tasks[:2])] == [1, 1]
    one = [make(name, allocations=1) for name in "bca"]
    assert share_out(one, lambda task: float(ord(task.run.name))) == [one], "in the order in which they are to start"


def test_a_batch_says_which_runs_each_of_its_tasks_has(executor: SlurmRunExecutor, make: Make, tmp_path: Path) -> None:
    tasks = [make(name, 2, allocations=2, side_by_side=3) for name in "abc"]
    found = submit(executor, *tasks, make("d", 4))
    assert [job.slurm_id for job in found] == ["100_0", "100_1", "100_0", "200_0"]
    first = read_batch(tmp_path / "sweep" / "slurm" / "batch-0001.json")
    assert first is not None and first.packed and first.tasks == [["a", "c"], ["b"]]
    assert "--ntasks=6" in (tmp_path / "sweep" / "slurm" / "batch-0001.sh").read_text()
    assert scheduler_job.read_job(tasks[2].run) == ("slurm", "100_0")


def test_runs_of_different_worlds_do_not_share_a_job(executor: SlurmRunExecutor, make: Make) -> None:
    other = dataclasses.replace(make("b"), environment={"A": "b"})
    assert [job.slurm_id for job in submit(executor, make("a"), other)] == ["100_0", "200_0"]


def test_one_of_many_is_taken_out_and_all_of_them_are_cancelled(
    executor: SlurmRunExecutor, make: Make, fake: FakeSlurm
) -> None:
    a, b, c = submit(executor, make("a"), make("b"), make("c"))
    assert find_in_shared_jobs([a.task.run, b.task.run]) == [a.task.run, b.task.run]
    assert find_in_shared_jobs([each.task.run for each in (a, b, c)]) == []
    executor.cancel([a], "not wanted", 0.0)
    assert (a.status, a.reason) == (run_directory.CANCELLED, "not wanted") and not fake.asked("scancel")
    assert a.task.run.state()["reason"] == "not wanted" and scheduler_job.read_job(a.task.run) is None
    executor.cancel([b, c], "not wanted", 0.0)
    assert fake.asked("scancel") == ["100"]


def test_a_job_that_was_queued_again_is_kept_for_what_it_had_begun(executor: SlurmRunExecutor, make: Make) -> None:
    a, b = submit(executor, make("a"), make("b"))
    write_state(a.task.run, status=run_directory.CANCELLED, reason="SLURM ended it", attempts=[{"job": a.slurm_id}])
    assert find_in_shared_jobs([b.task.run]) == [b.task.run]


def test_without_a_launcher_one_of_many_is_taken_out_too(
    executor: SlurmRunExecutor, make: Make, fake: FakeSlurm
) -> None:
    a, b = submit(executor, make("a"), make("b"))
    fake.queue(_100_0="RUNNING")
    cancel_unwatched([a.task.run], "cancelled by me")
    assert a.task.run.state()["reason"] == "cancelled by me" and not fake.asked("scancel")
    fake.queue()
    cancel_unwatched([b.task.run], "cancelled by me")
    assert b.task.run.status() == run_directory.CANCELLED and fake.asked("scancel") == ["100_0"]


def test_another_try_is_another_job_and_the_rest_stays_where_it_is(
    executor: SlurmRunExecutor, make: Make, fake: FakeSlurm, tmp_path: Path
) -> None:
    fake.queue(_100_0="RUNNING")
    a, b = submit(executor, make("a"), make("b"))
    began(a.task, "100_0", run_directory.FAILED, reason="x")
    polled(executor, lambda: a.ended)
    write_state(a.task.run, status=run_directory.PENDING)
    (again,) = submit(executor, a.task)
    (same,) = submit(executor, b.task)  # asked for once more
    assert (again.slurm_id, same.slurm_id) == ("200_0", "100_0")
    later = SlurmRunExecutor(tmp_path / "sweep", 0.05, packed=True)  # a resume
    fake.queue(_100_0="RUNNING", _200_0="RUNNING")
    assert [job.slurm_id for job in submit(later, again.task, b.task)] == ["200_0", "100_0"]


def test_what_had_not_begun_when_its_job_was_killed_may_be_tried_again(
    executor: SlurmRunExecutor, make: Make, fake: FakeSlurm
) -> None:
    a, b = submit(executor, make("a"), make("b"))
    began(a.task, "100_0")
    fake.queue(_100_0="FAILED")
    polled(executor, lambda: a.ended and b.ended)
    assert (a.status, a.cause, b.status, b.cause) == (
        run_directory.FAILED,
        failure_causes.UNKNOWN,
        run_directory.FAILED,
        failure_causes.LOST,
    )
    assert "before its turn" in str(b.reason)


def test_slurm_is_not_asked_for_runs_whose_job_is_heard(
    executor: SlurmRunExecutor, make: Make, fake: FakeSlurm
) -> None:
    a, b = submit(executor, make("a"), make("b"))
    fake.queue(_100_0="RUNNING")
    began(a.task, "100_0")
    polled(executor, lambda: a.status == run_directory.RUNNING)
    before = len(fake.asked("squeue"))
    for _ in range(20):
        os.utime(a.task.run.path(run_directory.STATE))
        executor.poll()
        time.sleep(0.02)  # all in all several times poll_s
    assert len(fake.asked("squeue")) == before


def test_only_being_sent_away_counts_not_the_end_of_a_world(make: Make) -> None:
    run = make("a").run
    told = [
        (0, run_directory.PREEMPTED),
        (0, run_directory.PREEMPTED),
        (1, run_directory.PREEMPTED),
        (1, run_directory.FAILED),
        (2, run_directory.PREEMPTED),
    ]
    attempts = [{"job": "1_0", "restarts": restarts, "status": status} for restarts, status in told]
    write_state(run, attempts=[*attempts, {"job": "2_0", "restarts": 0, "status": run_directory.PREEMPTED}])
    assert count_preemptions(run, "1_0") == 2


# what the job does


class Share:
    """Runs in a batch of one task, and the processes that play its jobs."""

    def __init__(self, folder: Path, make: Make) -> None:
        self.batch, self.make = folder / "sweep" / "slurm" / "batch-0001.json", make
        self.batch.parent.mkdir(parents=True)
        self.processes: list[subprocess.Popen[str]] = []

    def runs(self, *does: str, **options: Any) -> list[Run]:
        """Runs whose ranks do that (fake_world.py)."""
        found = []
        for number, what in enumerate(does):
            task = self.make(f"run{number}", **options)
            if what:
                task.run.path("does").write_text(what)
            job = {"cluster": "slurm", "id": "100_0", "batch": "batch-0001", "index": 0}
            job |= {"task": dataclasses.asdict(task)}
            write_json(task.run.path(run_directory.JOB), job)
            found.append(task.run)
        write_json(self.batch, {"name": "x", "runs": [[run.name for run in found]]})
        return found

    def start(self, restarts: int = 0, nodes: int = 1) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            **{"PYTHONPATH": str(ROOT), "SLURM_ARRAY_JOB_ID": "100", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "100"},
            **{"SLURM_RESTART_COUNT": str(restarts), "SLURM_JOB_NUM_NODES": str(nodes)},
            "SLURM_JOB_CPUS_PER_NODE": f"1(x{nodes})",
        }
        command = [sys.executable, "-m", "sweep.executors.slurm_job", str(self.batch)]
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
        return self.processes[-1]

    def end(self, process: subprocess.Popen[str]) -> int:
        self.said = "".join(process.communicate(timeout=120))
        return process.returncode


@pytest.fixture
def share(tmp_path: Path, fake: FakeSlurm, make: Make) -> Iterator[Share]:
    share = Share(tmp_path, make)
    yield share
    for process in share.processes:
        process.kill()
        process.communicate()
    worlds = list(share.batch.parent.glob("batch-0001_0/worlds/*"))
    eventually(lambda: not any(find_processes(world, WORLD_VARIABLE) for world in worlds))


def statuses(runs: list[Run]) -> list[str]:
    return [run.status() for run in runs]


def attempts(run: Run) -> list[str]:
    return [each["status"] for each in run.state()["attempts"]]


def test_a_job_trains_its_share_and_what_fails_is_alone_with_that(share: Share) -> None:
    runs = share.runs("done", "killed", "cleanly", "done")
    assert share.end(share.start()) == 1
    assert statuses(runs) == [run_directory.DONE, run_directory.FAILED, run_directory.FAILED, run_directory.DONE], (
        share.said
    )
    assert runs[0].state()["attempts"][0]["job"] == "100_0"
    # of this machine the allocation has one core, and nobody keeps it to that
    assert {run.state()["shared_cores"] for run in runs} == {len(os.sched_getaffinity(0)) > 1}
    worlds = [run.state()["attempts"][0]["world"] for run in runs]
    assert worlds[0] == worlds[1] != worlds[2] == worlds[3]


def test_a_job_that_is_sent_away_is_queued_again_for_what_is_missing(share: Share, fake: FakeSlurm) -> None:
    runs = share.runs("done", "wait", "done")
    process = share.start()
    eventually(lambda: statuses(runs) == [run_directory.DONE, run_directory.RUNNING, run_directory.PENDING])
    eventually(lambda: (runs[1].attempt(1) / run_directory.STDOUT).read_text())  # a rank trains it
    process.send_signal(signal.SIGUSR2)
    assert share.end(process) == 0
    assert statuses(runs) == [run_directory.DONE, run_directory.PREEMPTED, run_directory.PENDING], share.said
    assert runs[1].state()["reason"] == "near its time limit of 5 minutes; saved"
    assert "requeue 100_0" in fake.asked("scontrol")
    runs[1].path("does").write_text("done")
    assert share.end(share.start(restarts=1)) == 0
    assert [attempts(run) for run in runs] == [
        [run_directory.DONE],
        [run_directory.PREEMPTED, run_directory.DONE],
        [run_directory.DONE],
    ]


def test_a_run_sent_away_too_often_is_given_up_and_the_others_go_on(share: Share, fake: FakeSlurm) -> None:
    runs = share.runs("wait", "done", requeues=0)
    process = share.start()
    eventually(lambda: attempts(runs[0]) and (runs[0].attempt(1) / run_directory.STDOUT).read_text())
    process.send_signal(signal.SIGUSR2)
    assert share.end(process) == 0
    assert statuses(runs) == [run_directory.TIMEOUT, run_directory.PENDING] and "requeue 100_0" in fake.asked(
        "scontrol"
    )
    assert "hydra.launcher.requeues=0" in runs[0].state()["reason"]
    assert share.end(share.start(restarts=1)) == 0
    assert statuses(runs) == [run_directory.TIMEOUT, run_directory.DONE] and len(attempts(runs[0])) == 1


def test_scancel_leaves_nothing_and_a_restart_goes_on(share: Share) -> None:
    runs = share.runs("deaf", "done")
    process = share.start()
    eventually(lambda: attempts(runs[0]) and (runs[0].attempt(1) / run_directory.STDOUT).read_text())
    process.send_signal(signal.SIGTERM)
    assert share.end(process) == 1
    assert statuses(runs) == [run_directory.CANCELLED, run_directory.PENDING], share.said
    runs[0].path("does").write_text("done")
    assert share.end(share.start(restarts=1)) == 0
    assert attempts(runs[0]) == [run_directory.PREEMPTED, run_directory.DONE] and attempts(runs[1]) == [
        run_directory.DONE
    ]


def test_what_is_taken_out_is_ended_or_never_begun(share: Share) -> None:
    runs = share.runs("wait", "done", "done", "done")
    process = share.start()
    eventually(lambda: attempts(runs[0]) and (runs[0].attempt(1) / run_directory.STDOUT).read_text())
    known = read_json(runs[3].path(run_directory.JOB)) or {}
    write_json(runs[3].path(run_directory.JOB), {**known, "batch": "batch-0002"})  # somebody has submitted it anew
    assert set(find_in_shared_jobs(runs[:2])) == set(runs[:2])
    cancel_unwatched(runs[:2], "cancelled by me")
    assert share.end(process) == 1
    assert statuses(runs) == [
        run_directory.CANCELLED,
        run_directory.CANCELLED,
        run_directory.DONE,
        run_directory.PENDING,
    ], share.said
    assert runs[0].state()["reason"].startswith("cancelled by me") and attempts(runs[1]) == []


def test_a_run_that_was_submitted_anew_is_left_to_its_new_job(share: Share) -> None:
    runs = share.runs("done", "done")
    known = read_json(runs[0].path(run_directory.JOB)) or {}
    write_json(runs[0].path(run_directory.JOB), {**known, "batch": "batch-0002"})
    assert share.end(share.start()) == 0
    assert statuses(runs) == [run_directory.PENDING, run_directory.DONE], share.said


def test_two_jobs_do_not_compute_the_same_share(share: Share) -> None:
    runs = share.runs("wait")
    first = share.start()
    eventually(lambda: attempts(runs[0]) and (runs[0].attempt(1) / run_directory.STDOUT).read_text())
    second = share.start()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(2)
    second.send_signal(signal.SIGTERM)
    assert share.end(second) == 1 and "another job computes these runs" in share.said
    first.send_signal(signal.SIGTERM)
    assert share.end(first) == 1 and len(attempts(runs[0])) == 1


def test_ranks_on_other_nodes_are_reached_through_a_port(share: Share, fake: FakeSlurm) -> None:
    """Their output, an order to save, a signal; a stranger who does not know the key is not heard and stops nobody."""
    runs = share.runs("wait", "signals", "done", workers=2, nodes=2)
    for run in runs[1:2]:
        known = read_json(run.path(run_directory.JOB)) or {}
        write_json(run.path(run_directory.JOB), {**known, "task": {**known["task"], "limits": {"hang_s": 1.0}}})
    process = share.start(nodes=2)
    world = share.batch.parent / "batch-0001_0" / "worlds" / "world-1"
    eventually((world / WORLD_CONTROL).exists)
    assert stat.S_IMODE((world / WORLD_CONTROL).stat().st_mode) == 0o600
    control = read_json(world / WORLD_CONTROL) or {}
    address = tuple(control["address"])
    with socket.create_connection(address), pytest.raises(AuthenticationError):  # one is silent, one guesses
        Client(address, "AF_INET", authkey=b"guessed")
    log = runs[0].attempt(1) / run_directory.STDOUT
    eventually(lambda: runs[0].attempt_numbers() and log.exists() and len(log.read_text().splitlines()) == 2)
    assert sorted(log.read_text().splitlines()) == ["rank 0 of [0, 1] on []", "rank 1 of [0, 1] on []"]
    cancel_unwatched(runs[:1], "cancelled by me")
    assert share.end(process) == 1
    assert statuses(runs) == [run_directory.CANCELLED, run_directory.FAILED, run_directory.DONE], share.said
    assert "dumped" in (runs[1].attempt(1) / run_directory.STDERR).read_text()
    assert runs[1].state()["attempts"][0]["cause"] == failure_causes.HANG
    assert not (world / WORLD_CONTROL).exists()


def test_a_lost_node_ends_the_world_and_the_job_goes_on_elsewhere(share: Share, fake: FakeSlurm) -> None:
    runs = share.runs("killed", "done", workers=2, nodes=2)
    (fake.bin / "scontrol").write_text(
        f'#!/bin/sh\necho "scontrol $*" >> {fake.here}/asked\n[ "$2" != hostnames ] || echo n1 n2\n', encoding="utf-8"
    )
    (fake.bin / "srun").unlink()
    (fake.bin / "srun").write_text('#!/bin/sh\ncase "$*" in *nodelist=n2*) exit 1;; esac\n', encoding="utf-8")
    (fake.bin / "srun").chmod(0o755)
    process = share.start(nodes=2)
    assert share.end(process) == 0
    assert statuses(runs) == [run_directory.PREEMPTED, run_directory.PENDING], share.said
    assert runs[0].state()["reason"] == "lost n2: nothing can be started there"
    assert "requeue 100_0" in fake.asked("scontrol")
