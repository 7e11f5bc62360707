"""Sweeps that end with a race, or are nothing but one."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sweep.__main__
from gradsweep import run_directory
from tests.conftest import PLAYED, Program, eventually

pytestmark = pytest.mark.thorough

Multirun = Callable[..., tuple[int, str, str]]
SMALL = ("-m", "workers=2", "model=mlp", "max_steps=40", "sweep.pack=true")
GRID = (*SMALL, "compressor=none,qsgd", "hydra.sweep.dir=out")


@pytest.fixture
def start(start: Callable[..., Program], digits: Path) -> Callable[..., Program]:
    return lambda *words, without=("data",): start(*words, f"data.root={digits}", without=without)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def find_races(directory: Path) -> list[Path]:
    return sorted((directory / run_directory.RACES).iterdir())


def test_a_sweep_ends_with_a_race(
    tmp_path: Path, multirun: Multirun, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second command races nothing again, but a race that is damaged, whose report is written anew."""
    code, out, err = multirun(*GRID, "race.seconds=1")
    assert code == 0, err
    (race,) = find_races(tmp_path / "out")
    (heat,) = read(race / run_directory.RATIOS)["heats"]
    names = [name.rpartition("-")[0] for name in heat["runs"]]
    assert names == ["compressor=none", "compressor=qsgd"]
    events = [json.loads(line) for line in (tmp_path / "out" / run_directory.EVENTS).read_text().splitlines()]
    (ended,) = (event for event in events if event["event"] == "race_ended")
    assert ended["heats"] == [heat] and ended["status"] == "done" and ended["race"] == race.name
    assert "[race 1/1]  2 runs with 2 workers  done: " in out and "Throughput in the race, times that of none" in out
    with (tmp_path / "out" / run_directory.SUMMARY).open() as file:
        rows = {row["compressor"]: row for row in csv.DictReader(file)}
    for name, figures in zip(("none", "qsgd"), heat["runs"].values(), strict=True):
        assert float(rows[name]["throughput_ratio"]) == pytest.approx(figures["ratio"])
        assert float(rows[name]["iterations_per_second"]) == pytest.approx(1 / figures["step_s"])
        assert float(rows[name]["accuracy"]) > 0.3, "all was trained"
    written = (race / run_directory.RATIOS).stat().st_mtime_ns
    code, out, err = multirun(*GRID, "race.seconds=1", "sweep.resume=out")
    assert (
        code == 0
        and "[race 1/1]" not in out
        and "nothing has changed" in out
        and (race / run_directory.RATIOS).stat().st_mtime_ns == written
    )
    monkeypatch.chdir(tmp_path)
    (race / run_directory.RATIOS).write_text("{")
    capfd.readouterr()
    assert sweep.__main__.main(["resume", "out"]) == 0
    assert "Throughput in the race" in capfd.readouterr().out
    assert read(race / run_directory.RATIOS)["heats"] and read(race / run_directory.RESULT)


