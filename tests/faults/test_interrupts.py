"""Ctrl-C before anything has begun, once and twice; a terminal that is closed; output that cannot be written."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from sweep.system.signals import NOTHING, Interrupted, defer_interrupts, is_hurried, raise_deferred, raise_on_signals
from tests.conftest import ROOT, eventually
from tests.faults.conftest import StandInOf, ranks

STUBBORN = "trap '' TERM INT HUP; touch \"$4/begun\"; while :; do sleep 0.1; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_twice_ends_at_once(stand_in: StandInOf, number: signal.Signals) -> None:
    """Ranks that do not listen have no time left, which is an hour here."""
    sweep = stand_in(STUBBORN, points=3)
    sweep.environment["GRACE_S"] = "3600"
    launcher = sweep.start()
    eventually(lambda: sweep.runs[0].path("begun").exists())
    launcher.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(1)
    launcher.send_signal(number)
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 128 + number and "Traceback" not in out
    assert {run.status() for run in sweep.runs} == {run_directory.CANCELLED}
    sweep.nothing_is_left()


def test_once_waits_for_what_ends_by_itself(stand_in: StandInOf) -> None:
    sweep = stand_in("trap 'sleep 1; echo tidied; exit 1' TERM; touch \"$4/begun\"; sleep 1000 & wait")
    launcher = sweep.start()
    eventually(lambda: sweep.run.path("begun").exists())
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 130 and "interrupted; what was running has been ended" in out
    assert (sweep.run.attempt(1) / run_directory.STDOUT).read_text() == "tidied\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("late_s", [0.15, 0.6, 1.2])
def test_before_anything_has_begun_a_line_says_so(tmp_path: Path, late_s: float, number: signal.Signals) -> None:
    command = [sys.executable, str(ROOT / "multirun.py"), "-m", "hydra.sweep.dir=sweep", "seed=range(200)"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: "multirun.py" in Path(f"/proc/{process.pid}/maps").read_text() or loaded(process.pid))
    time.sleep(late_s)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (128 + number, "", f"{NOTHING}\n")
    assert list(tmp_path.iterdir()) == []


def loaded(pid: int) -> bool:
    """Whether Python has begun with our program: it has loaded what comes after its first lines."""
    return "_yaml" in Path(f"/proc/{pid}/maps").read_text() or "antlr4" in Path(f"/proc/{pid}/maps").read_text()


def test_a_closed_terminal(stand_in: StandInOf) -> None:
    """The launcher has a terminal of its own, which goes away: SIGHUP, and nowhere to write to."""
    sweep = stand_in(ranks(1000, 0.1), points=3)
    ours, theirs = pty.openpty()
    launcher = sweep.start(
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=lambda: own_terminal(theirs)
    )
    os.close(theirs)
    sweep.training()
    os.close(ours)
    assert launcher.wait(60) == 128 + signal.SIGHUP
    assert {run.status() for run in sweep.runs} == {run_directory.CANCELLED}
    sweep.nothing_is_left()


def own_terminal(descriptor: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def test_a_sweep_goes_on_without_the_terminal_that_it_was_told_to_outlive(stand_in: StandInOf) -> None:
    """nohup, disown: no signal, but every write fails from now on."""
    sweep = stand_in(ranks(5, 0.1), points=4)
    ours, theirs = pty.openpty()
    launcher = sweep.start(stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    sweep.training()
    os.close(ours)
    assert launcher.wait(60) == 0
    assert {run.status() for run in sweep.runs} == {run_directory.DONE}


def test_output_into_a_full_disk(stand_in: StandInOf) -> None:
    sweep = stand_in(ranks(2, 0.1), points=3)
    with open("/dev/full", "w") as full:
        launcher = sweep.start(stdout=full, stderr=full)
        assert launcher.wait(60) == 0
    assert {run.status() for run in sweep.runs} == {run_directory.DONE}


def test_a_signal_waits_for_the_end_of_a_step() -> None:
    done = []
    with raise_on_signals():
        with pytest.raises(Interrupted) as found, defer_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the step")
            raise_deferred()
            done.append("the next")
        assert done == ["the step"] and found.value.code == 130 and not is_hurried()


def test_a_step_that_does_not_end_is_left_at_the_third_signal() -> None:
    with raise_on_signals():
        with pytest.raises(Interrupted), defer_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert is_hurried()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1000)
        raise_deferred()  # it has been raised once, and is not again


def test_a_signal_in_the_middle_of_a_write_is_not_mistaken_for_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def interrupted(*paths: str) -> None:
        replace(*paths)
        raise Interrupted(130)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(Interrupted):
        files.write_text(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"
