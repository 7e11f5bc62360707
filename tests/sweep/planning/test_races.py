"""Which runs of a sweep race against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from gradsweep.files import write_json
from gradsweep.run_directory import CONFIG, RACE_PLAN, RATIOS, RESULT, STATE, Run
from gradsweep.signature import ADDED_OPTIONS
from sweep.planning.races import RaceGroup, explain_untuned, find_disturbed, group_runs, refuse_nothing_to_race
from sweep.settings.race import ONLY, WITHOUT, RaceSettings, parse_race
from sweep.settings.resolved_point import ResolvedPoint
from tests.sweep.fakes import resolved
from tests.trainers.configs import compose_config

PLACE = {"mpi": {}, "launcher": {"cluster": "local"}}


def points(*changes: dict[str, Any], race: RaceSettings = WITHOUT) -> dict[Run, ResolvedPoint]:
    return {
        Run(Path(f"runs/run-{number}")): resolved({**compose_config(**change), **PLACE}, race=race)
        for number, change in enumerate(changes)
    }


def configs(*changes: dict[str, Any]) -> dict[Run, dict[str, Any]]:
    return {run: point.config for run, point in points(*changes).items()}


def names(*changes: dict[str, Any]) -> list[list[str]]:
    """By race, the runs that race, the baseline first, each with those that it stands for."""
    races = group_runs(Path(), configs(*changes))
    return [["+".join(run.name[4:] for run in served) for served in race.racers.values()] for race in races]


def test_points_of_one_place_race_and_the_baseline_is_first() -> None:
    changes = [{"compressor": name, "workers": workers} for name in ("qsgd", "none", "svd") for workers in (2, 4)]
    assert names(*changes) == [["2", "0", "4"], ["3", "1", "5"]]


def test_without_a_baseline_it_is_the_first_point() -> None:
    assert names({"compressor": "svd"}, {"compressor": "qsgd"}) == [["0", "1"]]


def test_one_races_for_all_that_cost_the_same() -> None:
    same = [{"seed": 1}, {"epochs": 3}, {"optimizer": {"lr": 0.5}}, {"schedule": "cosine"}]
    assert names({}, *same) == []
    assert names({}, {"compressor": "qsgd"}, *same) == [["0+2+3+4+5", "1"]]


@pytest.mark.parametrize(
    "other",
    [
        {"model": "logistic"},
        {"batch": {"size": 32}},
        {"threads_per_worker": 2},
        {"dataset": "mnist"},
        {"precision": "bf16"},
    ],
)
def test_other_work_is_another_race(other: dict[str, Any]) -> None:
    assert names({}, {"compressor": "qsgd"}, other, {"compressor": "qsgd", **other}) == [["0", "1"], ["2", "3"]]


def test_another_transport_is_another_place() -> None:
    made = configs(*[{"compressor": name} for name in ("none", "qsgd") for _ in range(2)])
    for number, config in enumerate(made.values()):
        config["mpi"] = {"transport": ("shm", "tcp")[number % 2]}
    races = group_runs(Path(), made)
    assert [[run.name[4:] for run in race.racers] for race in races] == [["0", "2"], ["1", "3"]]


def test_runs_of_earlier_versions_race_with_those_of_this_one() -> None:
    """A method without the options that its version lacked is the same method, in the same place."""
    added = ADDED_OPTIONS["exchange"]
    made = configs({}, {"compressor": "qsgd"}, {"seed": 1}, {"seed": 1, "compressor": "qsgd"})
    for config in list(made.values())[:2]:
        del config["network"]
        config["exchange"] = {key: config["exchange"][key] for key in config["exchange"].keys() - added.keys()}
    list(made.values())[3]["mpi"] = {"transport": "shm"}
    (race,) = group_runs(Path(), made)
    assert [[run.name[4:] for run in served] for served in race.racers.values()] == [["0", "2"], ["1", "3"]]


@pytest.mark.parametrize(
    "other", [{"memory": "residual"}, {"algorithm": "local_sgd"}, {"exchange": {"overlap": True}}, {"kernels": "torch"}]
)
def test_other_methods_race(other: dict[str, Any]) -> None:
    assert names({}, other) == [["0", "1"]]


def test_a_race_with_another_run_is_another_race(tmp_path: Path) -> None:
    two, three = configs({}, {"compressor": "qsgd"}), configs({}, {"compressor": "qsgd"}, {"compressor": "svd"})
    (before,), (after,) = group_runs(tmp_path, two), group_runs(tmp_path, three)
    assert before.directory == after.directory and not before.is_planned()
    before.directory.mkdir(parents=True)
    write_json(before.directory / RACE_PLAN, before.build_plan(5, 0.1, {"run-1": "failed"}))
    assert before.is_planned() and not after.is_planned()


def test_a_run_that_failed_in_a_race_is_left_out_of_the_plan() -> None:
    (race,) = group_runs(Path(), configs({}, {"compressor": "qsgd"}, {"compressor": "svd"}))
    plan = race.build_plan(5, 0.1, {"run-1": "no memory"})
    assert plan["runs"] == ["../../runs/run-0", "../../runs/run-2"] and list(plan["racers"]) == [
        "run-0",
        "run-1",
        "run-2",
    ]
    assert plan["without"] == {"run-1": "no memory"} and (plan["seconds"], plan["precision"]) == (5, 0.1)


def test_a_race_of_nothing_is_refused() -> None:
    only = RaceSettings(ONLY)
    refuse_nothing_to_race(list(points({}, {"compressor": "qsgd"}, race=only).values()))
    refuse_nothing_to_race(list(points({}).values()))
    for alone in ([{}], [{}, {"seed": 1}], [{}, {"compressor": "qsgd", "workers": 4}]):
        with pytest.raises(UsageError, match="race=only: valid is auto, or a grid of at least two methods"):
            refuse_nothing_to_race(list(points(*alone, race=only).values()))


def test_settings() -> None:
    given = {"mode": "only", "seconds": 2, "precision": 0.1}
    assert parse_race({"race": {**given, "tune": True}}) == RaceSettings("only", 2, 0.1)
    assert parse_race({"race": given}) == RaceSettings("only", 2, 0.1, tune=False), "as in versions without it"
    assert parse_race({}).mode == "off", "a sweep of a version that could not race"
    for key, value, valid in (
        ("seconds", 0, "a number above 0"),
        ("precision", 1.5, "above 0 to 1"),
        ("mode", "on", "auto"),
    ):
        with pytest.raises(UsageError, match=f"race.{key}={value}: .*valid is .*{valid}"):
            parse_race({"race": {key: value}})


def test_a_race_of_nothing_is_refused_in_a_new_grid_only() -> None:
    """Points that are added to a sweep race against those that it has; a search has no results to go by."""
    alone, two = (list(points(*changes, race=RaceSettings(ONLY)).values()) for changes in ([{}], [{}, {"seed": 1}]))
    refuse_nothing_to_race(alone, more=True)
    for batch in (alone, two):
        with pytest.raises(UsageError, match="race=only: valid is auto or off in a search"):
            refuse_nothing_to_race(batch, search=True)


QUIET = {"best_s": 0.001, "slow_s": 0.00105, "cores_of_others": 0.01, "by_host": {"a": 0.001}}
SLOW = {**QUIET, "slow_s": 0.002}
TAKEN = {**QUIET, "cores_of_others": 0.5}


@pytest.fixture
def trained(tmp_path: Path) -> dict[Run, dict[str, Any]]:
    """Three runs that are done: one was undisturbed, two were not."""
    changes = [{}, {"compressor": "qsgd"}, {"workers": 4}]
    made = {Run(tmp_path / "runs" / run.name): config for run, config in configs(*changes).items()}
    for run, yardstick in zip(made, (QUIET, SLOW, TAKEN), strict=True):
        run.directory.mkdir(parents=True)
        write_json(run.path(STATE), {"status": "done", "attempts": []})
        write_json(run.path(RESULT), {"status": "done", "yardstick": yardstick})
        run.path(CONFIG).write_text("{}")
    return made


def finish(race: RaceGroup, yardstick: dict[str, Any], **more: Any) -> None:
    """Leave what a race leaves that all its runs have come through."""
    race.directory.mkdir(parents=True, exist_ok=True)
    plan = race.build_plan(5, 0.1, {})
    heat = {"runs": {run.name: {} for run in race.racers}, "yardstick": yardstick}
    files = {RACE_PLAN: plan, RESULT: {"status": "done"}, RATIOS: {"racers": plan["racers"], "heats": [heat], **more}}
    for name, content in files.items():
        write_json(race.directory / name, content)
    (race.directory / CONFIG).write_text("{}")


def directories(races: Sequence[RaceGroup]) -> list[str]:
    return [race.directory.name for race in races]


def test_disturbed_runs_without_a_race_are_measured_alone(tmp_path: Path, trained: dict[Run, dict[str, Any]]) -> None:
    again = find_disturbed(tmp_path, trained)
    assert directories(again) == ["run-1", "run-2"]
    assert [list(race.racers) for race in again] == [[race.baseline] for race in again]
    finish(again[0], QUIET)
    finish(again[1], TAKEN)
    assert directories(find_disturbed(tmp_path, trained)) == ["run-2"], "it was disturbed again"
    finish(again[1], QUIET)
    assert find_disturbed(tmp_path, trained) == []


def test_disturbed_runs_that_race_are_measured_again_by_their_race(
    tmp_path: Path, trained: dict[Run, dict[str, Any]]
) -> None:
    (race,) = group_runs(tmp_path, trained)
    finish(race, QUIET)
    assert directories(find_disturbed(tmp_path, trained)) == ["run-2"], "the others have an undisturbed throughput"
    finish(race, SLOW)
    assert directories(find_disturbed(tmp_path, trained)) == [race.directory.name, "run-2"]
    finish(race, QUIET, left_out={"run-2": "cannot race"})
    assert find_disturbed(tmp_path, trained) == [], "what cannot race is not tried again"


def test_of_several_heats_those_count_by_which_reports_judge_the_times(
    tmp_path: Path, trained: dict[Run, dict[str, Any]]
) -> None:
    """Times of later heats are converted to those of the first heat with the same baseline."""
    (race,) = group_runs(tmp_path, trained)
    (first, second) = (run.name for run in race.racers)
    heats = [{"baseline": first, "runs": {name: {}}, "yardstick": QUIET} for name in (first, second)]
    for baseline, yardstick, is_again in ((first, SLOW, False), (second, SLOW, True), (second, QUIET, False)):
        heats[1] |= {"baseline": baseline, "yardstick": yardstick}
        finish(race, QUIET, heats=heats)
        found = directories(find_disturbed(tmp_path, trained))
        assert (race.directory.name in found) == is_again, (baseline, yardstick)


@pytest.mark.parametrize("content", ["{", "[]", '{"heats": [3, {"runs": 1}], "racers": 1, "left_out": 2}'])
def test_damaged_measurements_are_no_error(tmp_path: Path, trained: dict[Run, dict[str, Any]], content: str) -> None:
    (race,) = group_runs(tmp_path, trained)
    finish(race, SLOW)
    (race.directory / RATIOS).write_text(content)
    assert directories(find_disturbed(tmp_path, trained)) == ["run-1", "run-2"]


@pytest.mark.parametrize(
    ("changes", "overrides", "why"),
    [
        ({}, [], None),
        ({}, ["seed=1", "exchange=allreduce"], None),
        ({"exchange": {"tune": True}}, ["exchange=tuned"], None),
        ({}, ["exchange.overlap=false"], "exchange.overlap is set"),
        ({"exchange": {"overlap": True}}, [], "exchange.overlap is set"),
        ({"exchange": {"part_mib": 2.0}}, [], "exchange.part_mib is set"),
        ({"exchange": {"allreduce": "ring"}}, [], "exchange.allreduce is set"),
        ({"exchange": "sharded"}, [], None),
    ],
)
def test_a_baseline_is_tuned_unless_its_setting_was_chosen(
    changes: dict[str, Any], overrides: list[str], why: str | None
) -> None:
    config = compose_config(**changes)
    assert explain_untuned(RaceSettings(), config, overrides) == why
    assert explain_untuned(RaceSettings(tune=False), config, overrides) == "race.tune=false"
    (group,) = group_runs(Path(), configs({}, {"compressor": "qsgd"}))
    assert group.build_plan(5, 0.1, {}, why)["untuned"] == why
