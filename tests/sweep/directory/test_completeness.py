"""A run is done where all that its result tells of is there; what a sweep is to have is recorded as it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradsweep import csv_columns, failure_causes, files, run_directory
from gradsweep.run_directory import Run
from gradsweep.sweeps import planned_runs
from sweep.directory import completion, run_layout
from sweep.directory.result_check import explain_lacking, judge_result
from sweep.directory.run_identity import Point
from sweep.directory.run_state import reconcile_abandoned, write_state
from sweep.planning import reuse
from tests.sweep.fakes import config

STEPS, EVERY, WORKERS = 40, 2, 3


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A decentralised run of 5 epochs, of which every second and the last are evaluated, with its result."""
    known = {**config(1), "evaluate_every": EVERY, "workers": WORKERS}
    (run,) = run_layout.lay_out(tmp_path / "sweep", [Point(known, {"seed": "1"})])
    run.attempt(1).mkdir()
    files.write_json(run.attempt(1) / run_directory.PROVENANCE, {})
    files.append_rows(
        run.path(run_directory.STEPS), csv_columns.STEP_COLUMNS, [{"step": step} for step in range(1, STEPS + 1)]
    )
    files.append_rows(
        run.path(run_directory.EPOCHS), csv_columns.EPOCH_COLUMNS, [{"epoch": epoch} for epoch in (2, 4, 5)]
    )
    local = [{"epoch": epoch, "worker": worker} for epoch in (2, 4, 5) for worker in range(WORKERS)]
    files.append_rows(run.path(run_directory.LOCAL_MODELS), csv_columns.LOCAL_MODEL_COLUMNS, local)
    result = {"status": run_directory.DONE, "steps": STEPS, "epochs": 5, "consensus_distance": 0.1}
    files.write_json(run.path(run_directory.RESULT), result)
    (run.path(run_directory.CHECKPOINT) / "step-1").mkdir(parents=True)
    write_state(run, status=run_directory.RUNNING, attempts=[{"number": 1, "status": run_directory.RUNNING}])
    return run


def rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def test_a_whole_run_is_what_its_result_says(run: Run) -> None:
    assert judge_result(run, 1) == (run_directory.DONE, None, None)
    files.write_json(
        run.path(run_directory.RESULT), {**(run.result() or {}), "status": run_directory.DIVERGED, "reason": "nan"}
    )
    assert judge_result(run, 1) == (run_directory.DIVERGED, "nan", None)
    assert run.path(run_directory.CHECKPOINT).exists()


def test_evaluations_every_few_steps_are_counted_by_steps(tmp_path: Path) -> None:
    known = {**config(1), "evaluate_every_steps": 15}
    (run,) = run_layout.lay_out(tmp_path / "sweep", [Point(known, {"seed": "1"})])
    steps = [{"step": step} for step in range(1, STEPS + 1)]
    files.append_rows(run.path(run_directory.STEPS), csv_columns.STEP_COLUMNS, steps)
    evaluated = [{"epoch": 2, "step": step} for step in (15, 30, 40)]
    files.append_rows(run.path(run_directory.EPOCHS), csv_columns.EPOCH_COLUMNS, evaluated)
    result = {"status": run_directory.DONE, "steps": STEPS, "epochs": 2}
    assert explain_lacking(run, result) is None
    rewrite(run.path(run_directory.EPOCHS), lambda lines: [*lines[:2], *lines[3:]])
    assert explain_lacking(run, result) == "epochs.csv has 2 rows, from step 15 to 40, of 3 from 15 to 40"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: run.path(run_directory.CONFIG).unlink(), "config.yaml has been removed or changed"),
        (
            lambda run: (run.path(run_directory.CONFIG).unlink(), run.path(run_directory.STATE).unlink()),
            "config.yaml has been removed",
        ),
        (lambda run: run.path(run_directory.STEPS).unlink(), "steps.csv has been removed"),
        (
            lambda run: rewrite(run.path(run_directory.STEPS), lambda lines: [lines[0], *lines[31:]]),
            "10 rows, from step 31 to",
        ),
        (
            lambda run: rewrite(run.path(run_directory.STEPS), lambda lines: lines[:-1]),
            "39 rows, from step 1 to 39, of 40",
        ),
        (
            lambda run: rewrite(run.path(run_directory.STEPS), lambda lines: lines[:9] + lines[12:]),
            "37 rows, from step 1 to 40",
        ),
        (lambda run: rewrite(run.path(run_directory.STEPS), lambda lines: []), "0 rows, from step None to None, of 40"),
        (lambda run: run.path(run_directory.EPOCHS).unlink(), "epochs.csv has been removed"),
        (
            lambda run: rewrite(run.path(run_directory.EPOCHS), lambda lines: [lines[0], lines[-1]]),
            "epochs.csv has 1 rows",
        ),
        (
            lambda run: rewrite(run.path(run_directory.LOCAL_MODELS), lambda lines: lines[:-1]),
            "local_models.csv has 8 rows",
        ),
        (lambda run: shutil.rmtree(run.attempt(1)), "attempt-1/provenance.json has been removed"),
        (lambda run: run.path(run_directory.STEPS).write_bytes(b"step\n\0\n"), "steps.csv has 1 rows"),
        (lambda run: os.truncate(run.path(run_directory.EPOCHS), 1 << 42), "its files cannot be read ("),
    ],
)
def test_a_run_that_is_not_whole_has_failed_and_begins_anew(
    run: Run, damage: Callable[[Run], object], reason: str
) -> None:
    damage(run)
    ended = judge_result(run, 1)
    assert ended is not None and ended[0::2] == (run_directory.FAILED, failure_causes.INPUT)
    assert ended[1] is not None and reason in ended[1] and ended[1].endswith("; a resume computes it again")
    assert judge_result(run, 1) is None  # its result counts no more
    assert (run.attempt(1) / run_directory.RESULT).is_file() and not run.path(run_directory.CHECKPOINT).exists()


