"""Which failures are tried again, how, and what ends a sweep."""

from __future__ import annotations

import csv
import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import failure_causes, run_directory
from sweep.attempts.run_task import RunTask
from sweep.driver.retries import LONGEST_S, Retries
from sweep.executors.base import Job
from sweep.executors.local import SlotExecutor
from sweep.settings.sweep import SweepSettings
from tests.conftest import eventually
from tests.faults.conftest import StandIn, StandInOf, attempts, by_seed, ranks

pytestmark = pytest.mark.thorough

FIRST = '[ ! -e "$4/attempt-2" ]'  # in a script: whether this is the first attempt
ROW = 'printf "step,epoch\\n1,1\\n" > "$4/steps.csv"'


def told(cause: str) -> str:
    """A script: a rank leaves a reason with this cause and fails."""
    report = json.dumps({"rank": 0, "reason": "as told", "cause": cause, "time": "1"})
    return f"echo '{report}' > $GRADSWEEP_ATTEMPT/failure-0.json; exit 1"


def attempts_by_seed(sweep: StandIn) -> list[list[tuple[str, str | None]]]:
    assert len(sweep.runs) < 10  # so that their names are in order
    return [attempts(run) for run in sweep.runs]


def test_what_may_pass_is_tried_again(stand_in: StandInOf) -> None:
    causes = {
        "kill -9 $$": failure_causes.KILLED,
        "exit 137": failure_causes.KILLED,
        told("disk"): failure_causes.DISK,
        told("memory"): failure_causes.MEMORY,
        f"{ROW}; exit 0": failure_causes.UNKNOWN,
        f"{ROW}; exit 1": failure_causes.UNKNOWN,
    }
    sweep = stand_in(f"if {FIRST}; then {by_seed(*causes)}; fi; {ranks(2, 0)}", len(causes))
    code, out = sweep.finish()
    assert code == 0 and out.count("retry 1 of 2 in 0 s") == len(causes), out
    assert attempts_by_seed(sweep) == [[("failed", cause), ("done", None)] for cause in causes.values()]


def test_what_will_not_pass_is_not(stand_in: StandInOf) -> None:
    """The last: an MPI that cannot start, most often for a wrong command."""
    causes = {
        told("input"): failure_causes.INPUT,
        told("error"): failure_causes.ERROR,
        "exit 1": failure_causes.UNKNOWN,
    }
    sweep = stand_in(by_seed(*causes), len(causes))
    code, out = sweep.finish()
    assert code == 1 and "retry" not in out and all(f"({cause}: " in out for cause in causes.values())
    assert attempts_by_seed(sweep) == [[("failed", cause)] for cause in causes.values()]


def test_what_a_killed_rank_was_writing_is_gone_with_its_attempt(stand_in: StandInOf) -> None:
    half = f'echo "{{" > "$4/.{run_directory.RESULT}.c2fgcejq"'
    sweep = stand_in(f"if {FIRST}; then {half}; kill -9 $$; fi; {ranks(2, 0)}")
    assert sweep.finish()[0] == 0
    assert len(attempts(sweep.run)) == 2 and not list(sweep.run.directory.glob(".*"))


def test_so_often_and_no_more(stand_in: StandInOf) -> None:
    sweep = stand_in("kill -9 $$", retries=3)
    code, out = sweep.finish()
    assert code == 1 and "retry 3 of 3" in out
    assert attempts(sweep.run) == [("failed", failure_causes.KILLED)] * 4


def test_none_at_all(stand_in: StandInOf) -> None:
    sweep = stand_in("kill -9 $$", retries=0)
    assert sweep.finish()[0] == 1
    assert attempts(sweep.run) == [("failed", failure_causes.KILLED)]


def test_a_run_whose_time_is_over_goes_on_where_it_was_saved(stand_in: StandInOf) -> None:
    sweep = stand_in(ranks(20, 0.2), environment={"FAKE_CHECKPOINT": "1"}, time_minutes=0.02, retries=20)
    code, out = sweep.finish()
    assert code == 0, out
    *before, last = attempts(sweep.run)
    assert last == ("done", None) and before and set(before) == {("timeout", failure_causes.TIME)}
    assert "saved at step" in sweep.run.state()["attempts"][0]["reason"]
    rows = [row["step"] for row in csv.DictReader(sweep.run.path(run_directory.STEPS).open())]
    assert rows == [str(step) for step in range(1, 21)] and sweep.run.path("completed").read_text() == "once\n"


def test_one_that_saved_nothing_does_not(stand_in: StandInOf) -> None:
    sweep = stand_in(ranks(1000, 0.1), time_minutes=0.01)
    code, out = sweep.finish()
    assert code == 1 and sweep.run.status() == run_directory.TIMEOUT
    assert attempts(sweep.run) == [("timeout", failure_causes.TIME)]
    assert "over its time of 0.01 minutes (sweep.time_minutes)" in out


def test_a_run_that_waits_for_its_retry_says_so_and_a_signal_ends_the_wait(stand_in: StandInOf) -> None:
    sweep = stand_in("kill -9 $$", backoff_s=500)
    launcher = sweep.start()
    eventually(lambda: "retry 1 of 2" in str(sweep.run.state().get("reason")))
    assert sweep.run.status() == run_directory.PENDING
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=120)
    assert launcher.returncode == 130
    assert sweep.run.status() == run_directory.FAILED and "killed by SIGKILL" in sweep.run.state()["reason"]
    assert attempts(sweep.run) == [("failed", failure_causes.KILLED)]


