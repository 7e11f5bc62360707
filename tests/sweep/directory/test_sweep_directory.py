"""The directory of a sweep: opened and closed without a trace, laid out as a whole or known to be torn."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run, runs_of
from gradsweep.sweeps import planned_runs
from sweep.__main__ import main
from sweep.console.console import Output, Verbosity
from sweep.console.messages import show_failures
from sweep.directory import run_identity, run_layout
from sweep.directory.description import add_to_description, describe_command, explain_torn, read_description
from sweep.directory.sweep_directory import LOCK, Sweep
from sweep.launch import conclude, execute
from sweep.launch.conclude import report_interrupted
from sweep.launch.session import Session
from sweep.launch.take_to_end import take_to_end
from sweep.provenance import record as provenance
from sweep.settings.resolved_point import parse_point
from sweep.system import signals
from sweep.system.signals import Interrupted
from tests.sweep.fakes import SUCCEED, config, lay_out, without_data_and_report, write_run

MPI = ["sh", "-c", "exit 0", "{workers}"]


def test_nothing_is_left_of_a_sweep_that_nothing_was_written_of(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for directory in (mine, tmp_path / "new"):
        Sweep(directory, fresh=False).close()
    assert list(tmp_path.rglob("*")) == [mine]


def test_a_lock_that_was_taken_away_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the file and locking it, whoever had it has taken it back: another could make a new one."""
    flock, came = fcntl.flock, list[int]()

    def late(file: Any, operation: int) -> None:
        if not came:
            came.append(operation)
            (tmp_path / LOCK).unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    sweep = Sweep(tmp_path, fresh=False)
    assert os.path.samestat(os.fstat(sweep.descriptor), (tmp_path / LOCK).stat())
    with pytest.raises(UsageError, match="another process is running this sweep"):
        Sweep(tmp_path, fresh=False)
    sweep.close()


def interrupted_when(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Ctrl-C comes while points are laid out: at a step of that, or when the first run is there."""
    create_runs = run_layout.create_runs

    def one(places: list[run_layout.RunLocation], silent: bool) -> list[Run]:
        create_runs(places[:1])
        raise Interrupted(130)

    def at_once(*_: object, **__: object) -> None:
        raise Interrupted(130)

    where = {"locate_runs": execute, "note": planned_runs, "describe": provenance}
    if step == "create_runs":
        monkeypatch.setattr(run_layout, "create_runs", one)
    else:
        monkeypatch.setattr(where[step], step, at_once)
    without_data_and_report(monkeypatch)


def located(sweep: Sweep, configs: list[dict[str, Any]], typed: list[dict[str, str]]) -> list[run_layout.RunLocation]:
    return run_layout.locate_runs(sweep.directory, run_identity.name_points(configs, typed))


CONFIGS = [config(seed) for seed in range(3)]
TYPED = [{"seed": str(seed)} for seed in range(3)]


def interrupted(directory: Path, capsys: pytest.CaptureFixture[str], **sweep: Any) -> str:
    """What a command says that is interrupted while it lays out a sweep."""
    configs = [config(seed, **sweep) for seed in range(3)]
    session = Session()
    with pytest.raises(Interrupted) as found:
        execute.execute(session, configs, TYPED, directory, dict, fresh=False)
    report_interrupted(found.value, session)
    return capsys.readouterr().err


def test_a_sweep_that_is_interrupted_while_it_is_laid_out_goes_on_from_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "sweep"
    interrupted_when(monkeypatch, "create_runs")
    told = interrupted(directory, capsys)
    assert told == f"\ninterrupted. To go on:\n  python -m sweep resume {os.path.relpath(directory)}\n"
    monkeypatch.undo()
    assert main(["status", str(directory)]) == 0
    assert "3 runs: 1 pending, 2 missing" in capsys.readouterr().out
    without_data_and_report(monkeypatch)
    assert main(["resume", str(directory)]) == 0
    assert [run.status() for run in runs_of(directory)] == ["done"] * 3


@pytest.mark.parametrize("step", ["locate_runs", "note", "describe"])
def test_a_sweep_that_is_interrupted_before_it_is_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    interrupted_when(monkeypatch, step)
    assert interrupted(tmp_path / "sweep", capsys) == "" and not list(tmp_path.iterdir())


def test_points_that_were_not_recorded_yet_only_their_command_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More points for a sweep that is there."""
    sweep = Sweep(tmp_path / "sweep", fresh=False)
    sweep.lay_out(located(sweep, CONFIGS[:1], TYPED[:1]), [], MPI)
    sweep.close()
    interrupted_when(monkeypatch, "note")
    told = interrupted(tmp_path / "sweep", capsys, resume=str(tmp_path / "sweep"))
    assert "To go on:" in told and f"sweep.resume={os.path.relpath(tmp_path / 'sweep')}" in told
    assert len(runs_of(tmp_path / "sweep")) == 1


def test_a_report_that_is_interrupted_is_all_that_is_left_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, "a=1-11111111", {"status": "done"}, {"status": "done"})
    (tmp_path / run_directory.SWEEP).touch()
    session = Session()
    session.directory = tmp_path
    report_interrupted(Interrupted(143), session)
    assert capsys.readouterr().err.endswith(f"To report on them:\n  python -m reports {os.path.relpath(tmp_path)}\n")


