"""How jobs of SLURM stand and what their end means; scripts play its commands (fake_slurm.py)."""

from __future__ import annotations

import json
import os

import pytest

from gradsweep import failure_causes, files, run_directory
from gradsweep.errors import UsageError
from gradsweep.files import write_json
from sweep.console.events import Events
from sweep.directory import completion
from sweep.directory.sweep_directory import Sweep
from sweep.driver.drive import Drive
from sweep.executors.slurm.executor import SlurmRunExecutor
from sweep.settings.sweep import SweepSettings
from sweep.status.overview import Overview
from tests.conftest import eventually
from tests.sweep.fake_slurm import FakeSlurm, Make, began, executor, fake, make, polled, quick, submit
from tests.sweep.fakes import resolved

__all__ = ["executor", "fake", "make", "quick"]


@pytest.mark.parametrize(
    ("state", "status", "cause", "reason"),
    [
        ("CANCELLED", run_directory.CANCELLED, None, "cancelled in SLURM"),
        ("NODE_FAIL", run_directory.FAILED, failure_causes.LOST, "a node failed"),
        ("PREEMPTED", run_directory.FAILED, failure_causes.LOST, "SLURM preempted it and did not queue it again"),
        ("TIMEOUT", run_directory.TIMEOUT, failure_causes.TIME, "SLURM killed it at its time limit"),
        ("OUT_OF_MEMORY", run_directory.FAILED, failure_causes.MEMORY, "SLURM killed it for want of memory"),
        ("FAILED", run_directory.FAILED, failure_causes.UNKNOWN, "its job ended before it could say why"),
        ("COMPLETED", run_directory.FAILED, failure_causes.UNKNOWN, "its job ended without a result"),
        (
            None,
            run_directory.FAILED,
            failure_causes.LOST,
            "SLURM does not know its job any more, and it has left no result",
        ),
    ],
)
@pytest.mark.parametrize("running", [True, False])
def test_what_becomes_of_a_job_that_vanished(
    executor: SlurmRunExecutor,
    fake: FakeSlurm,
    make: Make,
    state: str | None,
    status: str,
    cause: str | None,
    reason: str,
    running: bool,
) -> None:
    task = make("a")
    (job,) = submit(executor, task)
    if running:
        began(task, "100_0")
    fake.queue(**({"_100_0": state} if state else {}))
    polled(executor, lambda: job.ended)
    assert (job.status, job.cause) == (status, cause)
    known = task.run.state()
    assert known["status"] == status and known["reason"].startswith(reason)
    if running:
        assert known["attempts"][0]["status"] == status and known["attempts"][0]["cause"] == cause


@pytest.mark.parametrize("told", ["nothing", "by its ranks", "by its job", "that it ends"])
def test_a_run_that_was_preempted_and_not_queued_again_is_tried_again(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a site's PreemptMode=CANCEL has it; whatever the job could still say of it."""
    task = make("a")
    saved = "saved at step 7"

    def preempted() -> None:
        if told == "by its ranks":
            task.run.attempt(1).mkdir()
            write_json(task.run.attempt(1) / run_directory.STOPPED, {"reason": saved})
        status = {"by its job": run_directory.PREEMPTED, "that it ends": run_directory.CANCELLED}.get(
            told, run_directory.RUNNING
        )
        began(task, "100_0", status, reason=saved if told == "by its job" else None)
        fake.queue(_100_0="PREEMPTED")

    look = executor.poll

    def poll() -> None:
        if len(fake.arrays()) == 1 and not task.run.state()["attempts"]:
            preempted()
        elif len(fake.arrays()) == 2:
            attempts = [*task.run.state()["attempts"][:1], {"number": 2, "status": run_directory.DONE, "job": "200_0"}]
            write_json(task.run.path(run_directory.STATE), {"status": run_directory.DONE, "attempts": attempts})
        look()

    executor.poll = poll  # type: ignore[method-assign]
    config = {"epochs": 1, "max_steps": None}
    settings = SweepSettings(retries=1, backoff_s=0.0)
    Drive(executor.folder, {task.run: resolved(config)}, lambda run, point: task, executor, settings).run()
    first = task.run.state()["attempts"][0]
    assert (first["status"], first["cause"]) == (run_directory.FAILED, failure_causes.LOST)
    assert first["reason"].startswith(saved) == (told in ("by its ranks", "by its job"))
    assert first["reason"].endswith("SLURM preempted it and did not queue it again")
    assert task.run.status() == run_directory.DONE and len(fake.arrays()) == 2
    assert "retried  a  (retry 1 of 1 in 0 s)" in capsys.readouterr().out


def test_the_reason_of_a_job_that_never_began_has_its_last_line(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    (job,) = submit(executor, make("a"))
    (executor.folder / "slurm" / "100_0.log").write_text("one\nno such python\n", encoding="utf-8")
    fake.queue(_100_0="FAILED")
    polled(executor, lambda: job.ended)
    assert str(job.reason).endswith("the last line of its output: no such python")


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("JobLaunchFailure", "SLURM could not start it (JobLaunchFailure), as on a node that does not see {}/slurm"),
        ("NonZeroExitCode", "it has printed nothing"),
    ],
)
def test_the_reason_of_a_job_that_has_printed_nothing(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, why: str, words: str
) -> None:
    (job,) = submit(executor, make("a"))
    fake.queue(_100_0=f"FAILED,{why}")
    polled(executor, lambda: job.ended)
    assert str(job.reason) == f"its job ended before it could say why; {words.format(executor.folder)}"


