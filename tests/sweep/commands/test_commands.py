"""`python -m sweep cancel|resume|watch` and sweep.wait=false, against real launchers whose ranks are a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run, runs_of
from gradsweep.sweeps import planned_runs
from gradsweep.sweeps.sweep_lock import LOCK, read_lock_owner
from sweep.__main__ import main
from sweep.directory import completion, requests, run_identity, run_layout
from sweep.directory.requests import CANCEL, RESUME, Inbox, Request
from sweep.directory.run_state import write_state
from sweep.directory.sweep_directory import Sweep
from sweep.executors.slurm import queue
from sweep.launch import detach
from sweep.launch.session import Session
from sweep.launchers import schedulers
from sweep.provenance import code_snapshot, file_owners
from sweep.system.processes import find_processes
from tests.conftest import ROOT, eventually
from tests.sweep.fakes import (
    SLEEP,
    SUCCEED,
    config,
    end_launcher,
    lay_out,
    load_points,
    without_data_and_report,
    write_run,
)

FAIL_FIRST = f"test -e $4/attempt-2 || exit 3; {SUCCEED}"

Driven = Callable[..., list[Run]]


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    """Lay out a sweep with these scripts as ranks, and have a launcher in the background drive it."""

    def begin(*scripts: str) -> list[Run]:
        runs = lay_out(tmp_path, scripts)
        sweep = Sweep(tmp_path, fresh=False)
        detach.start_detached(Session(), sweep, load_points(runs))
        sweep.close()
        return runs

    yield begin
    end_launcher(tmp_path)


@pytest.fixture
def resume(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`python -m sweep resume` in this process, without the digits and without a report."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(file_owners, "_trusts_everybody", False)
        return main(["resume", *map(str, arguments)])

    without_data_and_report(monkeypatch)
    return run


def left(runs: list[Run]) -> list[int]:
    """Processes of any attempt of these runs."""
    return [
        pid
        for run in runs
        for number in run.attempt_numbers()
        for pid in find_processes(run.attempt(number).absolute())
    ]


def statuses(runs: list[Run]) -> list[str]:
    return [run.status() for run in runs]


def launcher_of(sweep: Path) -> int:
    by = read_lock_owner(sweep)
    assert by is not None
    return int(by["pid"])


@pytest.mark.thorough
def test_a_run_is_cancelled_from_another_shell_and_the_others_go_on(
    driven: Driven, tmp_path: Path, capsys: pytest.CaptureFixture[str], resume: Callable[..., int]
) -> None:
    one, other = driven(f"trap '' TERM; {SLEEP}", SLEEP)
    eventually(lambda: one.status() == run_directory.RUNNING and len(left([one])) == 3)
    launcher = launcher_of(tmp_path)
    capsys.readouterr()
    assert main(["cancel", str(tmp_path), "seed=0"]) == 0
    assert capsys.readouterr().out == f"{one.name}: cancelled\n1 run of 2 cancelled\n"
    assert (one.status(), left([one])) == (run_directory.CANCELLED, [])
    assert str(one.state()["reason"]) == f"cancelled by pid {os.getpid()} on {os.uname().nodename}"
    eventually(lambda: other.status() == run_directory.RUNNING)
    assert launcher_of(tmp_path) == launcher and not (tmp_path / requests.FOLDER).exists()

    assert resume(tmp_path) == 0  # what was cancelled by its name stays so
    assert "0 runs taken up again" in capsys.readouterr().out and one.status() == run_directory.CANCELLED
    assert resume(tmp_path, one.signature) == 0
    assert f"1 run taken up again by pid {launcher}" in capsys.readouterr().out
    eventually(lambda: one.status() == run_directory.RUNNING)
    assert [each["status"] for each in one.state()["attempts"]] == [run_directory.CANCELLED, run_directory.RUNNING]

    assert main(["cancel", str(tmp_path)]) == 0
    assert statuses([one, other]) == [run_directory.CANCELLED] * 2 and left([one, other]) == []
    assert not any(run.state().get("left_out") for run in (one, other))  # of all of it: a pause
    eventually(lambda: read_lock_owner(tmp_path) is None)
    log = (tmp_path / detach.LOG).read_text()
    assert "to cancel 1 runs" in log and f"python -m sweep resume {os.path.relpath(tmp_path)}" in log


@pytest.mark.thorough
def test_what_a_killed_launcher_has_left_is_ended(driven: Driven, tmp_path: Path) -> None:
    runs = driven(*[f"trap '' TERM; {SLEEP}"] * 3, *["exit 1"])  # more than there are cores, on small machines
    eventually(lambda: runs[0].status() == run_directory.RUNNING and len(left(runs[:1])) == 3)
    os.kill(launcher_of(tmp_path), signal.SIGKILL)
    eventually(lambda: read_lock_owner(tmp_path) is None)
    assert left(runs)
    assert main(["cancel", str(tmp_path), "seed=0", "seed=2"]) == 0
    assert statuses(runs[:3:2]) == [run_directory.CANCELLED] * 2 and left(runs[:3:2]) == []
    assert runs[0].state()["attempts"][0]["status"] == run_directory.CANCELLED
    assert main(["cancel", str(tmp_path)]) == 0
    assert set(statuses(runs)) <= {run_directory.CANCELLED, run_directory.FAILED} and left(runs) == []


@pytest.mark.thorough
def test_a_launcher_takes_up_again_what_has_failed(
    driven: Driven, tmp_path: Path, capsys: pytest.CaptureFixture[str], resume: Callable[..., int]
) -> None:
    failing, fine, busy = driven(FAIL_FIRST, SUCCEED, SLEEP)
    eventually(
        lambda: statuses([failing, fine, busy]) == [run_directory.FAILED, run_directory.DONE, run_directory.RUNNING]
    )
    assert resume(tmp_path, "--failed") == 0
    assert "1 run taken up again" in capsys.readouterr().out
    eventually(lambda: failing.status() == run_directory.DONE)
    assert [len(run.state()["attempts"]) for run in (failing, fine, busy)] == [2, 1, 1]
    # a run of another grid, which the launcher has not been asked for
    (stray,) = (run for run in add_run(tmp_path, 9))
    assert resume(tmp_path) == 0
    eventually(lambda: stray.status() == run_directory.DONE)


def add_run(sweep: Path, seed: int) -> list[Run]:
    return run_layout.lay_out(sweep, [run_identity.Point(config(seed), {"seed": str(seed)})])


def test_a_changed_config_is_not_run_by_a_launcher_either(
    driven: Driven, tmp_path: Path, resume: Callable[..., int]
) -> None:
    failing, busy = driven("exit 1", SLEEP)
    eventually(lambda: failing.status() == run_directory.FAILED)
    edit(failing, "epochs: 4", "epochs: 5")
    assert resume(tmp_path) == 0
    assert "changed since" in (tmp_path / detach.LOG).read_text()
    assert failing.status() == run_directory.FAILED and len(failing.state()["attempts"]) == 1


def edit(run: Run, before: str, after: str) -> None:
    path = run.path(run_directory.CONFIG)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.thorough
@pytest.mark.parametrize("wait", [[], ["--no-wait"]])
@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("environment: {}", "environment: {X_TOKEN: abc}", "mpi.environment.X_TOKEN=***: a secret, by its name, "),
        ("environment: {}", "environment: {X: 1}", "mpi.environment.X=1: valid is a text, "),
        ("cluster: local", "cluster: local\n  gpus_per_worker: -1", "hydra.launcher.gpus_per_worker=-1: valid is "),
    ],
)
def test_a_resume_refuses_what_a_start_would_have_before_anything_starts(
    tmp_path: Path,
    resume: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    wait: list[str],
    before: str,
    after: str,
    line: str,
) -> None:
    """Also where it stands in one config only."""
    runs = lay_out(tmp_path, [SUCCEED] * 2)
    described = (tmp_path / run_directory.SWEEP).read_text()
    edit(runs[1], before, after)
    assert resume(tmp_path, *wait) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith(f"{runs[1].path(run_directory.CONFIG)}: {line}") and said.count("\n") == 1 and "abc" not in said
    )
    assert statuses(runs) == [run_directory.PENDING] * 2 and (tmp_path / run_directory.SWEEP).read_text() == described
    edit(runs[1], after, before)
    assert resume(tmp_path) == 0 and statuses(runs) == [run_directory.DONE] * 2


def test_a_launcher_that_is_asked_for_what_cannot_be_started_goes_on(
    driven: Driven, tmp_path: Path, resume: Callable[..., int]
) -> None:
    failing, busy = driven("exit 1", SLEEP)
    eventually(lambda: statuses([failing, busy]) == [run_directory.FAILED, run_directory.RUNNING])
    launcher = launcher_of(tmp_path)
    edit(failing, "environment: {}", "environment: {X_TOKEN: abc}")
    assert resume(tmp_path) == 0
    refused = f"{failing.path(run_directory.CONFIG)}: mpi.environment.X_TOKEN=***: a secret"
    assert refused in (tmp_path / detach.LOG).read_text()
    assert launcher_of(tmp_path) == launcher and statuses([failing, busy]) == [
        run_directory.FAILED,
        run_directory.RUNNING,
    ]


def test_resume_computes_what_is_missing(tmp_path: Path, resume: Callable[..., int]) -> None:
    runs = lay_out(tmp_path, [SUCCEED, FAIL_FIRST, SUCCEED])
    assert resume(tmp_path) == 1
    assert statuses(runs) == [run_directory.DONE, run_directory.FAILED, run_directory.DONE]
    finished = runs[0].path(run_directory.RESULT).stat().st_mtime_ns
    runs[2].path(run_directory.RESULT).unlink()
    assert resume(tmp_path) == 0
    assert statuses(runs) == [run_directory.DONE] * 3
    assert [len(run.state()["attempts"]) for run in runs] == [1, 2, 2]
    assert runs[0].path(run_directory.RESULT).stat().st_mtime_ns == finished
    assert (tmp_path / run_directory.SWEEP).read_text().count("command:") == 2  # sweep.yaml tells of both
    assert resume(tmp_path) == 0


def copy_of(sweep: Path) -> Path:
    """The code that the runs of a sweep have started from."""
    (copy,) = (path for path in (sweep / code_snapshot.STORE).iterdir() if not path.name.startswith("."))
    return copy


@pytest.mark.thorough
@pytest.mark.parametrize("wait", [[], ["--no-wait"]])
def test_a_resume_starts_from_no_code_that_somebody_has_changed(
    tmp_path: Path, resume: Callable[..., int], wait: list[str]
) -> None:
    """Of a copy in which a file was appended to and another one is gone."""
    show = f"cat ${{PYTHONPATH%%:*}}/trainers/__init__.py > $4/seen; {SUCCEED}"
    (run,) = lay_out(tmp_path, [show])
    assert resume(tmp_path) == 0
    with (copy_of(tmp_path) / "trainers/__init__.py").open("a") as file:
        file.write("import strangers\n")
    (copy_of(tmp_path) / "gradsweep/options/units.py").unlink()
    run.path(run_directory.RESULT).unlink()
    assert resume(tmp_path, *wait) == 0
    eventually(lambda: run.status() == run_directory.DONE and read_lock_owner(tmp_path) is None)
    assert "strangers" not in (run.directory / "seen").read_text()
    assert code_snapshot.read(copy_of(tmp_path)).version == run.state()["attempts"][-1]["code_version"]


def test_code_that_changes_while_a_sweep_waits_is_mended_before_the_next_run(
    tmp_path: Path, resume: Callable[..., int]
) -> None:
    change = "echo 'import strangers' >> ${PYTHONPATH%%:*}/trainers/__init__.py"
    show = f"cat ${{PYTHONPATH%%:*}}/trainers/__init__.py > $4/seen; {change}; {SUCCEED}"
    runs = lay_out(tmp_path, [show] * 2, max_parallel=1)
    assert resume(tmp_path) == 0
    assert all("strangers" not in (run.directory / "seen").read_text() for run in runs)


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("wait", [[], ["--no-wait"]])
@pytest.mark.parametrize("what", [".", run_directory.SWEEP, "{run}", "{run}/config.yaml", code_snapshot.STORE])
def test_a_strangers_sweep_is_gone_on_with_only_if_it_is_trusted(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str], what: str, wait: list[str]
) -> None:
    (run,) = lay_out(tmp_path, [SUCCEED])
    (tmp_path / code_snapshot.STORE).mkdir()
    os.chown(tmp_path / what.format(run=run.directory), 12345, -1)
    assert resume(tmp_path, *wait) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "belongs to uid 12345" in said and "--trust" in said
    assert run.status() == run_directory.PENDING and not run.attempt_numbers()
    assert resume(tmp_path, "--trust", *wait) == 0
    eventually(lambda: run.status() == run_directory.DONE and read_lock_owner(tmp_path) is None)
    assert "trust" not in run.path(run_directory.CONFIG).read_text()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_resume_talks_to_machines_or_not_at_all(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = lay_out(tmp_path, [FAIL_FIRST, SUCCEED])
    assert resume(tmp_path, "seed=1", "--quiet") == 0
    assert capsys.readouterr().out == ""
    assert main(["cancel", str(tmp_path), "seed=0"]) == 0
    capsys.readouterr()
    assert resume(tmp_path, "--json") == 1
    (told,) = lines(capsys)
    assert (told["event"], told["runs"], told["left_out"], told["pid"]) == ("runs_taken_up", 0, 1, None)
    assert resume(tmp_path, "--json", "--all") == 1
    told = [line["event"] for line in lines(capsys)]
    assert told == ["sweep_started", "runs_planned", "run_started", "run_ended"]
    assert statuses(runs) == [run_directory.FAILED, run_directory.DONE]


def test_what_is_left_is_told_to_machines(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = lay_out(tmp_path, [SLEEP, SUCCEED])
    assert resume(tmp_path, "--json", "--no-wait") == 0
    try:
        (left,) = lines(capsys)
        expected = {"event": "sweep_left", "launcher": "local", "runs": 2, "missing": 2, "directory": str(tmp_path)}
        assert expected.items() <= left.items() and left["pid"] == launcher_of(tmp_path)
        assert any(json.loads(line) == left for line in (tmp_path / run_directory.EVENTS).read_text().splitlines())
        eventually(lambda: runs[1].status() == run_directory.DONE)
        assert resume(tmp_path, "--json") == 0
        (told,) = lines(capsys)
        assert (told["event"], told["runs"], told["pid"]) == ("runs_taken_up", 0, left["pid"])
    finally:
        end_launcher(tmp_path)


def test_what_failed_and_all_cannot_be_resumed_at_the_same_time(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        resume(tmp_path, "--failed", "--all")
    line = "python -m sweep resume: argument --all: not allowed with argument --failed\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, line)


def test_resume_of_some(tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    failing, waiting, unwanted = runs = lay_out(tmp_path, [FAIL_FIRST, SUCCEED, SUCCEED])
    assert main(["cancel", str(tmp_path), unwanted.name]) == 0
    assert unwanted.state()["left_out"]
    assert resume(tmp_path, "--failed") == 1 and "nothing to resume of 3 runs" in capsys.readouterr().out
    assert resume(tmp_path, "seed=0") == 1
    assert statuses(runs) == [run_directory.FAILED, run_directory.PENDING, run_directory.CANCELLED]
    assert resume(tmp_path, "--failed") == 1
    assert statuses(runs) == [run_directory.DONE, run_directory.PENDING, run_directory.CANCELLED]
    assert resume(tmp_path) == 1
    assert "1 run cancelled by name and left out; --all takes" in capsys.readouterr().out
    assert statuses(runs) == [run_directory.DONE, run_directory.DONE, run_directory.CANCELLED]
    assert resume(tmp_path, "--all") == 0
    assert statuses(runs) == [run_directory.DONE] * 3 and not unwanted.state()["left_out"]


def test_what_waits_for_its_turn_again_says_so(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = lay_out(tmp_path, [SLEEP, SLEEP], max_parallel=1)
    assert main(["cancel", str(tmp_path)]) == 0 and statuses(runs) == [run_directory.CANCELLED] * 2
    assert resume(tmp_path, "--no-wait") == 0
    try:
        eventually(lambda: sorted(statuses(runs)) == [run_directory.PENDING, run_directory.RUNNING])
        (waiting,) = (run for run in runs if run.status() == run_directory.PENDING)
        assert waiting.state()["reason"] is None
        capsys.readouterr()
        assert main(["cancel", str(tmp_path), waiting.name]) == 0
        assert capsys.readouterr().out == f"{waiting.name}: cancelled\n1 run of 2 cancelled\n"
    finally:
        end_launcher(tmp_path)


def test_what_had_failed_and_never_had_its_turn_again_has_failed(tmp_path: Path, resume: Callable[..., int]) -> None:
    runs = lay_out(tmp_path, [FAIL_FIRST, SUCCEED])
    assert resume(tmp_path, "seed=0") == 1 and statuses(runs) == [run_directory.FAILED, run_directory.PENDING]
    write_state(runs[0], status=run_directory.PENDING)  # as a launcher leaves it that is killed before its turn
    assert resume(tmp_path, "--failed") == 1
    assert statuses(runs) == [run_directory.DONE, run_directory.PENDING]


def test_resume_leaves_out_what_is_damaged_and_says_so(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = lay_out(tmp_path, [SUCCEED] * 4)
    runs[0].path(run_directory.CONFIG).write_text("workers: [1")
    runs[1].path(run_directory.CONFIG).write_text(
        runs[1].path(run_directory.CONFIG).read_text().replace("workers: 1", "workers: 2")
    )
    runs[2].path(run_directory.CONFIG).write_text("!!python/object/apply:os.system ['touch /tmp/no']\n")
    assert resume(tmp_path) == 1
    err = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0].rpartition("config.yaml: ")[2][:16] for line in err] == [
        "cannot be read (",
        "changed since, i",
        "cannot be read (",
    ]
    assert statuses(runs) == [run_directory.PENDING] * 3 + [run_directory.DONE]


@pytest.mark.parametrize("how", ["moved", "removed", "without config.yaml"])
def test_a_run_whose_directory_is_gone_is_missing_and_laid_out_again(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str], how: str
) -> None:
    sweep = tmp_path / "sweep"
    kept, gone, _ = runs = lay_out(sweep, [SUCCEED] * 3)
    assert resume(sweep) == 0
    finished = kept.path(run_directory.RESULT).stat().st_mtime_ns
    config = gone.path(run_directory.CONFIG).read_text()
    if how == "moved":
        gone.directory.rename(tmp_path / "elsewhere")
    elif how == "removed":
        shutil.rmtree(gone.directory)
    else:
        gone.path(run_directory.CONFIG).unlink()
    sweep = sweep.rename(tmp_path / "renamed")  # a sweep may be moved as a whole
    kept, gone, _ = runs = [Run(sweep / run_directory.RUNS / run.name) for run in runs]
    capsys.readouterr()
    assert main(["status", str(sweep)]) == 0
    assert re.search(rf"3 runs: 2 done, 1 missing(.|\n)*{gone.name} +missing .*a resume lays", capsys.readouterr().out)
    assert main(["watch", str(sweep)]) == 1
    assert "python -m sweep resume" in capsys.readouterr().out
    assert resume(sweep, gone.name) == 0
    assert "1 run laid out again" in capsys.readouterr().out
    assert statuses(runs) == [run_directory.DONE] * 3 and gone.path(run_directory.CONFIG).read_text() == config
    assert kept.path(run_directory.RESULT).stat().st_mtime_ns == finished
    assert len(gone.state()["attempts"]) == 1  # what only lacked its config is done already
    assert resume(sweep) == 0 and "nothing to resume of 3 runs" in capsys.readouterr().out


def test_a_launcher_lays_out_again_what_was_removed_meanwhile(
    driven: Driven, tmp_path: Path, resume: Callable[..., int]
) -> None:
    gone, busy = driven(SUCCEED, SLEEP)
    eventually(lambda: statuses([gone, busy]) == [run_directory.DONE, run_directory.RUNNING])
    shutil.rmtree(gone.directory)
    assert resume(tmp_path) == 0
    eventually(lambda: statuses([gone, busy]) == [run_directory.DONE, run_directory.RUNNING])


def test_a_run_that_has_another_name_is_not_missing(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = lay_out(tmp_path, [SUCCEED])
    run.directory.rename(run.directory.with_name("mine"))
    assert main(["status", str(tmp_path)]) == 0
    assert "1 run: 1 pending" in capsys.readouterr().out
    assert resume(tmp_path) == 0 and [each.name for each in runs_of(tmp_path)] == ["mine"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda known: known.clear(),
        lambda known: known.update(base=[]),
        lambda known: known["base"].clear(),
        lambda known: [each.update(name="../../elsewhere") for each in known["runs"].values()],
        lambda known: [each.update(changes=None) for each in known["runs"].values()],
        lambda known: [each.update(lacks=[[]]) for each in known["runs"].values()],
        lambda known: known.update(runs={signature: 3 for signature in known["runs"]}),
    ],
)
def test_a_damaged_record_is_as_none(
    tmp_path: Path, resume: Callable[..., int], damage: Callable[[Any], object]
) -> None:
    runs = lay_out(tmp_path / "sweep", [SUCCEED] * 2)
    shutil.rmtree(runs[1].directory)
    known = files.read_json(tmp_path / "sweep" / planned_runs.FILE)
    damage(known)
    files.write_json(tmp_path / "sweep" / planned_runs.FILE, known)
    assert main(["status", str(tmp_path / "sweep")]) == 0
    assert resume(tmp_path / "sweep") in (0, 1) and runs[0].status() == run_directory.DONE
    assert not runs[1].directory.exists() and [path.name for path in tmp_path.iterdir()] == ["sweep"]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of each scancel, in a SLURM that has the job 8, and refuses to end the job 9."""
    asked: list[list[str]] = []

    def cancel(ids: Sequence[str]) -> None:
        asked.append(list(ids))
        if "9" in ids:
            raise queue.SlurmSilent("scancel: no answer")

    monkeypatch.setattr(schedulers, "query_slurm", lambda ids: {"8": None})
    monkeypatch.setattr(schedulers, "CANCELLED_S", 0.0)
    monkeypatch.setattr(queue, "scancel", cancel)
    return asked