def test_so_it_is_where_the_last_run_has_just_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = lay_out(tmp_path, [SUCCEED])

    def check() -> None:
        if runs[0].result() is not None:
            raise Interrupted(143)

    monkeypatch.setattr(signals, "raise_deferred", check)
    sweep = Sweep(tmp_path, fresh=False)
    with pytest.raises(Interrupted) as found:
        take_to_end(Session(), sweep, {runs[0]: parse_point(config(0))})
    sweep.close()
    assert runs[0].status() == run_directory.DONE and not found.value.reported
    assert "To go on" not in capsys.readouterr().out


def test_a_sweep_that_an_earlier_version_has_not_laid_out_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no record of its runs."""
    directory = tmp_path / "sweep"
    run_layout.lay_out(directory, run_identity.name_points(CONFIGS[:1], TYPED[:1]))
    (directory / run_directory.SWEEP).write_text("format: 1\nlaying_out: 3\n")
    lacks = "it was ended while its 3 points were laid out, and some are not there; its own command, with sweep.resume="
    assert lacks in str(explain_torn(directory))
    assert main(["status", str(directory)]) == 0
    assert lacks in capsys.readouterr().out
    without_data_and_report(monkeypatch)
    monkeypatch.setattr("sweep.launch.take_to_end.run_or_leave", lambda *_, **__: None)
    assert main(["resume", str(directory)]) == 1
    assert lacks in capsys.readouterr().err and explain_torn(directory) is not None
    sweep = Sweep(directory, fresh=False)
    assert len(sweep.lay_out(located(sweep, CONFIGS, TYPED), [], MPI)) == 3
    sweep.close()
    assert explain_torn(directory) is None


def test_a_report_does_not_hear_ctrl_c_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends it to all processes of our group; this one would answer with a traceback."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncut -d' ' -f6 /proc/$$/stat > '{tmp_path}/session'\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert conclude.write_report(tmp_path, Verbosity(quiet=True))
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


def test_a_run_whose_end_could_not_be_written_is_not_said_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a full disk state.json stays as it was."""
    run = write_run(tmp_path, "a=1-11111111", {"status": "running", "attempts": [{"number": 1}]})
    show_failures([run], Output(), "")
    assert "it has ended, but its state could not be written; a resume sets that right\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        "format: 1\ncreated: then\ncommand: typed\nresumed: x\n",
        "format: 1\ncreated: then\ncommand: typed\nresumed: [1, null]\n",
        "format: 1\ncreated: then\ncommand: typed\nswept: 5\noverrides: 7\n",
        "format: 1\ncreated: then\ncommand: typed\nswept: [1, [2]]\n",
        "format: 1\ncreated: then\ncommand: typed\nswept: {a: 1}\nresumed: {overrides: 1}\n",
    ],
)
def test_a_description_whose_values_are_odd_is_added_to(content: str, tmp_path: Path) -> None:
    (tmp_path / run_directory.SWEEP).write_text(content)
    sweep = Sweep(tmp_path, fresh=False)
    describe_command(tmp_path, MPI)
    add_to_description(tmp_path, calibration={"s": 1})
    more = located(sweep, [config(1), config(2)], [{"seed": "1"}, {"seed": "2"}])
    sweep.lay_out(more, ["seed"], MPI, again=True)
    sweep.close()
    known = yaml.safe_load((tmp_path / run_directory.SWEEP).read_text())
    assert (known["format"], known["created"], known["command"]) == (1, "then", "typed")
    assert known["swept"] == ["seed"] and known["resumed"][-1]["calibration"] == {"s": 1}
    assert known["resumed"][-1]["overrides"] == ["seed=1", "seed=2"]
    assert read_description(tmp_path)["calibration"] == {"s": 1}


@pytest.mark.parametrize("content", ["[]", "", "5", "a: [", "\0", "swept: [lr]", "a: &a [1]\nb: *a", None])
def test_a_description_that_is_none_is_set_aside_and_begun_anew(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / run_directory.SWEEP
    path.mkdir() if content is None else path.write_text(content)
    assert read_description(tmp_path) in ({}, {"swept": ["lr"]}) and explain_torn(tmp_path) is None
    for number in (1, 2):
        sweep = Sweep(tmp_path, fresh=False)
        describe_command(tmp_path, MPI)
        sweep.close()
        known = yaml.safe_load(path.read_text())
        assert known["format"] == 1 and known["created"] and known["damaged"] == "sweep.yaml.damaged-1"
        assert len(known.get("resumed", [])) == number - 1
    kept = path.with_name("sweep.yaml.damaged-1")
    assert kept.is_dir() if content is None else kept.read_text() == content
