"""Logs: all of them in the normal case, the two ends of a flood, and the last words of ranks whose launcher is gone."""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsweep import failure_causes, run_directory
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.system.log_capture import Log
from tests.conftest import eventually
from tests.faults.conftest import StandInOf, attempts, ranks

LEFT_OUT = re.compile(rb"\n\[(\d+) bytes left out here: more than sweep\.log_megabytes\]\n")


@given(
    limit=st.integers(1000, 5000),
    sizes=st.lists(st.integers(1, 3000), max_size=40),
    lines=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_is_too_much_goes_from_the_middle(limit: int, sizes: list[int], lines: bool, seed: int) -> None:
    draw = random.Random(seed)
    chunks = [bytes(draw.choice(b"abc\n" if lines else b"abc") for _ in range(size)) for size in sizes]
    whole = b"".join(chunks)
    with tempfile.TemporaryFile() as opened:
        file = opened.fileno()
        log = Log(file, limit)
        for chunk in chunks:
            log.add(chunk)
            assert os.fstat(file).st_size <= limit
        found = os.pread(file, limit + 1, 0)
    if len(whole) <= limit:
        assert found == whole
        return
    (note,) = LEFT_OUT.finditer(found)
    head, tail = found[: note.start()], found[note.end() :]
    assert whole.startswith(head) and whole.endswith(tail)
    assert len(head) + int(note[1]) + len(tail) == len(whole)
    assert len(head) <= limit // 2 and len(tail) >= limit // 8
    if lines:  # cut between lines, where some are near
        assert head.endswith(b"\n") and whole[-len(tail) - 1 :].startswith(b"\n")


@pytest.mark.thorough
def test_a_flood_of_a_gigabyte_is_capped_and_harms_nobody(stand_in: StandInOf) -> None:
    flood = (
        "echo first; yes 0123456789012345678901234567890123456789012345678901234567890 | head -c 1000000000; echo last"
    )
    fails = f'case "$4" in *seed=0*) {flood};; esac; '
    sweep = stand_in(f"{fails}{ranks(3, 0.05)}", points=4, log_megabytes=2)
    launcher = sweep.start()
    flooded = next(run for run in sweep.runs if run.name.startswith("seed=0"))
    log = flooded.attempt(1) / run_directory.STDOUT
    most = 0
    while launcher.poll() is None:
        most = max(most, log.stat().st_size if log.exists() else 0)
    assert launcher.returncode == 0
    assert {run.status() for run in sweep.runs} == {run_directory.DONE}
    text = log.read_bytes()
    assert 1_000_000 < most <= 2_000_000 and len(text) <= 2_000_000
    (note,) = LEFT_OUT.finditer(text)
    assert text.startswith(b"first\n0123") and text.endswith(b"0123456789012345last\n")
    assert len(text) - (note.end() - note.start()) + int(note[1]) == 1_000_000_000 + len(b"first\nlast\n")
    sweep.nothing_is_left()


def test_the_last_words_of_a_run_survive_its_launcher(stand_in: StandInOf) -> None:
    sweep = stand_in("trap 'echo to err >&2; echo last words; exit 1' TERM; echo begun; sleep 1000 & wait")
    launcher = sweep.start()
    attempt = sweep.run.attempt(1)
    eventually(
        lambda: (attempt / run_directory.STDOUT).exists() and (attempt / run_directory.STDOUT).read_text() == "begun\n"
    )  # at once
    launcher.kill()
    launcher.communicate(timeout=120)
    eventually(lambda: (attempt / run_directory.STDOUT).read_text() == "begun\nlast words\n")
    assert (attempt / run_directory.STDERR).read_text() == "to err\n"


def test_a_killed_launcher_leaves_no_temporary_directory(stand_in: StandInOf) -> None:
    """Also where nobody ever resumes; what is in it goes along."""
    sweep = stand_in(
        'mkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/b/c"; ln -s / "$TMPDIR/root"; touch "$4/begun"; exec sleep 1000'
    )
    launcher = sweep.start()
    eventually(lambda: sweep.run.path("begun").exists())
    assert list(sweep.temporary.glob("gradsweep-*"))
    launcher.kill()
    launcher.communicate(timeout=120)
    sweep.nothing_is_left()


def test_ranks_do_not_wait_for_a_log_that_nobody_writes(stand_in: StandInOf) -> None:
    """Whoever kills the program that writes the logs ends that attempt, not the sweep."""
    kill = 'if [ ! -e "$4/attempt-2" ]; then kill -9 $(pgrep -f "capture.py 2.* $TMPDIR "); sleep 1; '
    sweep = stand_in(kill + f"echo lost; sh -c 'echo lost' || exit 137; fi; {ranks(2, 0)}")
    code, out = sweep.finish()
    assert code == 0, out
    assert attempts(sweep.run) == [("failed", failure_causes.KILLED), ("done", None)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_logs_are_written_until_the_end_whatever_signal_comes(tmp_path: Path, number: signal.Signals) -> None:
    """As SLURM sends them to all processes of a job."""
    task = RunTask(
        str(tmp_path), 1, 1, ["sh", "-c", "trap 'sleep 0.3; echo end; exit 1' TERM; echo begun; sleep 100 & wait"], {}
    )
    attempt = MpirunAttempt(task, [0])
    assert attempt._capture is not None
    eventually(lambda: (attempt.directory / run_directory.STDOUT).read_text() == "begun\n")
    attempt._capture.process.send_signal(number)
    attempt.stop(run_directory.CANCELLED, "the test wants it")
    assert (attempt.directory / run_directory.STDOUT).read_text() == "begun\nend\n"