def test_runs_of_a_scheduler(
    tmp_path: Path, resume: Callable[..., int], ended: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    queued, gone, unreachable = runs = lay_out(tmp_path, [SUCCEED] * 3)
    for run, job in zip(runs, ("8", "7", "9"), strict=True):
        files.write_json(run.path(run_directory.JOB), {"cluster": "slurm", "id": job})
        files.write_json(run.path(run_directory.STATE), {**run.state(), "status": run_directory.RUNNING})
    assert resume(tmp_path, "--failed", "seed=0", "seed=1") == 1  # what has a job is not lost
    assert statuses(runs) == [run_directory.RUNNING, run_directory.DONE, run_directory.RUNNING]
    assert main(["cancel", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "hydra/launcher=slurm: scancel: no answer; nothing was cancelled\n"
    assert queued.status() == run_directory.RUNNING
    assert main(["cancel", str(tmp_path), "seed=0"]) == 0
    assert ended == [["8", "9"], ["8"]] and queued.status() == run_directory.CANCELLED


def test_a_run_whose_job_was_queued_again_is_cancelled_too(
    tmp_path: Path, ended: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says that it was cancelled, until its job begins again; one whose job is gone has been."""
    runs = lay_out(tmp_path, [SUCCEED] * 2)
    for run, job in zip(runs, ("8", "7"), strict=True):
        files.write_json(run.path(run_directory.JOB), {"cluster": "slurm", "id": job})
        state = {"status": run_directory.CANCELLED, "reason": "SLURM ended it", "attempts": [{"number": 1, "job": job}]}
        files.write_json(run.path(run_directory.STATE), {**run.state(), **state})
    assert main(["cancel", str(tmp_path)]) == 0
    assert ended == [["8"]] and "1 run of 2 cancelled" in capsys.readouterr().out
    assert [str(run.state()["reason"]).split()[0] for run in runs] == ["cancelled", "SLURM"]


@pytest.mark.thorough
def test_watch_follows_to_the_end(driven: Driven, tmp_path: Path) -> None:
    wait = f"until [ -e '{tmp_path}/watched' ]; do sleep 0.05; done; "
    driven(wait + SUCCEED, f"{wait}echo why >&2; exit 1")
    command = [sys.executable, "-m", "sweep", "watch", str(tmp_path), "--interval", "0.1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        (tmp_path / "watched").touch()
        out, err = watching.communicate(timeout=120)
    assert (watching.returncode, err) == (1, "")
    news = out.splitlines()
    assert "2 runs: " in first and "run by pid" in first
    assert sorted(line.split()[1] for line in news[:2]) == ["done", "failed"]
    assert news[2].endswith("2 runs: 1 done, 1 failed; nobody is running it")
    assert news[-1] == f"  python -m sweep resume {os.path.relpath(tmp_path, ROOT)}"


def test_to_end_watching_does_not_end_the_sweep(driven: Driven, tmp_path: Path) -> None:
    (run,) = driven(SLEEP)
    command = [sys.executable, "-m", "sweep", "watch", str(tmp_path)]
    watching = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None and "run by pid" in watching.stdout.readline()
    eventually(lambda: run.status() == run_directory.RUNNING)
    time.sleep(1)  # it waits for its next look: a moment earlier one SIGINT of many was not heeded
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=120)
    assert watching.returncode == 130 and err == ""
    assert out.endswith(f"the sweep goes on; to end it: python -m sweep cancel {os.path.relpath(tmp_path, ROOT)}\n")
    assert run.status() == run_directory.RUNNING and len(left([run])) >= 2


@pytest.mark.parametrize(
    ("status", "code"), [(run_directory.DONE, 0), (run_directory.DIVERGED, 1), (run_directory.PENDING, 1)]
)
def test_watch_of_a_sweep_that_is_over(tmp_path: Path, status: str, code: int) -> None:
    write_run(tmp_path, "a=1-11111111", {"status": status}, {"status": status})
    assert main(["watch", str(tmp_path)]) == code


def test_watch_on_a_terminal_shows_what_runs_first() -> None:
    from sweep.status.overview import View
    from sweep.status.watch import select_visible

    views = [View(f"{i}", run_directory.DONE) for i in range(5)] + [
        View("f", run_directory.FAILED),
        View("r", run_directory.RUNNING),
    ]
    views += [View("p", run_directory.PENDING)]
    assert [view.name for view in select_visible(views, 3)] == ["0", "f", "r"]
    assert select_visible(views, 100) == views


def test_nobody_gets_in_while_a_sweep_is_handed_over(tmp_path: Path) -> None:
    runs = lay_out(tmp_path, [SLEEP])
    sweep = Sweep(tmp_path, fresh=False)
    over, got_in = threading.Event(), []

    def push() -> None:
        while not over.is_set():
            try:
                Sweep(tmp_path, fresh=False).close()
                got_in.append(True)
            except UsageError:
                continue

    pushing = threading.Thread(target=push)
    pushing.start()
    detach.start_detached(Session(), sweep, load_points(runs))
    sweep.close()
    eventually(lambda: runs[0].status() == run_directory.RUNNING)
    over.set()
    pushing.join()
    launcher = launcher_of(tmp_path)
    assert not got_in and launcher != os.getpid()
    assert os.getsid(launcher) == launcher  # no terminal can end it
    assert not any(os.readlink(f"/proc/{pid}/fd/{fd}").endswith(LOCK) for pid in left(runs) for fd in descriptors(pid))
    os.kill(launcher, signal.SIGTERM)
    eventually(lambda: read_lock_owner(tmp_path) is None)
    assert runs[0].status() == run_directory.CANCELLED and left(runs) == []


def descriptors(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/fd")


def test_a_launcher_that_cannot_begin_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = lay_out(tmp_path, [SUCCEED])
    sweep = Sweep(tmp_path, fresh=False)
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).touch()
    with pytest.raises(SystemExit) as ended:
        detach.start_detached(Session(), sweep, load_points(runs))
    sweep.close()
    out = capsys.readouterr().out
    assert ended.value.code == 1 and "could not begin" in out and "not what descriptor" in out
    assert runs[0].status() == run_directory.PENDING


def test_only_the_runs_that_were_asked_for(tmp_path: Path) -> None:
    runs = lay_out(tmp_path, [SUCCEED] * 2)
    sweep = Sweep(tmp_path, fresh=False)
    detach.start_detached(Session(), sweep, load_points(runs[1:]))
    sweep.close()
    eventually(lambda: read_lock_owner(tmp_path) is None)
    assert statuses(runs) == [run_directory.PENDING, run_directory.DONE]


# Requests


def test_a_request_is_there_until_it_has_been_heeded(tmp_path: Path) -> None:
    path = requests.send_request(tmp_path, Request(CANCEL, ("a", "b"), "me"))
    inbox = Inbox(tmp_path, every_s=0)
    coming = inbox.read_new()
    assert next(coming) == Request(CANCEL, ("a", "b"), "me") and path.exists()
    assert list(coming) == [] and not path.exists()
    requests.send_request(tmp_path, Request(RESUME, None))
    assert list(inbox.read_new()) == [Request(RESUME, None)]
    path = requests.send_request(tmp_path, Request(CANCEL, None))
    held = [inbox.hold() for _ in inbox.read_new()]
    assert held == [path] and path.exists() and list(inbox.read_new()) == []
    requests.remove_request(path)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"kind": "reboot", "runs": null}',
        '{"kind": "cancel"}',
        '{"kind": "cancel", "runs": [1]}',
        "[" * 9999,
    ],
)
def test_what_is_no_request_is_told_once_and_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / requests.FOLDER).mkdir()
    path = tmp_path / requests.FOLDER / "1.json"
    path.write_text(content)
    inbox = Inbox(tmp_path, every_s=0)
    assert list(inbox.read_new()) == [f"{path}: not a request; it is ignored"]
    assert list(inbox.read_new()) == [] and not path.exists()


def test_nothing_is_left_of_requests(tmp_path: Path) -> None:
    requests.send_request(tmp_path, Request(CANCEL, None))
    assert list(Inbox(tmp_path, every_s=0).read_new()) == [Request(CANCEL, None)]
    assert not (tmp_path / requests.FOLDER).exists()
    requests.send_request(tmp_path, Request(CANCEL, None))
    requests.clear_requests(tmp_path)
    assert not (tmp_path / requests.FOLDER).exists()
    first, second = (requests.send_request(tmp_path, Request(CANCEL, None)) for _ in range(2))
    requests.remove_request(first)
    assert second.exists()
    requests.remove_request(second)
    assert not (tmp_path / requests.FOLDER).exists()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / requests.FOLDER).mkdir()
    os.mkfifo(tmp_path / requests.FOLDER / "1.json")
    (tmp_path / requests.FOLDER / ".2.json.tmp").write_text("being written")
    assert list(Inbox(tmp_path, every_s=0).read_new()) == []


def test_a_launcher_looks_now_and_then(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, every_s=1000)
    assert list(inbox.read_new()) == []
    requests.send_request(tmp_path, Request(CANCEL, None))
    assert list(inbox.read_new()) == []


def test_requests_to_an_earlier_launcher_are_forgotten(tmp_path: Path) -> None:
    requests.send_request(tmp_path, Request(CANCEL, None))
    Sweep(tmp_path, fresh=False).close()
    assert list(Inbox(tmp_path, every_s=0).read_new()) == []


def test_a_request_reaches_nothing_outside_of_the_sweep(driven: Driven, tmp_path: Path) -> None:
    elsewhere = write_run(tmp_path / "other", "a=1-11111111", {"status": "pending", "attempts": []})
    (run,) = driven(SLEEP)
    path = requests.send_request(tmp_path, Request(CANCEL, (f"../other/runs/{elsewhere.name}", "/etc", "nobody"), "me"))
    eventually(lambda: not path.exists())
    assert elsewhere.status() == run_directory.PENDING
    eventually(lambda: run.status() == run_directory.RUNNING)
    assert runs_of(tmp_path) == [run]


def test_who_asks_waits_for_no_launcher_that_has_gone(driven: Driven, tmp_path: Path) -> None:
    (run,) = driven(SLEEP)
    launcher = launcher_of(tmp_path)
    os.kill(launcher, signal.SIGSTOP)  # it will not heed anything
    asking = subprocess.Popen([sys.executable, "-m", "sweep", "cancel", str(tmp_path)], cwd=ROOT)
    eventually(lambda: list((tmp_path / requests.FOLDER).glob("*.json")))
    os.kill(launcher, signal.SIGKILL)
    assert asking.wait(30) == 0
    assert run.status() == run_directory.CANCELLED and left([run]) == []
    assert not (tmp_path / requests.FOLDER).exists()


def test_settings_travel_in_the_configs(tmp_path: Path) -> None:
    (run,) = lay_out(tmp_path, [SUCCEED], wait=False, max_parallel=1)
    assert completion.load_config(run)["sweep"] == {"wait": False, "max_parallel": 1}
    assert json.loads(json.dumps(completion.load_config(run))) == completion.load_config(run)


@pytest.mark.parametrize("content", ["[1]", "", "{", '{"format": 1, "base": {}, "runs": {"a": 5}}'])
def test_a_damaged_record_is_named(
    content: str, tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose directory is gone as well cannot be known."""
    lay_out(tmp_path, [SUCCEED])
    assert resume(tmp_path) == 0
    (tmp_path / planned_runs.FILE).write_text(content)
    capsys.readouterr()
    assert resume(tmp_path) == 1
    assert "runs.json is damaged: " in capsys.readouterr().err
    assert main(["status", str(tmp_path)]) == 0
    assert "runs.json is damaged: " in capsys.readouterr().out


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/tmp", path)])
def test_what_is_no_lock_is_named(
    make: Callable[[Path], None], tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(tmp_path, [SUCCEED])
    (tmp_path / LOCK).unlink(missing_ok=True)
    make(tmp_path / LOCK)
    assert resume(tmp_path) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{tmp_path / LOCK}: ") and err.endswith("; valid is to remove it\n")


def test_a_finished_run_whose_files_are_damaged_is_named(
    tmp_path: Path, resume: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, cut, whole = runs = lay_out(tmp_path, [SUCCEED] * 3)
    assert resume(tmp_path) == 0
    damaged.path(run_directory.CONFIG).write_text("workers: 2\n")
    files.write_json(cut.path(run_directory.RESULT), {**(cut.result() or {}), "steps": 3})
    capsys.readouterr()
    assert resume(tmp_path) == 1
    err = capsys.readouterr().err
    assert f"{damaged.name}: done, but config.yaml has been removed or changed\n" in err
    assert f"{cut.name}: done, but steps.csv has been removed\n" in err and whole.name not in err
    assert statuses(runs) == [run_directory.DONE] * 3 and [len(run.state()["attempts"]) for run in runs] == [1] * 3
