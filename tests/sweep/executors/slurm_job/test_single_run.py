"""What runs in an allocation of SLURM (sweep/executors/slurm_job/single_run.py), started as SLURM does; its commands
are played by scripts."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradsweep import failure_causes, files, run_directory
from gradsweep.files import write_json
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.commands.resume import is_wanted
from sweep.executors.slurm_job import job_signals
from sweep.system.job_environment import clean_environment
from sweep.system.processes import find_processes, kill_processes
from sweep.system.slurm_allocation import (
    Allocation,
    _count_physical,
    compute_seconds_left,
    is_preempted,
    parse_cpu_counts,
)
from tests.conftest import ROOT, eventually
from tests.sweep.fake_slurm import FakeSlurm, fake

pytestmark = pytest.mark.thorough

__all__ = ["fake"]

# $3 is the directory of the run
SUCCEED = """echo '{"status": "done"}' > "$3/result.json" """
SAVES = """trap 'echo "{\\"status\\": \\"preempted\\"}" > "$GRADSWEEP_ATTEMPT/stopped.json"; exit 0' USR1
touch "$3/began"; while sleep 0.05; do :; done"""
SLEEPS = 'touch "$3/began"; sleep 1000 & sleep 1000'

Start = Callable[..., "subprocess.Popen[str]"]


class Job:
    """One run in a batch, and the processes that play its jobs."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder / "sweep" / run_directory.RUNS / "a")
        self.batch = folder / "sweep" / "slurm" / "batch-0001.json"
        self.run.directory.mkdir(parents=True)
        self.batch.parent.mkdir()
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self,
        script: str,
        restarts: int = 0,
        cpus: str = "1",
        resources: dict[str, Any] | None = None,
        origin: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        launcher = {"cluster": "slurm", "poll_s": 0.1, "time": 5, **options}
        task = RunTask(
            str(self.run.directory), 1, 1, ["sh", "-c", script], {}, launcher=launcher, origin=dict(origin or {})
        )
        job = {"cluster": "slurm", "id": None, "batch": "batch-0001", "index": 0, "task": dataclasses.asdict(task)}
        write_json(self.run.path("job.json"), job)
        write_json(self.batch, {"name": "x", "runs": ["a"], "resources": resources or {}})
        environment = {
            **os.environ,
            **{"PYTHONPATH": str(ROOT), "SLURM_ARRAY_JOB_ID": "100", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "100"},
            **{"SLURM_RESTART_COUNT": str(restarts), "SLURM_JOB_CPUS_PER_NODE": cpus, "SLURM_JOB_NUM_NODES": "1"},
            "SLURMD_NODENAME": "n1",
        }
        command = [sys.executable, "-m", "sweep.executors.slurm_job", str(self.batch)]
        self.processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return self.processes[-1]

    def end(self, process: subprocess.Popen[str]) -> int:
        self.said = process.communicate(timeout=120)
        return process.returncode

    def began(self, process: subprocess.Popen[str]) -> None:
        eventually(self.run.path("began").exists)

    def attempts(self) -> list[str]:
        return [attempt["status"] for attempt in self.run.state()["attempts"]]


