"""What others do to a sweep while it runs: directories removed, configs edited, a clock that jumps."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import failure_causes, run_directory
from tests.conftest import PLAYED, Program
from tests.faults.conftest import StandInOf, attempts, ranks
from tests.faults.real_runs import SWEEP, wait_for_training

pytestmark = pytest.mark.thorough

CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
/* Once the file JUMP exists, the wall clock is a day behind. */
static long shift(void) {
    const char *jump = getenv("JUMP");
    return jump && !access(jump, F_OK) ? 86400 : 0;
}
int clock_gettime(clockid_t id, struct timespec *time) {
    int code = syscall(SYS_clock_gettime, id, time);
    if (!code && id == CLOCK_REALTIME) time->tv_sec -= shift();
    return code;
}
int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture
def jumping(tmp_path: Path) -> dict[str, str]:
    """An environment in which the wall clock jumps back once there is the file `jump`."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "JUMP": str(tmp_path / "jump")}


def test_a_clock_that_jumps_back_a_day(stand_in: StandInOf, jumping: dict[str, str], tmp_path: Path) -> None:
    """Neither the watch, nor limits, nor the waits before retries go by it."""
    fails = 'case "$4" in *seed=[15]*) [ -e "$4/attempt-2" ] || kill -9 $$;; esac; '
    sweep = stand_in(fails + ranks(10, 0.1), points=6, hang_minutes=1, time_minutes=1, backoff_s=0.5)
    sweep.environment |= jumping
    launcher = sweep.start()
    sweep.training()
    (tmp_path / "jump").touch()
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, out
    times = [each for run in sweep.runs for each in run.state()["attempts"]]
    assert any(each["ended"] < each["started"] for each in times)  # it did jump
    assert {run.status() for run in sweep.runs} == {run_directory.DONE}


@pytest.mark.mpi
def test_a_training_under_a_clock_that_jumps(
    start: Callable[..., Program], jumping: dict[str, str], tmp_path: Path, digits: Path
) -> None:
    command = ("-m", SWEEP, "experiment=quick", "epochs=40", "workers=2", "checkpoint.every_minutes=0.02")
    program = start(*command, f"data.root={digits}", without=PLAYED, **jumping)
    run = wait_for_training(tmp_path, "")
    (tmp_path / "jump").touch()
    code, out, err = program.end(240)
    assert code == 0, out + err
    result = run.result()
    assert result is not None and result["time_s"] > 0 and 0 < result["total_s"] < 1000
    (attempt,) = run.state()["attempts"]
    assert attempt["ended"] < attempt["started"]


def test_a_run_directory_is_removed_meanwhile(stand_in: StandInOf) -> None:
    """The run fails, once; the others go on; a resume lays it out and computes it."""
    sweep = stand_in(ranks(20, 0.1), points=4)
    launcher = sweep.start()
    gone = sweep.training()
    shutil.rmtree(gone.directory)
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 1 and f"{gone.name}: retry" not in out
    assert f"({failure_causes.INPUT}: the directory of the run has been removed; a resume lays it out again)" in out
    assert {run.status() for run in sweep.runs if run != gone} == {run_directory.DONE}
    sweep.nothing_is_left()
    sweep.lay_out()
    code, out = sweep.finish()
    assert code == 0 and f"1 of {len(sweep.runs)} runs to do" in out


def test_a_run_whose_files_are_removed_under_it_is_not_done(stand_in: StandInOf) -> None:
    """`rm -rf` while ranks write: they make their files anew, from where they are, and end well."""
    sweep = stand_in(ranks(30, 0.1), points=3)
    launcher = sweep.start()
    gone = sweep.training()
    for path in gone.directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 1 and f"{gone.name}: retry" not in out
    assert (
        f"({failure_causes.INPUT}: not whole: {run_directory.CONFIG} has been removed or changed; a resume computes it"
        in out
    )
    assert (gone.directory / "completed").exists() and gone.result() is None
    assert {run.status() for run in sweep.runs} == {run_directory.DONE} and len(sweep.runs) == 2
    sweep.lay_out()
    code, out = sweep.finish()
    assert code == 0 and "1 of 3 runs to do" in out
    assert [line.split(",")[0] for line in gone.path(run_directory.STEPS).read_text().splitlines()[:2]] == ["step", "1"]


@pytest.mark.parametrize("what", [run_directory.CONFIG, "directory"])
def test_a_run_is_changed_before_its_turn(stand_in: StandInOf, what: str) -> None:
    """What is computed under a signature is what the signature says, or nothing."""
    sweep = stand_in(f'cp "$4/config.yaml" "$4/computed"; {ranks(5, 0.2)}', points=5)
    launcher = sweep.start()
    sweep.training()
    last = next(run for run in reversed(sweep.runs) if run.status() == run_directory.PENDING)
    config = last.path(run_directory.CONFIG).read_text()
    if what == "directory":
        shutil.rmtree(last.directory)
    else:
        last.path(run_directory.CONFIG).write_text(config.replace("epochs: 1", "epochs: 2"))
    out, _ = launcher.communicate(timeout=120)
    assert "has been removed" in out and not last.path("computed").exists()
    if what == run_directory.CONFIG:
        assert attempts(last) == [("failed", failure_causes.INPUT)]
    sweep.lay_out()
    code, out = sweep.finish()
    assert code == 0, out
    assert last.path("computed").read_text() == config and last.status() == run_directory.DONE


def test_a_state_that_somebody_has_damaged(stand_in: StandInOf) -> None:
    sweep = stand_in(ranks(10, 0.1), points=3)
    launcher = sweep.start()
    run = sweep.training()
    run.path(run_directory.STATE).write_text('{"status": [], "attempts": {"a"')
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, out
    assert {each.status() for each in sweep.runs} == {run_directory.DONE}


def test_the_sweep_directory_is_removed_meanwhile(stand_in: StandInOf) -> None:
    """Everything fails with the reason; nothing is left running."""
    sweep = stand_in(ranks(50, 0.1), points=4)
    launcher = sweep.start()
    sweep.training()
    shutil.rmtree(sweep.directory, ignore_errors=True)
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 1 and "Traceback (most recent call last)" not in out
    assert out.count("has been removed") >= 4
    sweep.nothing_is_left()