def test_a_sweep_without_races_is_raced_by_a_later_command_and_then_by_a_resume(
    tmp_path: Path, multirun: Multirun, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its runs are complete, so that their configs stay those of the first command."""
    code, out, err = multirun(*GRID, "race=off", without=PLAYED)
    assert code == 0 and not (tmp_path / "out" / run_directory.RACES).exists(), err
    monkeypatch.chdir(tmp_path)
    assert sweep.__main__.main(["resume", "out"]) == 0 and "[race" not in capfd.readouterr().out
    code, out, err = multirun(*GRID, "race.seconds=1", "sweep.resume=out")
    assert code == 0 and "[race 1/1]" in out, err
    (race,) = find_races(tmp_path / "out")
    (race / run_directory.RESULT).unlink()
    assert sweep.__main__.main(["resume", "out"]) == 0
    assert "[race 1/1]  2 runs with 2 workers, 1 s a heat at most" in capfd.readouterr().out


def test_disturbed_throughput_is_measured_again(tmp_path: Path, multirun: Multirun) -> None:
    """Without races each run alone: it has an interval and no ratio."""
    grid = (*GRID, "race=off", "race.seconds=1")
    assert multirun(*grid, without=PLAYED)[0] == 0
    runs = run_directory.runs_of(tmp_path / "out")
    for run in runs:
        result = run.result() or {}
        slower = 3 if run is runs[0] else 0.001  # than the best
        result["yardstick"] = {"best_s": 0.01, "slow_s": 0.01 * slower, "cores_of_others": 0, "by_host": {"a": 0.01}}
        run.path(run_directory.RESULT).write_text(json.dumps(result))
    code, out, err = multirun(*grid, "sweep.resume=out", "sweep.remeasure=1")
    assert code == 0 and "[again 1/1]  1 run with 2 workers  done: " in out and "[again 2" not in out, out + err
    assert [race.name for race in find_races(tmp_path / "out")] == [runs[0].name]
    with (tmp_path / "out" / run_directory.SUMMARY).open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    row = rows[runs[0].name]
    (heat,) = read(tmp_path / "out" / run_directory.RACES / runs[0].name / run_directory.RATIOS)["heats"]
    figures = heat["runs"][runs[0].name]
    assert float(row["iterations_per_second"]) == pytest.approx(1 / figures["step_s"])
    assert float(row["throughput_low"]) == pytest.approx(figures["throughput_low"]) and not row["throughput_ratio"]
    assert "Throughput in the race" not in out
    assert [name for name, row in rows.items() if row["trained_iterations_per_second"]] == [runs[0].name]


def test_only_a_race(tmp_path: Path, multirun: Multirun) -> None:
    """Then the runs are trained; a point that is added races against those before."""
    code, out, err = multirun(*GRID, "race=only", "race.seconds=1")
    assert code == 0, err
    assert "Throughput in the race, times that of none" in out
    assert "Runs that are not done" not in out
    states = [run.state() for run in run_directory.runs_of(tmp_path / "out")]
    assert {(state["status"], state["reason"]) for state in states} == {("pending", run_directory.ONLY_RACED)}
    assert not list((tmp_path / "out").glob("runs/*/attempt-*"))
    code, out, err = multirun(*GRID, "race=auto", "race.seconds=1", "sweep.resume=out", without=PLAYED)
    assert code == 0, err
    states = [run.state() for run in run_directory.runs_of(tmp_path / "out")]
    assert {(state["status"], state["reason"]) for state in states} == {("done", None)}
    more = [word.replace("none,qsgd", "signsgd") for word in GRID]
    code, out, err = multirun(*more, "race=only", "race.seconds=1", "sweep.resume=out", without=PLAYED)
    assert code == 0 and "[race 1/1]  3 runs with 2 workers  done: " in out, err


def test_another_shell_cancels_a_race(
    tmp_path: Path, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = start(*GRID, "race=auto", "race.seconds=600", "race.precision=1e-6")
    eventually(lambda: list(tmp_path.glob("out/races/*/ratios.json")))
    monkeypatch.chdir(tmp_path)
    assert sweep.__main__.main(["cancel", "out"]) == 0
    code, out, err = program.end()
    assert code == 1 and "cancelled by pid" in out + err and "python -m sweep resume out" in out + err
    assert {run.status() for run in run_directory.runs_of(tmp_path / "out")} == {run_directory.DONE}


def test_a_sweep_that_was_asked_to_stop_does_not_race(
    tmp_path: Path, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGUSR1, in a training and in a race, and by another shell."""
    slow = ("-m", "workers=2", "model=mlp", "sweep.pack=true", "max_steps=100000", "epochs=100000")
    for way in ("signal", "cancel"):
        grid = [*slow, "compressor=none,qsgd", f"hydra.sweep.dir={way}", "race=auto", "race.seconds=600"]
        program = start(*grid)
        eventually(lambda way=way: list(tmp_path.glob(f"{way}/runs/*/steps.csv")))
        monkeypatch.chdir(tmp_path)
        if way == "signal":
            program.process.send_signal(signal.SIGUSR1)
        else:
            assert sweep.__main__.main(["cancel", way]) == 0
        code, out, err = program.end()
        assert code == 1 and "[race" not in out + err and not (tmp_path / way / run_directory.RACES).exists()
    program = start(*GRID, "race=only", "race.seconds=600", "race.precision=1e-6")
    eventually(lambda: list(tmp_path.glob("out/races/*/ratios.json")))
    program.process.send_signal(signal.SIGUSR1)
    code, out, err = program.end()
    assert code == 1 and "asked to stop by SIGUSR1" in out + err and (tmp_path / "out" / "report.html").exists()


def test_ctrl_c_keeps_what_was_measured_and_a_resume_goes_on(
    tmp_path: Path, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = start(*GRID, "race=only", "race.seconds=600", "race.precision=1e-6")
    eventually(lambda: list(tmp_path.glob("out/races/*/ratios.json")))
    (ratios,) = tmp_path.glob("out/races/*/ratios.json")
    program.process.send_signal(signal.SIGINT)
    code, _, err = program.end()
    assert code == 130 and "python -m sweep resume out" in err
    assert read(ratios)["heats"][0]["runs"] and not (ratios.parent / run_directory.RESULT).exists()
    for config in tmp_path.glob("out/runs/*/config.yaml"):
        config.write_text(config.read_text().replace("seconds: 600", "seconds: 1"))
    monkeypatch.chdir(tmp_path)
    assert sweep.__main__.main(["resume", "out"]) == 0
    assert (ratios.parent / run_directory.RESULT).exists()
    assert {run.status() for run in run_directory.runs_of(tmp_path / "out")} == {run_directory.PENDING}


def test_a_server_with_a_rank_of_its_own_is_left_out_of_the_race(tmp_path: Path, multirun: Multirun) -> None:
    """Also where it is the first run, of which the race's world is made, and where nothing is left to compare."""
    grid = (*SMALL, "race=only", "race.seconds=1")
    code, out, err = multirun(*grid, "hydra.sweep.dir=out", "exchange=dedicated_server,parameter_server,allgather")
    assert code == 0, err
    assert "left out: exchange=dedicated_server-" in out and "its server has a rank of its own" in out
    assert "Throughput in the race, times that of none" in out
    code, out, err = multirun(*grid, "hydra.sweep.dir=out2", "exchange=dedicated_server", "compressor=none,qsgd")
    assert code == 0 and "nothing to compare" in out, err


def test_a_race_without_a_launcher_that_waits(tmp_path: Path, multirun: Multirun) -> None:
    code, out, err = multirun(*GRID, "race=only", "race.seconds=1", "sweep.wait=false")
    assert code == 0 and "[race 1/1]" not in out, err
    eventually(lambda: (tmp_path / "out" / "report.html").exists() and list(tmp_path.glob("out/races/*/result.json")))
    assert "[race 1/1]  2 runs with 2 workers  done: " in (tmp_path / "out" / "launcher.log").read_text()
