"""What kills runs and sweeps, against real processes: nothing is left behind, nothing finished is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import ENDLESS, PLAYED, QUICK, Program, eventually
from tests.faults.conftest import ranks
from tests.faults.real_runs import SWEEP, find_run, has_left_nothing, list_ranks, wait_for_training

pytestmark = [pytest.mark.mpi, pytest.mark.thorough]

Start = Callable[..., Program]
Multirun = Callable[..., tuple[int, str, str]]


@pytest.fixture
def start(start: Start, digits: Path) -> Start:
    """Nobody looks at the reports of what was killed."""
    return lambda *arguments: start(*arguments, f"data.root={digits}", without=PLAYED)


def played(tmp_path: Path) -> str:
    """The setting with which a shell plays mpirun, and its ranks load no torch."""
    (tmp_path / "rank.sh").write_text(ranks(10_000, 0.1).replace("$4", "$5"))
    return f"mpi.command=[sh,{tmp_path}/rank.sh,'{{workers}}']"


def test_a_killed_rank_fails_its_run_only(start: Start, tmp_path: Path) -> None:
    program = start("-m", SWEEP, *ENDLESS[:1], "epochs=1000000,1", "workers=2", "sweep.retries=0")
    run = wait_for_training(tmp_path, "epochs=1000000")
    os.kill(list_ranks(run)[-1], signal.SIGKILL)
    eventually(lambda: run.status() == run_directory.FAILED, 120)
    code, out, err = program.end(240)
    assert code == 1
    assert "SIGKILL" in run.state()["reason"]
    assert "python -m sweep resume sweep" in out
    other = find_run(tmp_path, "epochs=1-")
    assert other is not None and other.status() == run_directory.DONE
    assert has_left_nothing(run)


def test_a_killed_rank_is_tried_again_from_the_last_checkpoint(start: Start, tmp_path: Path) -> None:
    program = start(
        "-m", SWEEP, "experiment=quick", "epochs=60", "workers=2", "sweep.backoff_s=0", "checkpoint.every_steps=20"
    )
    run = wait_for_training(tmp_path, "")
    eventually(lambda: list(run.path(run_directory.CHECKPOINT).glob("step-*")), 240)
    os.kill(list_ranks(run)[-1], signal.SIGKILL)
    code, out, err = program.end(240)
    assert code == 0, out + err
    assert "retry 1 of 2 in 0 s" in out
    assert [each["status"] for each in run.state()["attempts"]] == [run_directory.FAILED, run_directory.DONE]
    result = run.result()
    assert result is not None and len(result["resumed_after"]) == 1 and result["resumed_after"][0] >= 20
    assert has_left_nothing(run)


def test_a_rank_that_raises_fails_its_run_with_the_reason(start: Start, tmp_path: Path) -> None:
    # the launcher believes in one worker, MPI in two
    program = start("-m", SWEEP, *QUICK, "workers=1", 'mpi.command=[mpirun,--oversubscribe,-x,"W={workers}",-n,"2"]')
    code, out, err = program.end(240)
    assert code == 1
    (run,) = runs_of(tmp_path / "sweep")
    assert run.status() == run_directory.FAILED
    assert run.state()["reason"].startswith("workers=1: the MPI world has 2 rank(s)")
    assert "workers=1: the MPI world has 2 rank(s)" in out


def test_killed_mpirun_leaves_no_rank(start: Start, tmp_path: Path) -> None:
    program = start("-m", SWEEP, *ENDLESS, "workers=2", "sweep.retries=0")
    run = wait_for_training(tmp_path, "")
    os.kill(run.state()["attempts"][-1]["pid"], signal.SIGKILL)
    code, out, err = program.end(240)
    assert code == 1
    assert run.state()["reason"] == "the MPI launcher was killed by SIGKILL"
    assert has_left_nothing(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    """The first with ranks of torch's, the others with a shell's: how they are ended does not depend on the signal."""
    mpi = [] if number == signal.SIGINT else [played(tmp_path)]
    program = start("-m", SWEEP, *ENDLESS, "seed=1,2", "workers=2", *mpi)
    run = wait_for_training(tmp_path, "seed=1")
    program.process.send_signal(number)
    code, out, err = program.end(240)
    assert code == 128 + number
    assert "Traceback" not in err
    assert has_left_nothing(run)
    assert [each.status() for each in runs_of(tmp_path / "sweep")] == [run_directory.CANCELLED, run_directory.CANCELLED]


def test_a_killed_launcher_leaves_no_rank_and_resume_continues(
    start: Start, multirun: Multirun, tmp_path: Path
) -> None:
    settings = ("-m", SWEEP, "experiment=quick", "workers=2")
    assert multirun(*settings, "epochs=1")[0] == 0
    first = find_run(tmp_path, "epochs=1-")
    assert first is not None and first.status() == run_directory.DONE
    finished = first.path(run_directory.RESULT).stat().st_mtime_ns
    grid = (*settings, "epochs=1,100", "sweep.resume=sweep")
    program = start(*grid)
    run = wait_for_training(tmp_path, "epochs=100")
    program.process.kill()
    program.end(240)
    eventually(lambda: has_left_nothing(run))
    assert run.status() == run_directory.RUNNING  # nobody was left to say otherwise

    code, out, err = multirun(*grid)
    assert code == 0, out + err
    assert "1 of 2 runs to do" in out
    assert first.path(run_directory.RESULT).stat().st_mtime_ns == finished
    assert [attempt["status"] for attempt in run.state()["attempts"]] == [run_directory.FAILED, run_directory.DONE]
    assert run.state()["attempts"][0]["reason"] == "the launcher was killed"


def test_a_loss_that_is_not_a_number_ends_the_run_as_diverged(multirun: Multirun, tmp_path: Path) -> None:
    code, out, err = multirun("-m", SWEEP, *ENDLESS, "optimizer.lr=1e12", "workers=1")
    assert code == 1
    (run,) = runs_of(tmp_path / "sweep")
    assert run.status() == run_directory.DIVERGED
    assert "loss is" in run.state()["reason"]


def test_two_sweeps_in_one_directory_are_refused(start: Start, tmp_path: Path) -> None:
    mpi = played(tmp_path)
    program = start("-m", SWEEP, *ENDLESS, "workers=2", mpi)
    wait_for_training(tmp_path, "")
    code, out, err = start("-m", SWEEP, *ENDLESS, "workers=2", mpi).end(240)
    assert code == 2
    assert err.count("\n") == 1 and "another process is running this sweep" in err
    program.process.send_signal(signal.SIGINT)
    program.end(240)