def test_who_stops_a_sweep_stops_its_retries(stand_in: StandInOf) -> None:
    sweep = stand_in(ranks(1000, 0.1), points=2, environment={"FAKE_CHECKPOINT": "1"}, max_parallel=1)
    launcher = sweep.start()
    sweep.training()
    launcher.send_signal(signal.SIGUSR1)
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 1 and "retry" not in out
    assert {run.status() for run in sweep.runs} == {run_directory.PREEMPTED, run_directory.CANCELLED}


def test_fail_fast(stand_in: StandInOf) -> None:
    sweep = stand_in(f'case "$4" in *seed=0*) exit 3;; esac; {ranks(1000, 0.1)}', points=5, fail_fast=True)
    code, out = sweep.finish()
    assert code == 1 and "sweep.fail_fast=true: seed=0-" in out
    assert sorted(run.status() for run in sweep.runs) == [run_directory.CANCELLED] * 4 + [run_directory.FAILED]
    cancelled = next(run for run in sweep.runs if run.status() == run_directory.CANCELLED)
    assert cancelled.state()["reason"].startswith("sweep.fail_fast=true: seed=0-")


def test_max_failures(stand_in: StandInOf) -> None:
    fails = 'case "$4" in *seed=[01]*) exit 3;; esac'
    sweep = stand_in(f"{fails}; {ranks(1000, 0.1)}", points=6, max_failures=2)
    code, out = sweep.finish()
    assert code == 1 and "sweep.max_failures=2: " in out
    assert sum(run.status() == run_directory.FAILED for run in sweep.runs) == 2
    assert sum(run.status() == run_directory.CANCELLED for run in sweep.runs) >= 1


MakeJob = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> MakeJob:
    """A job that has failed."""

    def make(cause: str, status: str = run_directory.FAILED, name: str = "run") -> Job:
        (tmp_path / name).mkdir(exist_ok=True)
        executor = SlotExecutor(tmp_path)
        made = Job(executor, RunTask(str(tmp_path / name), 1, 1, [], {}))
        made.status, made.cause = status, cause
        return made

    return make


def test_the_wait_doubles_up_to_a_limit(job: MakeJob) -> None:
    retries = Retries(SweepSettings(retries=9, backoff_s=10))
    again = [retries.plan_retry(job(failure_causes.KILLED)) for _ in range(9)]
    assert [each and each.wait_s for each in again] == [10, 20, 40, 80, 160, 320, LONGEST_S, LONGEST_S, LONGEST_S]
    assert [each and each.number for each in again] == list(range(1, 10))
    assert retries.plan_retry(job(failure_causes.KILLED)) is None
    assert retries.plan_retry(job(failure_causes.KILLED, name="other")) is not None


def test_no_memory_is_tried_once_again_and_alone_from_then_on(job: MakeJob) -> None:
    retries = Retries(SweepSettings(retries=9))
    first, second = retries.plan_retry(job(failure_causes.MEMORY)), retries.plan_retry(job(failure_causes.KILLED))
    assert first is not None and first.alone and second is not None and second.alone
    assert retries.plan_retry(job(failure_causes.MEMORY)) is None


@pytest.mark.parametrize(
    "status", [run_directory.CANCELLED, run_directory.PREEMPTED, run_directory.DIVERGED, run_directory.DONE]
)
def test_what_has_not_failed_is_not_tried_again(job: MakeJob, status: str) -> None:
    assert Retries(SweepSettings()).plan_retry(job(failure_causes.KILLED, status)) is None


def test_a_run_without_memory_runs_alone_the_second_time(stand_in: StandInOf) -> None:
    """Runs count each other; the one that failed for want of memory meets nobody when it is tried again."""
    count = 'mkdir -p "$4/../../now"; touch "$4/../../now/$(basename "$4")"; '
    fail = f'case "$4" in *seed=0*) if {FIRST}; then rm "$4/../../now/"*seed=0*; {told("memory")}; fi;; esac; '
    look = 'sleep 1; ls "$4/../../now" | wc -l >> "$4/beside"; '
    script = f'{count}{fail}{look}{ranks(1, 0)}; rm "$4/../../now/$(basename "$4")"'
    sweep = stand_in(script, points=8, share_cores=True, max_parallel=4)
    code, out = sweep.finish()
    assert code == 0 and "with nothing beside it" in out
    beside = {run.name.partition("-")[0]: int(run.path("beside").read_text()) for run in sweep.runs}
    assert beside["seed=0"] == 1 and max(beside.values()) > 1


def test_a_task_with_limits_travels() -> None:
    """What a scheduler pickles has plain fields only."""
    task = RunTask("d", 1, 1, [], {}, limits=SweepSettings(hang_minutes=0.5, log_megabytes=1).limits, alone=True)
    assert dataclasses.asdict(task)["limits"] == {"hang_s": 30.0, "time_s": None, "log_bytes": 1_000_000}