def test_accounting_is_asked_only_for_what_squeue_has_forgotten(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    jobs = submit(executor, make("a"), make("b"))
    (fake.here / "history").write_text("100_0|x|CANCELLED by 1000\n100_1|x|RUNNING\n", encoding="utf-8")
    fake.queue(_100_1="PENDING")
    polled(executor, lambda: jobs[0].ended)
    assert jobs[0].status == run_directory.CANCELLED and jobs[1].status == run_directory.PENDING
    assert fake.asked("sacct") == ["-n -X -P -j 100_0 -o JobID,JobName,State"]


@pytest.mark.parametrize(
    "state", ["CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "COMPLETING", "STAGE_OUT"]
)
def test_what_is_alive(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, state: str) -> None:
    (job,) = submit(executor, make("a"))
    fake.queue(_100_0=f"{state},because")
    for times in (1, 2, 3):
        polled(executor, lambda times=times: len(fake.asked("squeue")) > times)
    assert job.status == run_directory.PENDING and not job.ended
    assert job.waits_for == (None if state == "COMPLETING" else f"SLURM ({state.lower()}: because)")


def test_other_shells_are_told_what_waits_for_slurm(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    """By the launcher, which knows: they need not ask SLURM for it."""
    executor.folder.mkdir(exist_ok=True)
    sweep = Sweep(executor.folder, fresh=False)
    tasks = [make("a"), make("b")]
    jobs = submit(executor, *tasks)

    def seen() -> dict[str, tuple[str | None, str | None]]:
        overview = Overview(executor.folder)
        overview.refresh()
        return {view.name: (view.job, view.waits_for) for view in overview.views.values()}

    assert seen() == {"a": ("100_0", None), "b": ("100_1", None)}
    fake.queue(_100_0="PENDING,Resources", _100_1="CONFIGURING")
    polled(executor, lambda: jobs[0].waits_for)
    asked = len(fake.asked("squeue"))
    assert seen() == {"a": ("100_0", "pending: Resources"), "b": ("100_1", "configuring")}
    assert len(fake.asked("squeue")) == asked
    files.write_json(executor.folder / "waiting.json", {"pid": 1, "runs": {"a": ["7_1", "of an earlier launcher"]}})
    assert seen() == {"a": (None, None), "b": (None, None)}
    executor.leave()
    sweep.close()
    assert not (executor.folder / "waiting.json").exists()


def test_silence_is_no_verdict(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    (job,) = submit(executor, make("a"))
    (fake.here / "down").touch()
    polled(executor, lambda: len(fake.asked("squeue")) > 4)
    assert not job.ended and "Unable to contact" in str(executor.trouble)
    fake.queue(_100_0="CANCELLED")
    (fake.here / "down").unlink()
    polled(executor, lambda: job.ended)
    assert job.status == run_directory.CANCELLED and executor.trouble is None


def test_silence_at_the_beginning_is_said(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    task = make("a")
    submit(executor, task)
    (fake.here / "down").touch()
    again = SlurmRunExecutor(executor.folder, 0.05)
    with pytest.raises(UsageError, match="squeue: Unable to contact slurm controller; valid is a SLURM that answers"):
        completion.list_missing([task.run], again.reconcile)


def test_slurm_is_not_asked_while_jobs_run_and_show_it(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    executor.poll_s = 0.2
    task = make("a")
    (job,) = submit(executor, task)
    fake.queue(_100_0="RUNNING")
    began(task, "100_0")
    polled(executor, lambda: job.status == run_directory.RUNNING)
    before = len(fake.asked("squeue"))
    beats = iter(range(40))

    def beat() -> bool:
        os.utime(task.run.path(run_directory.STATE))
        return next(beats, None) is None

    polled(executor, beat)  # 2 s
    assert len(fake.asked("squeue")) == before
    fake.queue(_100_0="NODE_FAIL")
    polled(executor, lambda: job.ended)  # it has fallen silent
    assert job.cause == failure_causes.LOST


def test_nothing_new_does_not_put_off_the_next_question(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    """What is to be tried again is submitted in every round of the launcher: most often nothing."""
    executor.submit_runs([make("run")])
    before = len(fake.asked("squeue"))

    def asked_again() -> bool:
        assert executor.submit_runs([]) == []
        executor.poll()
        return len(fake.asked("squeue")) > before

    eventually(asked_again)


def test_while_nothing_changes_questions_become_rare(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    submit(executor, make("a"))
    fake.queue(_100_0="PENDING,Resources")
    polled(executor, lambda: len(fake.asked("squeue")) > 7)
    assert executor._pause == pytest.approx(0.5)  # ten times poll_s


@pytest.mark.parametrize("status", [run_directory.PREEMPTED, run_directory.CANCELLED])
def test_a_job_that_was_sent_away_goes_on_while_slurm_has_it(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, status: str
) -> None:
    task = make("a")
    (job,) = submit(executor, task)
    fake.queue(_100_0="PENDING,BeginTime")
    began(task, "100_0", status, reason="near its time limit; saved")
    for times in (1, 2, 3):
        polled(executor, lambda times=times: len(fake.asked("squeue")) > times)
    assert job.status == run_directory.PENDING and job.waits_for == "SLURM (pending: BeginTime)"
    began(task, "100_0")
    polled(executor, lambda: job.status == run_directory.RUNNING)
    began(task, "100_0", status, reason="asked to stop; saved")
    fake.queue(_100_0="COMPLETED")
    polled(executor, lambda: job.ended)
    assert (job.status, job.reason) == (status, "asked to stop; saved")


def test_the_time_limit_and_what_killed_it_are_told_apart(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    """The job only sees a SIGTERM; SLURM knows why."""
    task = make("a")
    (job,) = submit(executor, task)
    began(task, "100_0", run_directory.CANCELLED, reason="SLURM ended it")
    fake.queue(_100_0="TIMEOUT")
    polled(executor, lambda: job.ended)
    assert (job.status, job.cause) == (run_directory.TIMEOUT, failure_causes.TIME)
    assert task.run.state()["attempts"][0]["status"] == run_directory.TIMEOUT


def test_a_result_counts_whatever_slurm_says(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    task = make("a")
    (job,) = submit(executor, task)
    began(task, "100_0")
    task.run.path(run_directory.RESULT).write_text('{"status": "done"}', encoding="utf-8")
    fake.queue(_100_0="NODE_FAIL")
    polled(executor, lambda: job.ended)
    assert job.status == run_directory.DONE == task.run.status()


def test_a_waiting_launcher_tells_that_a_job_was_sent_away_and_is_queued_again(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make("a")
    look = executor.poll
    told: list[str] = []
    why = "near its time limit; saved"
    seen: list[str] = []

    def poll() -> None:
        """What SLURM does next, when it has been seen and told what it did."""
        look()
        seen.append(executor.jobs[0].status)
        (job,) = executor.jobs
        told.extend(text for _, _, text in executor.news)
        if len(told) == 0:
            fake.queue(_100_0="PENDING,BeginTime")
            began(task, "100_0", run_directory.PREEMPTED, reason=why)
        elif len(told) == 1 and job.status == run_directory.PENDING:
            fake.queue(_100_0="RUNNING")
            attempts = [{"number": number, "status": run_directory.RUNNING, "job": "100_0"} for number in (1, 2)]
            write_json(task.run.path(run_directory.STATE), {"status": run_directory.RUNNING, "attempts": attempts})
        elif len(told) == 1 and seen[-2:] == [run_directory.RUNNING] * 2:  # away and back between two looks
            attempts = [{"number": number, "status": run_directory.RUNNING, "job": "100_0"} for number in (1, 2, 3)]
            attempts[1]["reason"] = "preempted by SLURM; saved"
            write_json(task.run.path(run_directory.STATE), {"status": run_directory.RUNNING, "attempts": attempts})
        elif len(told) == 2:
            write_json(
                task.run.path(run_directory.STATE),
                {"status": run_directory.DONE, "attempts": [{"number": 3, "job": "100_0"}]},
            )

    monkeypatch.setattr(executor, "poll", poll)
    events = Events(executor.folder)
    config = {"epochs": 1, "max_steps": None}
    points = {task.run: resolved(config)}
    Drive(executor.folder, points, lambda run, point: task, executor, SweepSettings(), events=events).run()
    lines = [json.loads(line) for line in (executor.folder / run_directory.EVENTS).read_text().splitlines()]
    assert [(line["event"], line["attempt"], line.get("reason")) for line in lines[1:]] == [
        ("run_preempted", 1, f"{why}; queued again"),
        ("run_started", 2, None),
        ("run_preempted", 2, "preempted by SLURM; saved; queued again"),
        ("run_started", 3, None),
        ("run_ended", 3, None),
    ]
