"""What a command with races finds and leaves in the directories of races."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from sweep.console.console import Verbosity
from sweep.directory.description import describe_command
from sweep.launch import races
from sweep.launch.races import describe_precision, lay_out_race, race_sweep
from sweep.launch.session import Session
from sweep.planning.races import RaceGroup, find_missing_races, group_runs
from sweep.settings.race import AUTO, OFF, ONLY, RaceSettings
from sweep.settings.resolved_point import ResolvedPoint
from tests.sweep import fakes
from tests.sweep.fakes import resolved
from tests.trainers.configs import compose_config

PLACE = {"mpi": {}, "launcher": {"cluster": "local"}}


def make_configs(sweep: Path, *changes: dict[str, Any]) -> dict[Run, dict[str, Any]]:
    return {
        Run(sweep / "runs" / f"run-{number}"): {**compose_config(**change), **PLACE}
        for number, change in enumerate(changes)
    }


@pytest.fixture
def group(tmp_path: Path) -> RaceGroup:
    (found,) = group_runs(tmp_path, make_configs(tmp_path, {}, {"compressor": "qsgd"}))
    return found


def lay_out(group: RaceGroup) -> Run:
    (config,) = make_configs(Path(), {}).values()
    return lay_out_race(group, resolved(config), RaceSettings(AUTO, seconds=2), {})


def test_what_an_earlier_race_measured_stays_until_there_is_more(group: RaceGroup) -> None:
    run = lay_out(group)
    for name in (run_directory.RESULT, run_directory.RATIOS):
        files.write_json(run.path(name), {"heats": [1]})
    run.path(run_directory.RACE).write_text("heat\n")
    assert lay_out(group) == run and not run.path(run_directory.RESULT).exists()
    assert files.read_json(run.path(run_directory.RATIOS)) == {"heats": [1]} and run.path(run_directory.RACE).exists()
    assert (files.read_json(run.path(run_directory.RACE_PLAN)) or {})["seconds"] == 2


def test_what_is_in_the_way_is_renamed(group: RaceGroup, tmp_path: Path) -> None:
    """A link is not followed: no reader follows it either."""
    races_of = group.directory.parent
    races_of.write_text("a file")
    lay_out(group)
    assert (tmp_path / "races.damaged-1").read_text() == "a file"
    elsewhere = tmp_path / "elsewhere"
    group.directory.rename(elsewhere)
    group.directory.symlink_to(elsewhere)
    (elsewhere / "theirs").write_text("")
    assert lay_out(group).directory.is_dir() and not group.directory.is_symlink()
    assert (group.directory.parent / f"{group.directory.name}.damaged-1").is_symlink()
    assert (elsewhere / "theirs").exists()
    for name in (run_directory.RESULT, run_directory.RATIOS, run_directory.RACE):
        (group.directory / name).mkdir()
    (group.directory / run_directory.RACE_PLAN).unlink()
    (group.directory / run_directory.RACE_PLAN).symlink_to(tmp_path / "plan")
    run = lay_out(group)
    assert run_directory.runs_of(tmp_path, run_directory.RACES) == [run]
    assert files.read_json(run.path(run_directory.RACE_PLAN)) and not (tmp_path / "plan").exists()


@pytest.mark.parametrize("damage", ["file", "link", "plan"])
def test_a_race_that_cannot_be_read_is_missing(group: RaceGroup, tmp_path: Path, damage: str) -> None:
    configs = make_configs(tmp_path, {}, {"compressor": "qsgd"})
    run = lay_out(group)
    for name in (run_directory.RESULT, run_directory.RATIOS):
        files.write_json(run.path(name), {"status": "done"})
    assert find_missing_races(tmp_path, configs) == []
    if damage == "plan":
        run.path(run_directory.RACE_PLAN).write_text('{"racers": [1, {"a": 2}]}')
    else:
        run.directory.rename(tmp_path / "elsewhere")
        run.directory.symlink_to("nowhere") if damage == "link" else run.directory.write_text("")
    assert [each.directory for each in find_missing_races(tmp_path, configs)] == [run.directory]


def test_of_equal_costs_one_races_that_is_done_and_a_race_holds_for_all(tmp_path: Path) -> None:
    configs = make_configs(tmp_path, {}, {"compressor": "qsgd"}, *({"optimizer": {"lr": lr}} for lr in (9.0, 0.1, 0.2)))
    for run, status in zip(configs, ("diverged", "done", "failed", "pending", "done"), strict=True):
        run.directory.mkdir(parents=True)
        files.write_json(run.path(run_directory.STATE), {"status": status, "attempts": []})
    (group,) = group_runs(tmp_path, configs)
    assert [run.name for run in group.racers] == ["run-4", "run-1"]
    assert [run.name for run in group.racers[Run(tmp_path / "runs" / "run-4")]] == ["run-0", "run-2", "run-3", "run-4"]
    run = lay_out(group)
    for name in (run_directory.RESULT, run_directory.RATIOS):
        files.write_json(run.path(name), {"status": "done"})
    files.write_json(Run(tmp_path / "runs" / "run-3").path(run_directory.STATE), {"status": "done", "attempts": []})
    (after,) = group_runs(tmp_path, configs)
    assert [run.name for run in after.racers] == ["run-3", "run-1"]
    assert find_missing_races(tmp_path, configs) == [], "another of the same costs would tell nothing more"


def test_precision_in_words() -> None:
    figures = [{"blocks": 9, "precision": precision, "ratio": 0.5} for precision in (0.01, 0.025)]
    assert describe_precision(figures) == "18 blocks, ratios to ±2.5 %"
    without = {"blocks": 1, "precision": None, "ratio": 0.5}  # as files have what is infinite
    assert math.inf not in [each["precision"] for each in figures]
    assert describe_precision([*figures, without]) == "19 blocks, ratios without an interval"
    assert describe_precision([{**figures[0], "precision": 5.9}]) == "9 blocks, ratios too noisy to compare"
    assert describe_precision([{**figures[0], "ratio": None}]) == "9 blocks, throughput to ±1 %"


def test_a_baseline_whose_trial_failed_races_as_configured_once(group: RaceGroup, tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Task:
        limits: Any
        module: Any = None
        workers: int = 0

    plans: list[Any] = []

    def submit(tasks: Any) -> list[Any]:
        run = Run(group.directory)
        plans.append(files.read_json(run.path(run_directory.RACE_PLAN)))
        attempt = run.attempt(len(plans))
        attempt.mkdir()
        files.write_json(attempt / "failure-0.json", {"run": group.baseline.name, "in_trial": True})
        return [SimpleNamespace(ended=True, status="failed", reason="no memory")]

    executor: Any = SimpleNamespace(submit_runs=submit)
    events: Any = SimpleNamespace(events=Mock(), verbosity=Verbosity(quiet=True))
    tasks: Any = lambda run, point, others: Task(point.settings.limits)  # noqa: E731
    (config,) = make_configs(Path(), {}).values()
    races._run_race(executor, tasks, group, [resolved(config)], RaceSettings(AUTO), "race", events, Mock(), [])
    assert [plan["untuned"] for plan in plans] == [None, "its trial failed: no memory"]
    assert [plan["without"] for plan in plans] == [{}, {}], "then nothing is left to compare"


def test_the_last_command_with_points_decides_whether_a_resume_races(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the configs of complete runs, which are as they were computed; without races no config is loaded."""
    fakes.lay_out(tmp_path, [fakes.SUCCEED] * 2)
    loaded: list[Run] = []
    racing: list[int] = []

    def load(run: Run) -> ResolvedPoint:
        loaded.append(run)
        return resolved({})

    def find(directory: Path, configs: Any) -> list[RaceGroup]:
        racing.append(len(configs))
        return []

    monkeypatch.setattr(races, "load_point", load)
    monkeypatch.setattr(races, "find_missing_races", find)
    race_sweep(Session(), tmp_path, {})
    assert not loaded and not racing, "a version that could not race"
    for mode in (ONLY, OFF, AUTO):
        describe_command(tmp_path, ["sh"], ["a=1"], race=dataclasses.asdict(RaceSettings(mode)))
        describe_command(tmp_path, ["sh"])  # a resume
        race_sweep(Session(), tmp_path, {})
    assert racing == [2, 0] and len(loaded) == 4, "none is done, so that none races after training"
    race_sweep(Session(), tmp_path, {Run(tmp_path / "runs/x"): resolved({}, race=RaceSettings(OFF))})
    assert racing == [2, 0]