def test_so_has_one_whose_launcher_was_killed(run: Run) -> None:
    run.path(run_directory.STEPS).unlink()
    reconcile_abandoned(run)
    assert run.status() == run_directory.FAILED and "steps.csv has been removed" in run.state()["reason"]
    assert completion.list_missing([run]) == [run]


def test_no_other_sweep_takes_it_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sweep" / run_directory.SWEEP).touch()
    write_state(run, status=run_directory.DONE, attempts=[{"number": 1, "code_version": "v"}])
    wanted: dict[str, Any] = {str(run.state()["signature"]): {}}
    assert list(reuse.find_finished(tmp_path / "other", wanted, "v").values()) == [run]
    run.path(run_directory.EPOCHS).unlink()
    assert not reuse.find_finished(tmp_path / "other", wanted, "v")


def test_what_is_left_of_a_removed_directory_is_put_aside(run: Run) -> None:
    """Its rows are those of nobody, and a checkpoint would be taken for the new run's."""
    known = Point({**config(1), "evaluate_every": EVERY, "workers": WORKERS}, {"seed": "1"})
    run.path(run_directory.CONFIG).unlink()
    run.path(run_directory.STATE).unlink()
    sweep = run.directory.parent.parent
    assert run_layout.lay_out(sweep, [known]) == [run]
    assert sorted(path.name for path in run.directory.iterdir()) == [run_directory.CONFIG, run_directory.STATE]
    assert (run.directory.with_name(f"{run.name}.removed-1") / run_directory.STEPS).is_file()


def test_a_config_is_recorded_as_it_is(tmp_path: Path) -> None:
    """1, 1.0 and true are equal in Python; of the sections that are the same, one is written."""
    common = {"dataset": {"name": "digits", "root": "x" * 1000}}
    configs: list[dict[str, Any]] = [
        {**common, "a": value} for value in (1, 1.0, True, -0.0, 0.0, None, "1", {"b": [1]})
    ]
    configs += [{**common}, {"c": 1}]
    entries = [planned_runs.entry(f"run-{number}", f"{number}", ["a=1"], each) for number, each in enumerate(configs)]
    planned_runs.note(tmp_path, entries[:3])
    planned_runs.note(tmp_path, entries[3:])
    planned_runs.note(tmp_path, [])
    found = planned_runs.read(tmp_path)
    assert [repr(each.config) for each in found.values()] == [repr(each) for each in configs]
    assert [each.name for each in found.values()] == [each.name for each in entries]
    assert (tmp_path / planned_runs.FILE).stat().st_size < 3000
    assert [each.name for each in planned_runs.missing(tmp_path, {"run-0", "1"})] == [
        f"run-{number}" for number in range(2, 10)
    ]
