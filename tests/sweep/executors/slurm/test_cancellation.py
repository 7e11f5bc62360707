"""Jobs of SLURM are ended, or left alone; scripts play its commands (fake_slurm.py)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gradsweep import csv_columns, files, run_directory
from gradsweep.errors import UsageError
from gradsweep.files import write_json
from sweep.__main__ import main
from sweep.attempts.run_task import RunTask
from sweep.directory import completion, requests
from sweep.driver.drive import Drive
from sweep.driver.request_handler import RequestHandler
from sweep.executors.local import SlotExecutor
from sweep.executors.slurm import queue
from sweep.executors.slurm.executor import SlurmRunExecutor
from sweep.launchers.launchers import SubmittedRuns
from sweep.settings.sweep import SweepSettings
from tests.conftest import eventually
from tests.sweep.fake_slurm import FakeSlurm, Make, began, executor, fake, make, polled, quick, read, submit
from tests.sweep.fakes import resolved

__all__ = ["executor", "fake", "make", "quick"]


def test_cancel_waits_until_slurm_has_ended_it(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    jobs = submit(executor, make("a"), make("b"), make("c", 2))
    fake.queue(_100_0="CANCELLED", _100_1="PENDING", _200_0="CANCELLED")
    executor.cancel([jobs[0], jobs[2]], "enough")
    assert fake.asked("scancel") == ["100_0 200"]  # of an array all of whose jobs are meant, the array
    assert [job.status for job in jobs] == [run_directory.CANCELLED, run_directory.PENDING, run_directory.CANCELLED]
    assert jobs[0].reason == "enough" == jobs[2].task.run.state()["reason"]


def test_who_asks_for_an_end_need_not_wait_for_it(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    task = make("a")
    (job,) = submit(executor, task)
    fake.queue(_100_0="RUNNING")
    began(task, "100_0")
    polled(executor, lambda: job.status == run_directory.RUNNING)
    executor.ask_to_end([job], "enough")
    assert job.status == run_directory.RUNNING
    eventually(lambda: fake.asked("scancel") == ["100"])
    began(task, "100_0", run_directory.CANCELLED, reason="SLURM ended it")
    fake.queue(_100_0="COMPLETING")
    executor.poll_s = 60.0  # nobody waits so long for SLURM to let go of it
    asked = len(fake.asked("squeue"))
    polled(executor, lambda: len(fake.asked("squeue")) > asked)
    assert not job.ended
    fake.queue(_100_0="CANCELLED")
    polled(executor, lambda: job.ended)
    assert (job.status, job.reason) == (run_directory.CANCELLED, "enough")


def plays(fake: FakeSlurm, body: str) -> None:
    """Have scancel do that, after it has noted that it was called."""
    note = f'echo "scancel $*" >> "{fake.here}/asked"'
    (fake.bin / "scancel").write_text(f"#!/bin/sh\n{note}\n{body}\n", encoding="utf-8")


def test_a_silent_slurm_is_asked_again_until_it_ends_a_job(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    (job,) = submit(executor, make("a"))
    fake.queue(_100_0="PENDING")
    plays(fake, "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    executor.ask_to_end([job], "enough")
    polled(executor, lambda: len(fake.asked("scancel")) > 2)
    assert not job.ended
    plays(fake, f"echo '100_0|name|CANCELLED|None' > {fake.here}/queue; echo 'Job is already completed' >&2; exit 1")
    polled(executor, lambda: job.ended)
    assert (job.status, job.reason) == (run_directory.CANCELLED, "enough")
    asked = len(fake.asked("scancel"))
    for _ in range(10):
        time.sleep(executor.poll_s)
        executor.poll()
    assert len(fake.asked("scancel")) == asked
    said = "SLURM does not end jobs (scancel: Unable to contact slurm controller); it is asked again every 0.05 s\n"
    assert capsys.readouterr().err == said, "once"


def test_a_scancel_that_hangs_holds_nothing_up(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, tmp_path: Path
) -> None:
    """Other runs are looked after, and there is one of it, whatever else is asked for meanwhile."""
    tasks = [make("a"), make("b"), make("c")]
    first, second, third = submit(executor, *tasks)
    fake.queue(_100_0="RUNNING", _100_1="RUNNING", _100_2="RUNNING")
    plays(fake, f"until [ -e {tmp_path}/over ]; do sleep 0.01; done; exit 1")
    executor.ask_to_end([first], "enough")
    executor.ask_to_end([second], "enough")
    began(tasks[2], "100_2", run_directory.DONE)
    polled(executor, lambda: third.status == run_directory.DONE)
    eventually(lambda: fake.asked("scancel") == ["100_0"])
    assert not first.ended
    plays(fake, f"printf '100_0|n|CANCELLED|None\\n100_1|n|CANCELLED|None\\n' > {fake.here}/queue")
    (tmp_path / "over").touch()
    polled(executor, lambda: first.ended and second.ended)


def test_a_command_that_hangs_is_killed(fake: FakeSlurm, tmp_path: Path) -> None:
    plays(fake, f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    with pytest.raises(queue.SlurmSilent, match="^scancel did not answer for 2 s$"):
        queue.run_command("scancel", "100_0", timeout=2.0)
    pid = int((tmp_path / "pid").read_text(encoding="ascii"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_who_asks_a_launcher_to_cancel_holds_up_nobody_else(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is heeded when its runs have ended; meanwhile another one comes to its end."""
    good, bad = make("good"), make("bad")
    fake.queue(_100_0="RUNNING", _100_1="RUNNING")
    asked = requests.send_request(executor.folder, requests.Request(requests.CANCEL, ("bad",), "me"))
    look, seen = executor.poll, []

    def poll() -> None:
        if (good.run.status(), fake.asked("scancel")) == (run_directory.PENDING, ["100_1"]):
            write_json(good.run.path(run_directory.RESULT), {"status": run_directory.DONE, "accuracy": 0.9})
            began(good, "100_0", run_directory.DONE)
        elif executor.jobs[0].status == run_directory.DONE and bad.run.status() == run_directory.PENDING:
            seen.append(asked.exists())
            fake.queue(_100_0="COMPLETED", _100_1="CANCELLED")
        look()

    monkeypatch.setattr(executor, "poll", poll)
    monkeypatch.setattr(executor, "_wait_for_end", lambda *args: pytest.fail("it waits"))
    tasks = {task.run: task for task in (good, bad)}
    points = {run: resolved({"epochs": 9, "max_steps": None}) for run in tasks}
    drive = Drive(executor.folder, points, lambda run, point: tasks[run], executor, SweepSettings())
    drive.run(RequestHandler(drive))
    assert set(seen) == {True} and not asked.exists()
    state = bad.run.state()
    assert (good.run.status(), state["status"], state["reason"]) == (
        run_directory.DONE,
        run_directory.CANCELLED,
        "cancelled by me",
    )
    assert state["left_out"] is True


