"""Signatures, names and what is missing."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gradsweep import files, run_directory
from sweep.directory import completion, run_identity, run_layout
from sweep.directory.run_identity import Point
from sweep.directory.run_state import write_state

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
    assert run_layout.signature(changed(path, value)) == run_layout.signature(CONFIG)


@pytest.mark.parametrize(("path", "value"), [("workers", 4), ("compressor.levels", 8), ("seed", "0"), ("new", 1)])
def test_everything_else_is(path: str, value: Any) -> None:
    assert run_layout.signature(changed(path, value)) != run_layout.signature(CONFIG)


def test_a_section_that_came_later_is_in_the_signature_where_it_changes_something() -> None:
    assert run_layout.signature({**CONFIG, "network": {"name": "none"}}) == run_layout.signature(CONFIG)
    for network in ({"name": "real"}, {"name": "none", "more": 1}):
        assert run_layout.signature({**CONFIG, "network": network}) != run_layout.signature(CONFIG)


def test_the_order_of_keys_is_not() -> None:
    assert run_layout.signature(dict(reversed(CONFIG.items()))) == run_layout.signature(CONFIG)


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=200), max_size=5))
def test_names_are_safe_in_any_file_system(swept: dict[str, str]) -> None:
    name = run_identity.build_name(swept)
    assert 0 < len(name) <= 120
    assert not set(name) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=,+-")


def test_only_keys_that_differ_are_swept() -> None:
    points = [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}, {"a": "2", "b": "x", "c": "1"}]
    assert run_identity.find_swept_keys(points) == ["a", "c"]


def test_a_single_run_is_named_by_what_it_computes_not_by_where() -> None:
    typed = {"workers": "2", "sweep.include": '["workers == 2"]', "data.root": "/somewhere", "gpus": "[0]"}
    (only,) = run_identity.name_points([changed("workers", 2)], [typed])
    assert run_identity.build_name(only.swept) == "workers=2"
    assert len(only.overrides) == 4


def point(workers: int) -> Point:
    return Point(changed("workers", workers), {"workers": str(workers)})


def test_directories_are_laid_out_once(tmp_path: Path) -> None:
    runs = run_layout.lay_out(tmp_path, [point(2), point(4), point(2)])
    assert runs[0] == runs[2]
    assert [run.name for run in runs[:2]] == [
        f"workers={w}-{run_layout.signature(point(w).config)[:8]}" for w in (2, 4)
    ]
    assert yaml.safe_load(runs[1].path(run_directory.CONFIG).read_text()) == point(4).config
    assert runs[0].state()["status"] == run_directory.PENDING
    write_state(runs[0], status=run_directory.DONE)
    files.write_json(runs[0].path(run_directory.RESULT), {"status": run_directory.DONE})
    assert (
        run_layout.lay_out(tmp_path, [point(2), point(8)])[0].status() == run_directory.DONE
    )  # found again, not overwritten
    assert len(run_directory.runs_of(tmp_path)) == 3


def test_a_run_is_found_again_without_its_state(tmp_path: Path) -> None:
    (run,) = run_layout.lay_out(tmp_path, [point(2)])
    run.path(run_directory.STATE).unlink()
    assert run_layout.lay_out(tmp_path, [point(2)]) == [run]


def test_runs_that_share_the_first_digits_get_longer_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = Point(CONFIG, {})
    monkeypatch.setattr(run_layout, "signature", lambda config: "0" * 10 + f"{config['workers']:054d}")
    first, second = run_layout.lay_out(tmp_path, [same, Point(changed("workers", 4), {})])
    assert first != second and first.name == "run-00000000" and second.name == "run-000000000"


def test_what_is_missing(tmp_path: Path) -> None:
    runs = run_layout.lay_out(tmp_path, [point(w) for w in range(1, 8)])
    for run, status in zip(
        runs,
        (
            run_directory.DONE,
            run_directory.DIVERGED,
            run_directory.FAILED,
            run_directory.CANCELLED,
            run_directory.PREEMPTED,
            run_directory.TIMEOUT,
        ),
        strict=False,
    ):
        write_state(run, status=status)
        if status in run_directory.COMPLETE:
            files.write_json(run.path(run_directory.RESULT), {"status": status})
    assert completion.list_missing([*runs, *runs]) == runs[2:]


def test_a_run_whose_launcher_died(tmp_path: Path) -> None:
    finished, cut_off = run_layout.lay_out(tmp_path, [point(2), point(4)])
    for run in (finished, cut_off):
        write_state(run, status=run_directory.RUNNING, attempts=[{"number": 1, "status": run_directory.RUNNING}])
    files.write_json(finished.path(run_directory.RESULT), {"status": run_directory.DONE})
    assert completion.list_missing([finished, cut_off]) == [cut_off]
    assert finished.status() == run_directory.DONE
    assert cut_off.state()["attempts"][0]["reason"] == "the launcher was killed"


def test_a_result_that_is_gone_is_computed_again(tmp_path: Path) -> None:
    (run,) = run_layout.lay_out(tmp_path, [point(2)])
    write_state(run, status=run_directory.DONE)
    for content in ("", "[]"):
        run.path(run_directory.RESULT).write_text(content)
        assert completion.list_missing([run]) == [run]
    files.write_json(run.path(run_directory.RESULT), {"status": run_directory.DONE})
    assert completion.list_missing([run]) == []


@pytest.mark.parametrize("state", ["", '{"status": "failed"}', '{"attempts": null}', '{"status": 3, "attempts": [1]}'])
def test_a_result_counts_whatever_became_of_the_state(tmp_path: Path, state: str) -> None:
    (run,) = run_layout.lay_out(tmp_path, [point(2)])
    run.attempt(1).mkdir()
    run.path(run_directory.STATE).write_text(state)
    files.write_json(run.path(run_directory.RESULT), {"status": run_directory.DONE})
    assert completion.list_missing(run_layout.lay_out(tmp_path, [point(2)])) == []
    assert run.status() == run_directory.DONE and run.state()["signature"] == run_layout.signature(point(2).config)


def test_a_run_that_is_not_complete_gets_the_places_of_today(tmp_path: Path) -> None:
    (run,) = run_layout.lay_out(tmp_path, [point(2)])
    run.path(run_directory.CONFIG).write_text("damaged: [")
    moved = changed("data.root", "/there")
    assert run_layout.lay_out(tmp_path, [Point(moved, {})]) == [run]
    assert yaml.safe_load(run.path(run_directory.CONFIG).read_text()) == moved
