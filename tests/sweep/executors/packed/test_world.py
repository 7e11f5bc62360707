"""What the launcher makes of a world of many runs that dies, with ranks that are played (fake_world.py)."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.errors import UsageError
from sweep.attempts.run_task import RunTask
from sweep.console.events import Events
from sweep.driver.drive import Drive
from sweep.executors.local import SlotJob
from sweep.executors.packed.attempt import PackedAttempt
from sweep.executors.packed.executor import PackedExecutor
from sweep.launchers.launchers import check_run
from sweep.settings.launcher import parse_options
from sweep.settings.sweep import SweepSettings
from sweep.system.processes import WORLD_VARIABLE, find_processes
from tests.conftest import ROOT, eventually
from tests.sweep.fakes import read_log, resolved

FAKE = ROOT / "tests" / "sweep" / "fake_world.py"
Make = Callable[..., RunTask]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def task(name: str, does: str = "done", ranks: int = 1, **environment: str) -> RunTask:
        directory = tmp_path / "runs" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "does").write_text(does)
        return RunTask(str(directory), ranks, 1, [sys.executable, str(FAKE), "{workers}"], environment)

    return task


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackedExecutor]:
    """Four cores, whatever the machine has."""
    monkeypatch.setattr("sweep.system.processes.prepare_child", lambda cores, parent: None)
    executor = PackedExecutor(tmp_path, [0, 1, 2, 3])
    yield executor
    executor.cancel_all("the test has ended")


def submit(executor: PackedExecutor, *tasks: RunTask) -> list[SlotJob]:
    return executor.submit_runs(tasks)  # type: ignore[return-value]


def until(executor: PackedExecutor, condition: Callable[[], object]) -> object:
    def asked() -> object:
        executor.poll()
        return condition()

    return eventually(asked)


def attempts(job: SlotJob) -> list[str]:
    return [attempt["status"] for attempt in job.task.run.state()["attempts"]]


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def worlds(executor: PackedExecutor) -> int:
    return len(list((Path(executor.folder) / "worlds").iterdir()))


def test_a_killed_rank_fails_its_run_and_those_beside_it_begin_again(executor: PackedExecutor, make: Make) -> None:
    bad, beside = submit(executor, make("bad", "killed", 2), make("beside", "wait"))
    until(executor, lambda: bad.ended and len(attempts(beside)) == 2)
    assert (bad.status, bad.reason, bad.cause) == (run_directory.FAILED, "a rank was killed by SIGKILL", "killed")
    assert attempts(bad) == [run_directory.FAILED] and attempts(beside) == [
        run_directory.PREEMPTED,
        run_directory.RUNNING,
    ]
    assert "a run beside it failed" in beside.task.run.state()["attempts"][0]["reason"]
    assert isinstance(beside.attempt, PackedAttempt) and not beside.attempt.suspect
    first = Path(bad.task.run.state()["attempts"][0]["world"])
    assert first.name == "world-1" and not find_processes(first, WORLD_VARIABLE)
    until(executor, lambda: beside.attempt.world.groups)
    executor.preempt_all()
    until(executor, lambda: beside.ended)
    assert (beside.status, beside.reason) == (run_directory.PREEMPTED, "saved") and worlds(executor) == 2


def test_both_attempts_of_a_run_whose_world_has_died_are_told_of(
    executor: PackedExecutor, make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = {task.run: task for task in (make("bad", "killed", 2), make("beside", "until"))}
    bad, beside = tasks
    poll = executor.poll

    def look() -> None:
        poll()
        if len(beside.state()["attempts"]) == 2:
            beside.path("go").touch()

    executor.poll = look  # type: ignore[method-assign]
    config = {"epochs": 1, "max_steps": None}
    Drive(
        tmp_path,
        dict.fromkeys(tasks, resolved(config)),
        lambda run, point: tasks[run],
        executor,
        SweepSettings(retries=0),
        events=Events(tmp_path),
    ).run()
    told = [json.loads(line) for line in (tmp_path / run_directory.EVENTS).read_text().splitlines()]
    about = [event for event in told if event.get("run") == "beside"]
    assert [(event["event"], event["attempt"]) for event in about] == [
        ("run_started", 1),
        ("run_preempted", 1),
        ("run_started", 2),
        ("run_ended", 2),
    ]
    first, second = beside.state()["attempts"]
    assert (
        about[1]["reason"] == first["reason"] and f"preempted  beside  ({first['reason']})" in capsys.readouterr().out
    )
    assert about[3]["seconds"] <= (moment(about[3]["time"]) - moment(first["ended"])).total_seconds()
    assert second["status"] == run_directory.DONE and bad.status() == run_directory.FAILED


def test_where_nobody_knows_whose_fault_it_was_each_is_tried_alone(executor: PackedExecutor, make: Make) -> None:
    """mpirun is killed with all of it: once is forgiven."""
    bad, beside = submit(executor, make("bad", "together"), make("beside", "wait"))
    most = 0

    def second() -> bool:
        """Both have been begun again."""
        nonlocal most
        most = max([most, *(len(world.groups) for world in executor.worlds if world.directory.name != "world-1")])
        return len(attempts(bad)) == len(attempts(beside)) == 2

    until(executor, second)
    assert attempts(bad)[0] == attempts(beside)[0] == run_directory.PREEMPTED
    assert "nobody knows why" in bad.task.run.state()["attempts"][0]["reason"]

    until(executor, lambda: second() and bad.ended and beside.attempt.world.groups)
    executor.preempt_all()
    until(executor, lambda: second() and beside.ended)
    assert most == 1
    assert (bad.status, bad.reason) == (run_directory.FAILED, "the MPI launcher was killed by SIGKILL")
    assert beside.status == run_directory.PREEMPTED and attempts(beside).count(run_directory.PREEMPTED) == 2


def test_an_error_in_some_ranks_ends_the_world_when_the_others_are_saved(executor: PackedExecutor, make: Make) -> None:
    bad, beside = submit(executor, make("bad", "badly", 2), make("beside", "wait"))
    until(executor, lambda: bad.ended and len(attempts(beside)) == 2)
    assert (bad.status, bad.reason) == (run_directory.FAILED, "failed badly")
    assert "saved, it goes on in another" in beside.task.run.state()["attempts"][0]["reason"]


def test_what_all_ranks_report_costs_no_world(executor: PackedExecutor, make: Make) -> None:
    bad, beside, last = submit(executor, make("bad", "cleanly", 2), make("beside", "wait", 2), make("last", "done", 4))
    until(executor, lambda: bad.ended)
    assert (bad.status, bad.reason) == (run_directory.FAILED, "failed cleanly")
    executor.cancel([beside], "enough")
    assert beside.status == run_directory.CANCELLED
    assert beside.reason == beside.task.run.state()["reason"] == "enough; saved"
    until(executor, lambda: last.ended)
    assert last.status == run_directory.DONE and worlds(executor) == 1
    assert sorted(read_log(last.task.run).splitlines()) == [
        f"rank {i} of [0, 1, 2, 3] on [0, 1, 2, 3]" for i in range(4)
    ]


def test_what_does_not_end_when_asked_takes_its_world_down(executor: PackedExecutor, make: Make) -> None:
    deaf, beside = submit(executor, make("deaf", "deaf", 2), make("beside", "wait"))
    until(executor, lambda: len(executor.worlds[0].groups) == 2)
    executor.cancel([deaf], "the test wants it", grace_s=0.3)
    assert (deaf.status, deaf.task.run.state()["reason"]) == (run_directory.CANCELLED, "the test wants it")
    until(executor, lambda: attempts(beside) == [run_directory.PREEMPTED, run_directory.RUNNING])
    assert isinstance(beside.attempt, PackedAttempt) and not beside.attempt.suspect


def test_a_world_that_does_not_come_up_fails_what_it_was_for(executor: PackedExecutor, make: Make) -> None:
    jobs = submit(executor, *[make(name, FAKE_NO_START="1") for name in ("one", "two")], make("good"))
    until(executor, lambda: all(job.ended for job in jobs))
    assert [job.status for job in jobs] == [run_directory.FAILED, run_directory.FAILED, run_directory.DONE]
    assert jobs[0].reason == "the MPI launcher exited with 1"
    assert read_log(jobs[0].task.run, run_directory.STDERR) == "no slots are available\n"


def test_ranks_that_do_not_find_each_other_are_refused(executor: PackedExecutor, make: Make) -> None:
    (job,) = submit(executor, make("run", ranks=2, FAKE_SINGLETONS="1"))
    until(executor, lambda: job.ended)
    assert job.status == run_directory.FAILED
    assert str(job.reason).startswith("mpi.command: the MPI world has 1 rank(s); valid is one that starts 2 of the MPI")


def test_runs_that_are_not_started_alike_have_worlds_of_their_own(executor: PackedExecutor, make: Make) -> None:
    jobs = submit(executor, make("one", FOO="1"), make("two", FOO="2"))
    assert {world.size for world in executor.worlds} == {1} and len(executor.worlds) == 2
    until(executor, lambda: all(job.ended for job in jobs))
    (large,) = submit(executor, make("large", ranks=6, FOO="1"))  # more than there are cores
    until(executor, lambda: large.ended)
    assert large.status == run_directory.DONE and large.task.run.state()["oversubscribed"] is True
    assert {job.status for job in jobs} == {run_directory.DONE}


def test_a_world_ends_with_its_last_run_and_leaves_nothing(executor: PackedExecutor, make: Make) -> None:
    jobs = submit(executor, *[make(str(i)) for i in range(20)])
    (world,) = executor.worlds
    assert world.size == 4
    scratch = Path(world._scratch)
    assert scratch.stat().st_mode & 0o777 == 0o700 and (scratch / "control.json").stat().st_mode & 0o777 == 0o600
    until(executor, lambda: all(job.ended for job in jobs) and not executor.worlds)
    assert all(job.status == run_directory.DONE and attempts(job) == [run_directory.DONE] for job in jobs)
    assert world.process.returncode == 0 and not scratch.exists()
    assert not find_processes(world.directory.absolute(), WORLD_VARIABLE)
    assert executor.slots.leased_cores == []


def test_a_stranger_is_not_listened_to(executor: PackedExecutor, make: Make) -> None:
    (job,) = submit(executor, make("run", "wait"))
    until(executor, lambda: executor.worlds[0].groups)
    (world,) = executor.worlds
    stranger = os.fork()
    if stranger == 0:
        try:
            Client(os.path.join(world._scratch, "s"), "AF_UNIX", authkey=b"guessed")
        except AuthenticationError:
            os._exit(7)
        os._exit(0)
    ended: list[int] = []
    until(executor, lambda: ended or os.waitpid(stranger, os.WNOHANG)[0] and ended.append(stranger) or ended)
    assert len(world.ranks) == 1 and job.status == run_directory.RUNNING


def test_all_ends_at_once(executor: PackedExecutor, make: Make) -> None:
    jobs = submit(executor, make("deaf", "deaf", 3), make("beside", "wait"))
    until(executor, lambda: len(executor.worlds[0].groups) == 2)
    jobs += submit(executor, make("later"))
    world = executor.worlds[0].directory.absolute()
    executor.cancel_all("enough")
    assert [(job.status, job.reason) for job in jobs] == [(run_directory.CANCELLED, "enough")] * 3
    assert not find_processes(world, WORLD_VARIABLE) and not executor.active


def test_runs_share_cores_where_they_may(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.system.processes.prepare_child", lambda cores, parent: None)
    executor = PackedExecutor(tmp_path, [0, 1], share_cores=True)
    try:
        jobs = submit(executor, make("one", "wait", 2), make("two", "wait", 2))
        until(executor, lambda: len(executor.worlds[0].groups) == 2)
        assert len(executor.worlds) == 1 and executor.worlds[0].size == 4
        executor.preempt_all()
        until(executor, lambda: all(job.ended for job in jobs))
        assert "on []" in read_log(jobs[0].task.run)  # not pinned
    finally:
        executor.cancel_all("the test has ended")


@pytest.mark.parametrize("pack", ["yes", 1])
def test_pack_is_true_or_false(pack: object) -> None:
    with pytest.raises(UsageError, match=f"sweep.pack={pack}: valid is true or false"):
        SweepSettings(pack=pack).check()  # type: ignore[arg-type]


def test_a_directory_that_is_too_long_for_a_socket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything starts; a sweep that is not packed has no use for a socket."""
    options, config = parse_options({"cluster": "local"}), {"workers": 1}
    monkeypatch.setattr("tempfile.tempdir", "/" + 78 * "x")
    check_run(options, config, SweepSettings(pack=True))
    monkeypatch.setattr("tempfile.tempdir", "/" + 79 * "x")
    check_run(options, config, SweepSettings())
    with pytest.raises(UsageError, match="^TMPDIR=/x*: valid is a path of at most 79 bytes with sweep.pack=true, .*"):
        check_run(options, config, SweepSettings(pack=True))


def test_options_of_slurm_that_are_for_packing_only() -> None:
    config = {"workers": 2, "exchange": {}, "threads_per_worker": 1}
    options = parse_options({"cluster": "slurm", "nodes": 2, "side_by_side": 2})
    with pytest.raises(UsageError, match=r"hydra.launcher.side_by_side=2: valid is 1 with hydra.launcher.nodes=2"):
        check_run(options, config, SweepSettings(pack=True))
    options = parse_options({"cluster": "slurm", "allocations": 3})
    check_run(options, config, SweepSettings(pack=True))
    with pytest.raises(UsageError, match=r"hydra.launcher.allocations=3: valid is 1 without sweep.pack=true"):
        check_run(options, config, SweepSettings())
