"""Signatures, names and what is missing."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sweep import plan
from sweep import run as names
from sweep.plan import Point
from sweep.states import write_state

CONFIG: dict[str, Any] = {
    "workers": 2,
    "seed": 0,
    "compressor": {"name": "qsgd", "levels": 7},
    "data": {"root": "/here"},
    "sweep": {"name": None},
    "mpi": {"command": ["mpirun"]},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    *parents, key = path.split(".")
    section = config
    for parent in parents:
        section = section[parent]
    section[key] = value
    return config


@pytest.mark.parametrize(("path", "value"), [("data.root", "/there"), ("sweep.name", "x"), ("mpi.command", ["srun"])])
def test_places_are_not_in_the_signature(path: str, value: Any) -> None:
    assert plan.signature(changed(path, value)) == plan.signature(CONFIG)


@pytest.mark.parametrize(("path", "value"), [("workers", 4), ("compressor.levels", 8), ("seed", "0"), ("new", 1)])
def test_everything_else_is(path: str, value: Any) -> None:
    assert plan.signature(changed(path, value)) != plan.signature(CONFIG)


def test_a_section_that_came_later_is_in_the_signature_where_it_changes_something() -> None:
    assert plan.signature({**CONFIG, "network": {"name": "none"}}) == plan.signature(CONFIG)
    for network in ({"name": "real"}, {"name": "none", "more": 1}):
        assert plan.signature({**CONFIG, "network": network}) != plan.signature(CONFIG)


def test_the_order_of_keys_is_not() -> None:
    assert plan.signature(dict(reversed(CONFIG.items()))) == plan.signature(CONFIG)


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=200), max_size=5))
def test_names_are_safe_in_any_file_system(swept: dict[str, str]) -> None:
    name = plan.readable_name(swept)
    assert 0 < len(name) <= 120
    assert not set(name) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=,+-")


def test_only_keys_that_differ_are_swept() -> None:
    points = [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}, {"a": "2", "b": "x", "c": "1"}]
    assert plan.swept_keys(points) == ["a", "c"]


def test_a_single_run_is_named_by_what_it_computes_not_by_where() -> None:
    typed = {"workers": "2", "sweep.include": '["workers == 2"]', "data.root": "/somewhere", "gpus": "[0]"}
    (only,) = plan.points_of([changed("workers", 2)], [typed])
    assert plan.readable_name(only.swept) == "workers=2"
    assert len(only.overrides) == 4


def point(workers: int) -> Point:
    return Point(changed("workers", workers), {"workers": str(workers)})


def test_directories_are_laid_out_once(tmp_path: Path) -> None:
    runs = plan.lay_out(tmp_path, [point(2), point(4), point(2)])
    assert runs[0] == runs[2]
    assert [run.name for run in runs[:2]] == [f"workers={w}-{plan.signature(point(w).config)[:8]}" for w in (2, 4)]
    assert yaml.safe_load(runs[1].path(names.CONFIG).read_text()) == point(4).config
    assert runs[0].state()["status"] == names.PENDING
    write_state(runs[0], status=names.DONE)
    names.write_json(runs[0].path(names.RESULT), {"status": names.DONE})
    assert plan.lay_out(tmp_path, [point(2), point(8)])[0].status() == names.DONE  # found again, not overwritten
    assert len(names.runs_of(tmp_path)) == 3


def test_a_run_is_found_again_without_its_state(tmp_path: Path) -> None:
    (run,) = plan.lay_out(tmp_path, [point(2)])
    run.path(names.STATE).unlink()
    assert plan.lay_out(tmp_path, [point(2)]) == [run]


def test_runs_that_share_the_first_digits_get_longer_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = Point(CONFIG, {})
    monkeypatch.setattr(plan, "signature", lambda config: "0" * 10 + f"{config['workers']:054d}")
    first, second = plan.lay_out(tmp_path, [same, Point(changed("workers", 4), {})])
    assert first != second and first.name == "run-00000000" and second.name == "run-000000000"


def test_what_is_missing(tmp_path: Path) -> None:
    runs = plan.lay_out(tmp_path, [point(w) for w in range(1, 8)])
    for run, status in zip(
        runs, (names.DONE, names.DIVERGED, names.FAILED, names.CANCELLED, names.PREEMPTED, names.TIMEOUT), strict=False
    ):
        write_state(run, status=status)
        if status in names.COMPLETE:
            names.write_json(run.path(names.RESULT), {"status": status})
    assert plan.missing([*runs, *runs]) == runs[2:]


def test_a_run_whose_launcher_died(tmp_path: Path) -> None:
    finished, cut_off = plan.lay_out(tmp_path, [point(2), point(4)])
    for run in (finished, cut_off):
        write_state(run, status=names.RUNNING, attempts=[{"number": 1, "status": names.RUNNING}])
    names.write_json(finished.path(names.RESULT), {"status": names.DONE})
    assert plan.missing([finished, cut_off]) == [cut_off]
    assert finished.status() == names.DONE
    assert cut_off.state()["attempts"][0]["reason"] == "the launcher was killed"


def test_a_result_that_is_gone_is_computed_again(tmp_path: Path) -> None:
    (run,) = plan.lay_out(tmp_path, [point(2)])
    write_state(run, status=names.DONE)
    for content in ("", "[]"):
        run.path(names.RESULT).write_text(content)
        assert plan.missing([run]) == [run]
    names.write_json(run.path(names.RESULT), {"status": names.DONE})
    assert plan.missing([run]) == []


@pytest.mark.parametrize("state", ["", '{"status": "failed"}', '{"attempts": null}', '{"status": 3, "attempts": [1]}'])
def test_a_result_counts_whatever_became_of_the_state(tmp_path: Path, state: str) -> None:
    (run,) = plan.lay_out(tmp_path, [point(2)])
    run.attempt(1).mkdir()
    run.path(names.STATE).write_text(state)
    names.write_json(run.path(names.RESULT), {"status": names.DONE})
    assert plan.missing(plan.lay_out(tmp_path, [point(2)])) == []
    assert run.status() == names.DONE and run.state()["signature"] == plan.signature(point(2).config)


def test_a_run_that_is_not_complete_gets_the_places_of_today(tmp_path: Path) -> None:
    (run,) = plan.lay_out(tmp_path, [point(2)])
    run.path(names.CONFIG).write_text("damaged: [")
    moved = changed("data.root", "/there")
    assert plan.lay_out(tmp_path, [Point(moved, {})]) == [run]
    assert yaml.safe_load(run.path(names.CONFIG).read_text()) == moved