def test_a_refused_resume_of_another_shell_leaves_the_running_jobs_alone(
    executor: SlurmRunExecutor,
    fake: FakeSlurm,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, failed = make("good"), make("failed")
    fake.queue(_100_0="RUNNING")
    asked = requests.send_request(executor.folder, requests.Request(requests.RESUME, ("failed",), "me"))
    look = executor.poll

    def refuse(*_: object) -> None:
        raise UsageError("hydra/launcher=slurm: a limit of the site; nothing was submitted")

    def poll() -> None:
        monkeypatch.setattr(executor, "submit_runs", refuse)
        if not asked.exists():
            write_json(good.run.path(run_directory.RESULT), {"status": run_directory.DONE, "accuracy": 0.9})
            began(good, "100_0", run_directory.DONE)
        look()

    monkeypatch.setattr(executor, "poll", poll)
    monkeypatch.setattr("sweep.driver.request_handler.load_point", lambda run: points[run])
    points = {task.run: resolved({"epochs": 9, "max_steps": None}) for task in (good, failed)}
    tasks = {good.run: good, failed.run: failed}
    mine = {good.run: points[good.run]}
    drive = Drive(executor.folder, mine, lambda run, point: tasks[run], executor, SweepSettings())
    drive.run(RequestHandler(drive))
    assert "a limit of the site; nothing was submitted" in capsys.readouterr().out
    assert fake.asked("scancel") == [] and good.run.status() == run_directory.DONE


def test_a_hopeless_run_is_ended_while_the_others_are_looked_after(
    executor: SlurmRunExecutor,
    fake: FakeSlurm,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SLURM may take minutes to end a job; the launcher of a sweep with sweep.prune does not stand still for it."""
    pytest.importorskip("optuna")
    good, bad = make("good"), make("bad")
    monkeypatch.setattr(executor, "_wait_for_end", lambda *args: pytest.fail("it waits"))
    look, seen = executor.poll, []

    def epochs(task: RunTask, accuracy: float, most: int) -> None:
        rows = [{"epoch": epoch, "test_accuracy": accuracy} for epoch in range(1, most + 1)]
        files.append_rows(task.run.path(run_directory.EPOCHS), csv_columns.EPOCH_COLUMNS, rows)

    def poll() -> None:
        """What SLURM does next, when it has been seen what it did."""
        if not fake.asked("scancel") and bad.run.status() == run_directory.PENDING:
            fake.queue(_100_0="COMPLETED", _100_1="RUNNING")
            epochs(good, 0.9, 9)
            write_json(good.run.path(run_directory.RESULT), {"status": run_directory.DONE, "accuracy": 0.9})
            began(good, "100_0", run_directory.DONE)
            epochs(bad, 0.1, 3)
            began(bad, "100_1")
        elif fake.asked("scancel"):
            seen.append(executor.jobs[1].status)
            if len(seen) > 3:
                began(bad, "100_1", run_directory.CANCELLED, reason="SLURM ended it")
                fake.queue(_100_0="COMPLETED", _100_1="CANCELLED")
        look()

    monkeypatch.setattr(executor, "poll", poll)
    settings = SweepSettings(prune="median", prune_startup=1)
    tasks = {task.run: task for task in (good, bad)}
    points = {run: resolved({"epochs": 9, "max_steps": None}) for run in tasks}
    Drive(executor.folder, points, lambda run, point: tasks[run], executor, settings).run()
    assert seen[:4] == [run_directory.RUNNING] * 4 and fake.asked("scancel") == ["100"]
    assert (good.run.status(), bad.run.status()) == (run_directory.DONE, run_directory.PRUNED)
    assert bad.run.state()["attempts"][0]["status"] == run_directory.PRUNED
    out = capsys.readouterr().out
    assert "pruned  bad" in out and "cancelled" not in out


def test_jobs_of_an_array_that_are_not_ours_are_not_cancelled(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    tasks = [make("a"), make("b")]
    submit(executor, *tasks)
    fake.queue(_100_0="PENDING", _100_1="PENDING")
    again = SlurmRunExecutor(executor.folder, 0.05)
    submit(again, tasks[0])  # a smaller grid
    again.cancel(again.jobs, "enough", grace_s=0)
    assert fake.asked("scancel") == ["100_0"]


def test_preempt_all_signals_what_runs_and_cancels_what_waits(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    tasks = [make("a"), make("b")]
    submit(executor, *tasks)
    began(tasks[0], "100_0")
    fake.queue(_100_0="RUNNING", _100_1="CANCELLED")
    executor.preempt_all()
    assert fake.asked("scancel") == ["100_1", "--signal=USR1 --batch 100_0"]
    assert tasks[1].run.status() == run_directory.CANCELLED


def test_left_jobs_are_not_cancelled(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    submit(executor, make("a"))
    assert executor.active and executor.can_leave
    executor.leave()
    executor.cancel_all("the launcher has ended")
    assert not executor.active and fake.asked("scancel") == []


def test_this_machine_does_not_compute_what_slurm_still_has(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, tmp_path: Path
) -> None:
    task = make("a")
    submit(executor, task)
    fake.queue(_100_0="PENDING")
    local = SlotExecutor(tmp_path / "sweep", [0], refuse=SubmittedRuns().refuse)
    with pytest.raises(UsageError, match="cluster=local: SLURM still has runs of this sweep, such as a .job 100_0."):
        completion.list_missing([task.run], local.reconcile)
    fake.queue(_100_0="CANCELLED")
    assert completion.list_missing(
        [task.run], SlotExecutor(tmp_path / "sweep", [0], refuse=SubmittedRuns().refuse).reconcile
    ) == [task.run]


def test_the_command_ends_jobs_whose_launcher_died_before_it_noted_them(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between sbatch and the note of its answer: SLURM alone knows which job it is."""
    monkeypatch.setattr("sweep.launchers.schedulers.CANCELLED_S", 0.0)  # the played scancel ends nothing
    tasks = [make("a"), make("b")]
    submit(executor, *tasks)
    path = executor.folder / "slurm" / "batch-0001.json"
    write_json(path, {**read(path), "id": None})
    for task in tasks:
        write_json(task.run.path("job.json"), {**read(task.run.path("job.json")), "id": None})
    fake.queue(_100_0=f"PENDING,None,{read(path)['name']}", _100_1=f"PENDING,None,{read(path)['name']}")
    (fake.here / "down").touch()
    assert main(["cancel", str(executor.folder)]) == 2  # who does not answer has them still
    assert [task.run.status() for task in tasks] == [run_directory.PENDING] * 2
    (fake.here / "down").unlink()
    assert main(["cancel", str(executor.folder)]) == 0
    assert fake.asked("scancel") == ["100_0 100_1"]
    assert [task.run.status() for task in tasks] == [run_directory.CANCELLED] * 2
    assert read(tasks[1].run.path("job.json"))["id"] == "100_1"