def listens(process: subprocess.Popen[str]) -> bool:
    """Whether a SIGTERM would not end it."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.fixture
def job(tmp_path: Path, fake: FakeSlurm) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    for process in job.processes:
        process.kill()
        process.communicate()
    for number in job.run.attempt_numbers():  # SLURM would
        kill_processes(job.run.attempt(number).absolute())


def test_a_run_is_computed_and_its_job_noted(job: Job) -> None:
    assert job.end(job.start(SUCCEED)) == 0
    state = job.run.state()
    assert state["status"] == run_directory.DONE
    assert state["attempts"][0]["job"] == "100_0" and state["attempts"][0]["restarts"] == 0


def test_its_attempt_says_what_it_was_computed_on_not_what_it_was_submitted_from(job: Job) -> None:
    origin = {"command": "c", "mpi": "of the login node", "calibration": {"host": "login"}}
    assert job.end(job.start(SUCCEED, origin=origin)) == 0
    (known,) = job.run.records()
    assert known["command"] == "c" and known["mpi"] == "sh"
    assert known["host"] == known["calibration"]["host"] == socket.gethostname()
    assert known["calibration"]["loop_mops"] > 0
    assert known["environment"]["SLURM_JOB_ID"] == "100"


def test_a_failed_run_fails_for_slurm_too(job: Job) -> None:
    assert job.end(job.start("exit 3")) == 1
    assert job.run.state()["reason"] == "the MPI launcher exited with 3"


def test_an_mpirun_that_lost_a_node_and_exits_with_0_has_failed(job: Job) -> None:
    assert job.end(job.start("exit 0")) == 1
    assert job.run.status() == run_directory.FAILED


def test_near_its_time_limit_a_run_is_saved_and_queued_again(job: Job, fake: FakeSlurm) -> None:
    process = job.start(SAVES)
    job.began(process)
    process.send_signal(signal.SIGUSR2)
    assert job.end(process) == 0
    assert job.run.state()["reason"] == "near its time limit of 5 minutes; saved"
    assert job.run.status() == run_directory.PREEMPTED
    assert "requeue 100_0" in fake.asked("scontrol")
    assert job.end(job.start(SUCCEED, restarts=1)) == 0
    assert job.attempts() == [run_directory.PREEMPTED, run_directory.DONE]


def test_how_often_is_limited(job: Job, fake: FakeSlurm) -> None:
    for restarts, status in ((0, run_directory.PREEMPTED), (1, run_directory.TIMEOUT)):
        job.run.path("began").unlink(missing_ok=True)
        process = job.start(SAVES, restarts, requeues=1)
        job.began(process)
        process.send_signal(signal.SIGUSR2)
        assert job.end(process) == (status == run_directory.TIMEOUT)
        assert job.run.status() == status
    assert fake.asked("scontrol").count("requeue 100_0") == 1
    assert "out of time 2 times; hydra.launcher.requeues=1" in job.run.state()["reason"]
    assert job.attempts() == [run_directory.PREEMPTED, run_directory.PREEMPTED]
    assert job.end(job.start(SUCCEED, restarts=2, requeues=1)) == 1  # somebody has queued it once more
    assert job.run.status() == run_directory.TIMEOUT


def test_a_preemption_is_told_from_a_time_limit(job: Job, fake: FakeSlurm) -> None:
    (fake.here / "job").write_text("JobState=RUNNING PreemptTime=2026-01-01T00:00:00 EndTime=x", encoding="utf-8")
    process = job.start(SAVES)
    job.began(process)
    process.send_signal(signal.SIGTERM)  # what sites that send no USR2 announce it by
    assert job.end(process) == 0
    assert job.run.state()["reason"] == "preempted by SLURM; saved"
    assert "requeue 100_0" in fake.asked("scontrol")


def test_a_run_that_slurm_does_not_queue_again_has_failed_and_may_be_tried_again(job: Job, fake: FakeSlurm) -> None:
    (fake.here / "once").touch()
    process = job.start(SAVES)
    job.began(process)
    process.send_signal(signal.SIGUSR2)
    assert job.end(process) == 1
    state = job.run.state()
    refused = "SLURM did not queue it again: Requested operation is presently disabled"
    assert (state["status"], state["attempts"][0]["cause"]) == (run_directory.FAILED, failure_causes.LOST)
    assert state["reason"] == f"near its time limit of 5 minutes; saved; {refused}"
    assert is_wanted(job.run, everything=False, failed=True)


def test_a_run_is_queued_again_if_slurm_ends_scontrol_with_the_job(job: Job, fake: FakeSlurm) -> None:
    (fake.here / "ends").touch()
    process = job.start(SAVES)
    job.began(process)
    process.send_signal(signal.SIGUSR2)
    assert job.end(process) == 0
    state = job.run.state()
    assert (state["status"], state["attempts"][0]["cause"]) == (run_directory.PREEMPTED, failure_causes.LOST)
    assert is_wanted(job.run, everything=False, failed=True), "SLURM may have ended it before it was asked"


@pytest.mark.parametrize(("preempted", "also_mpirun"), [(True, False), (True, True), (False, True)])
def test_what_a_preemption_without_notice_has_ended_was_ended_by_a_fault(
    job: Job, fake: FakeSlurm, preempted: bool, also_mpirun: bool
) -> None:
    """Not by somebody who did not want the run: `resume --failed` takes it up, where SLURM does not."""
    when = "2026-01-01T00:00:00" if preempted else "None"
    (fake.here / "job").write_text(f"JobState=COMPLETING PreemptTime={when} EndTime=x", encoding="utf-8")
    process = job.start(SLEEPS)
    job.began(process)
    eventually(lambda: job.run.status() == run_directory.RUNNING)
    process.send_signal(signal.SIGTERM)
    if also_mpirun:  # which may then have ended before the job has heard of it
        os.kill(job.run.state()["attempts"][0]["pid"], signal.SIGTERM)
    assert job.end(process) == 1
    state = job.run.state()
    assert (state["status"], state["attempts"][0]["cause"]) == (
        run_directory.CANCELLED,
        failure_causes.LOST if preempted else None,
    )
    assert state["reason"].startswith("SLURM preempted it" if preempted else "SLURM ended it")
    assert is_wanted(job.run, everything=False, failed=True) == preempted
    assert len([asked for asked in fake.asked("scontrol") if asked.startswith("show job")]) == 1


def test_an_mpirun_that_hears_of_scancel_first_has_not_failed(job: Job, fake: FakeSlurm) -> None:
    process = job.start(SLEEPS)
    job.began(process)
    eventually(lambda: job.run.status() == run_directory.RUNNING)
    os.kill(job.run.state()["attempts"][0]["pid"], signal.SIGTERM)
    time.sleep(0.4)  # in which the job has seen that it is gone
    process.send_signal(signal.SIGTERM)
    assert job.end(process) == 1
    assert (job.run.status(), job.run.state()["reason"]) == (run_directory.CANCELLED, job_signals.ENDED)


def test_asked_by_the_launcher_a_run_stops_and_stays(job: Job, fake: FakeSlurm) -> None:
    process = job.start(SAVES)
    job.began(process)
    process.send_signal(signal.SIGUSR1)
    assert job.end(process) == 0
    assert (job.run.status(), job.run.state()["reason"]) == (run_directory.PREEMPTED, "asked to stop; saved")
    assert not [asked for asked in fake.asked("scontrol") if "requeue" in asked]


def test_ranks_that_do_not_listen_yet_are_preempted_all_the_same(job: Job, fake: FakeSlurm) -> None:
    process = job.start(SLEEPS)
    job.began(process)
    process.send_signal(signal.SIGUSR2)
    assert job.end(process) == 0
    assert job.run.state()["reason"] == "near its time limit of 5 minutes; before it had begun"
    assert "requeue 100_0" in fake.asked("scontrol")


def test_scancel_leaves_nothing(job: Job) -> None:
    process = job.start(SLEEPS)
    job.began(process)
    process.send_signal(signal.SIGTERM)
    assert job.end(process) == 1
    assert job.run.status() == run_directory.CANCELLED
    assert not find_processes(job.run.attempt(1).absolute())


@pytest.mark.parametrize("left", ["nothing", run_directory.RESULT, run_directory.STOPPED])
def test_a_job_that_slurm_restarts_settles_what_was_left(job: Job, left: str) -> None:
    job.run.attempt(1).mkdir()
    attempt = {"number": 1, "status": run_directory.RUNNING, "job": "100_0"}
    write_json(job.run.path(run_directory.STATE), {"status": run_directory.RUNNING, "attempts": [attempt]})
    if left == run_directory.RESULT:
        write_json(job.run.path(run_directory.RESULT), {"status": "done"})
    elif left == run_directory.STOPPED:
        write_json(job.run.attempt(1) / run_directory.STOPPED, {"reason": "saved"})
    assert job.end(job.start(SUCCEED + '; touch "$3/began"', restarts=1)) == 0
    assert job.run.status() == run_directory.DONE
    assert job.attempts() == (
        [run_directory.DONE] if left == run_directory.RESULT else [run_directory.PREEMPTED, run_directory.DONE]
    )
    assert job.run.path("began").exists() == (left != run_directory.RESULT)
    first = job.run.state()["attempts"][0]
    assert first.get("cause") == (failure_causes.LOST if left == "nothing" else None)


def test_what_was_cancelled_and_runs_again_was_preempted(job: Job) -> None:
    job.run.attempt(1).mkdir()
    attempt = {"number": 1, "status": run_directory.CANCELLED, "job": "100_0"}
    write_json(job.run.path(run_directory.STATE), {"status": run_directory.CANCELLED, "attempts": [attempt]})
    assert job.end(job.start(SUCCEED, restarts=1)) == 0
    assert job.attempts() == [run_directory.PREEMPTED, run_directory.DONE]


def test_a_run_that_another_job_computes_is_left_alone(job: Job) -> None:
    with job.run.path(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = job.start(SUCCEED)
        eventually(lambda: listens(process))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert job.end(process) == 1
    assert "another job computes it" in job.said[1]
    assert job.run.status() == run_directory.PENDING and not job.run.path(run_directory.RESULT).exists()


def test_a_job_whose_run_was_submitted_anew_does_nothing(job: Job) -> None:
    process = job.start(SUCCEED)
    job.end(process)
    job.run.path(run_directory.RESULT).unlink()
    known = files.read_json(job.run.path("job.json")) or {}
    write_json(job.run.path("job.json"), {**known, "batch": "batch-0002"})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "1"}
    command = [sys.executable, "-m", "sweep.executors.slurm_job", str(job.batch)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "submitted anew" in done.stderr
    assert not job.run.path(run_directory.RESULT).exists()


def test_a_job_shows_that_it_is_alive(job: Job) -> None:
    process = job.start(SLEEPS)
    job.began(process)
    eventually(lambda: job.run.status() == run_directory.RUNNING)
    before = job.run.path(run_directory.STATE).stat()
    eventually(lambda: job.run.path(run_directory.STATE).stat().st_mtime_ns > before.st_mtime_ns)
    assert job.run.path(run_directory.STATE).stat().st_ino == before.st_ino


def test_mpirun_and_srun_see_the_allocation_and_no_mpi_around_it() -> None:
    around = {"SLURM_NTASKS": "2", "SRUN_CPUS_PER_TASK": "1", "PMIX_RANK": "0", "SUBMITIT_EXECUTOR": "x", "A": "b"}
    inside = clean_environment(around, allocated=True)
    assert inside == {"SLURM_NTASKS": "2", "SRUN_CPUS_PER_TASK": "1", "A": "b"}
    assert clean_environment(around) == {"A": "b"}


@pytest.mark.parametrize(("text", "counts"), [("", []), ("4", [4]), ("4(x2),2", [4, 4, 2]), ("16(x3)", [16] * 3)])
def test_cpus_of_nodes(text: str, counts: list[int]) -> None:
    assert parse_cpu_counts(text) == counts


def test_what_an_allocation_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6, 7})
    base = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    confined = Allocation.from_environment({**base, "SLURM_JOB_CPUS_PER_NODE": "4"})
    assert (confined.job, confined.nodes, confined.cpus, confined.cores) == ("7", 1, 4, [4, 5, 6, 7])
    # a node that is shared with others, whom nobody keeps from our cores: no rank may be pinned to one
    shared = Allocation.from_environment({**base, "SLURM_JOB_CPUS_PER_NODE": "2"})
    assert (shared.cpus, shared.cores, shared.shared, confined.shared) == (2, [], True, False)
    # hyperthreads that SLURM counts and does not give
    fewer = Allocation.from_environment({**base, "SLURM_JOB_CPUS_PER_NODE": "8"})
    assert (fewer.cpus, fewer.cores) == (4, [4, 5, 6, 7])
    several = Allocation.from_environment({**base, "SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURM_JOB_NUM_NODES": "2"})
    assert (several.cpus, several.cores) == (8, [])
    assert several.build_environment("/tmp/scratch").get("TMPDIR") is None  # the other node has no such directory
    assert confined.build_environment("/tmp/scratch")["TMPDIR"] == "/tmp/scratch"


@pytest.mark.parametrize(
    ("given", "usable", "there", "cores", "shared"),
    [
        (4, 8, 8, 8, True),  # nobody keeps us from the other half
        (8, 8, 8, 8, False),
        (4, 8, 8, 4, True),  # of four cores with two threads each, SLURM counts threads
        (4, 8, 16, 4, False),  # it counts cores, and gives both threads of each
        (2, 8, 16, 4, True),
        (8, 4, 16, 2, False),  # it counts what it does not give
    ],
)
def test_whether_other_jobs_may_be_on_our_cores(
    monkeypatch: pytest.MonkeyPatch, given: int, usable: int, there: int, cores: int, shared: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)))
    monkeypatch.setattr(os, "cpu_count", lambda: there)
    monkeypatch.setattr("sweep.system.slurm_allocation._count_physical", lambda numbers: cores)
    assert Allocation.from_environment({"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": str(given)}).shared == shared


def test_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    for core in range(4):
        (tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(f"{core % 2},{core % 2 + 2}\n")
    assert _count_physical([0, 1, 2, 3], tmp_path) == 2 and _count_physical([0, 2], tmp_path) == 1
    assert _count_physical([8, 9], tmp_path) == 2  # nobody tells


@pytest.mark.parametrize(("cpus", "exclusive", "shared"), [("1", None, True), ("1", True, False), ("99", None, False)])
def test_a_run_whose_cores_others_may_have_is_marked(
    job: Job, monkeypatch: pytest.MonkeyPatch, cpus: str, exclusive: bool | None, shared: bool
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core is never a part of what there is")
    assert job.end(job.start(SUCCEED, cpus=cpus, resources={"exclusive": exclusive})) == 0
    state = job.run.state()
    assert state["shared_cores"] is shared
    assert state["attempts"][0]["cores"] == ([] if cpus == "1" else sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("counted", "exclusive", "shared"),
    [(1, None, True), (1, True, False), (0, None, False)],  # more than there are, or as many
)
def test_a_run_on_cores_that_slurm_counts_more_than_once_is_marked(
    job: Job, fake: FakeSlurm, counted: int, exclusive: bool | None, shared: bool
) -> None:
    there = os.cpu_count() or 1
    (fake.here / "node").write_text(f"NodeName=n1 Arch=x86_64\n   CPUAlloc=1 CPUTot={there + counted}\n")
    assert job.end(job.start(SUCCEED, cpus=str(there), resources={"exclusive": exclusive})) == 0
    state = job.run.state()
    assert state["shared_cores"] is shared
    assert state["attempts"][0]["cores"] == ([] if shared else sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("says", "shared"), [("YES", True), ("NO", False), ("OK", False), ("USER", False)])
def test_a_run_whose_cores_slurm_may_give_to_others_is_marked(
    job: Job, fake: FakeSlurm, says: str, shared: bool
) -> None:
    (fake.here / "job").write_text(f"JobId=100 JobState=RUNNING\n   OverSubscribe={says} Contiguous=0\n")
    assert job.end(job.start(SUCCEED, cpus="99", resources={"exclusive": True})) == 0
    state = job.run.state()
    assert state["shared_cores"] is shared
    assert state["attempts"][0]["cores"] == ([] if shared else sorted(os.sched_getaffinity(0)))
    assert job.run.records()[0]["calibration"]["core_was_free"] is (None if shared else True)


def test_what_slurm_says_of_a_job() -> None:
    assert not is_preempted({}) and not is_preempted({"PreemptTime": "None"})
    assert is_preempted({"PreemptTime": "2026-01-01T00:00:00"})
    assert compute_seconds_left({}) is None and compute_seconds_left({"EndTime": "Unknown"}) is None
    assert (compute_seconds_left({"EndTime": "2020-01-01T00:00:00"}) or 0) < 0
