"""sweep.metric and sweep.prune; the rule itself is Optuna's (an extra)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

import reports
from gradsweep import csv_columns, files, run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.config.optuna_defaults import choose_direction
from sweep.directory import completion, run_layout
from sweep.directory.run_identity import Point
from sweep.driver import pruner
from sweep.driver.drive import Drive
from sweep.executors.local import SlotExecutor
from sweep.executors.slots import LockedSlots
from sweep.settings import metrics
from sweep.settings.sweep import SweepSettings
from tests.sweep.fakes import resolved

EPOCHS = 40
TRAIN = r"""
echo epoch,test_accuracy > "$4/epochs.csv"
for epoch in $(seq 40); do
  printf '%d,0.%04d\n' $epoch $(( $(basename "$4" | cut -c1) * 1000 + epoch )) >> "$4/epochs.csv"
  sleep $0
done
echo '{"status": "done", "accuracy": 0.5}' > "$4/result.json"
"""
"""The first letter of a run's name is how good it is; $0 are the seconds of an epoch."""


def test_the_value_that_counts(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert math.isnan(metrics.read_value(run, "accuracy"))
    files.append_rows(
        run.path(run_directory.EPOCHS), csv_columns.EPOCH_COLUMNS, [{"epoch": e, "test_loss": 9 - e} for e in (1, 2)]
    )
    files.append_rows(run.path(run_directory.EPOCHS), csv_columns.EPOCH_COLUMNS, [{"epoch": 3, "test_loss": "nan"}])
    assert math.isnan(metrics.read_value(run, "loss"))
    files.write_json(run.path(run_directory.STATE), {"status": run_directory.PRUNED})
    assert metrics.read_value(run, "loss") == 7 and math.isnan(metrics.read_value(run, "accuracy"))
    files.write_json(run.path(run_directory.STATE), {"status": run_directory.DONE})
    files.write_json(run.path(run_directory.RESULT), {"loss": 5, "accuracy": None, "best_accuracy": True})
    assert metrics.read_value(run, "loss") == 5.0
    assert math.isnan(metrics.read_value(run, "accuracy")) and math.isnan(metrics.read_value(run, "best_accuracy"))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"metric": "acuracy"}, "sweep.metric=acuracy: did you mean accuracy? valid is one of accuracy, "),
        ({"metric": "f1"}, "sweep.metric=f1: valid is one of accuracy, "),
        ({"metric": "f-1", "goal": "maximize"}, "sweep.metric=f-1: valid is one of accuracy, "),
        ({"metric": "f1", "goal": "more"}, "sweep.goal=more: valid is one of maximize, minimize or null"),
        (
            {"metric": "r2", "goal": "minimize"},
            "sweep.goal=minimize: valid is null: sweep.metric=r2 is to maximize in any",
        ),
        ({"prune": "mean"}, "sweep.prune=mean: valid is median or null"),
        ({"prune_startup": 0}, "sweep.prune_startup=0: valid is an integer from 1 up"),
        ({"prune_warmup": -1}, "sweep.prune_warmup=-1: valid is an integer from 0 up"),
        (
            {"prune": "median", "metric": "time_s"},
            "sweep.prune=median: sweep.metric=time_s is not known epoch by epoch",
        ),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError) as error:
        SweepSettings(**settings).check()  # type: ignore[arg-type]
    assert str(error.value).startswith(line)


def test_without_optuna_there_is_no_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.settings.metrics.importlib.util.find_spec", lambda name: None)
    SweepSettings().check()
    with pytest.raises(UsageError, match=r"sweep.prune=median: needs Optuna \(.*\); valid is null"):
        SweepSettings(prune="median").check()


def test_metrics_of_an_own_task_are_read_like_others(tmp_path: Path) -> None:
    SweepSettings(metric="f1", goal="maximize").check()
    SweepSettings(metric="f1", goal="minimize").check()
    run = Run(tmp_path)
    rows = [{"epoch": epoch, "test_f1": epoch / 4, "test_mae": 5 - epoch} for epoch in (1, 2)]
    files.append_rows(run.path(run_directory.EPOCHS), (*csv_columns.EPOCH_COLUMNS, "test_f1", "test_mae"), rows)
    assert metrics.read_epochs(run, "f1") == {1: 0.25, 2: 0.5} and metrics.read_epochs(run, "mae") == {1: 4.0, 2: 3.0}
    files.write_json(run.path(run_directory.STATE), {"status": run_directory.DONE})
    files.write_json(run.path(run_directory.RESULT), {"loss": 5, "metrics": {"f1": 0.5, "mae": 3, "steps": 1}})
    assert [metrics.read_value(run, name) for name in ("f1", "mae", "loss")] == [0.5, 3.0, 5.0]
    assert math.isnan(metrics.read_value(run, "r2")) and math.isnan(metrics.read_value(Run(tmp_path / "no"), "f1"))
    goals = [choose_direction(*given) for given in (("f1", "maximize"), ("f1", "minimize"), ("r2",), ("mae", None))]
    assert goals == ["maximize", "minimize", "maximize", "minimize"]


Sweeping = Callable[..., dict[str, Run]]


@pytest.fixture
def sweeping(tmp_path: Path) -> Sweeping:
    """Runs of the names given, one after the other, in one sweep; the last is slow."""

    def compute(*wanted: str, **options: object) -> dict[str, Run]:
        settings = SweepSettings(prune_startup=2, prune_warmup=2, **options)  # type: ignore[arg-type]
        executor = SlotExecutor(tmp_path, max_parallel=1)
        executor.slots = LockedSlots([0])
        tasks, points = {}, {}
        for name in wanted:
            (run,) = run_layout.lay_out(tmp_path, [Point({"workers": 1, "epochs": EPOCHS, "name": name}, {})])
            directory = tmp_path / run_directory.RUNS / name
            if not directory.exists():
                run.directory.rename(directory)
            run = Run(directory)
            pause = "0.2" if name == wanted[-1] else "0"
            tasks[run] = RunTask(str(directory), 1, 1, ["sh", "-c", TRAIN, pause], {})
            points[run] = resolved({"epochs": EPOCHS, "max_steps": None})
        Drive(tmp_path, points, lambda run, point: tasks[run], executor, settings).run()
        return {run.name: run for run in tasks}

    return compute


def test_a_hopeless_run_is_ended_and_left_alone(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    runs = sweeping("3-good", "2-fair", "1-bad", prune="median")
    assert {name: run.status() for name, run in runs.items()} == {
        "3-good": run_directory.DONE,
        "2-fair": run_directory.DONE,
        "1-bad": run_directory.PRUNED,
    }
    bad = runs["1-bad"]
    state = bad.state()
    epochs = len(metrics.read_epochs(bad, "accuracy"))
    assert 3 <= epochs < EPOCHS and bad.result() is None  # the first two are every run's
    assert "worse than the median" in state["reason"] and state["attempts"][0]["status"] == run_directory.PRUNED
    assert "[3/3]  pruned  1-bad" in capsys.readouterr().out
    assert completion.is_complete(bad) and completion.list_missing(runs.values()) == []
    report = reports.load(tmp_path)
    row = report.runs.set_index("run").loc["1-bad"]
    assert (row["status"], row["epochs_done"]) == (run_directory.PRUNED, epochs) and not report.left_out

    again = sweeping("3-good", "2-fair", "1-bad", "0-worse", prune="median")
    assert again["1-bad"].state() == state  # not computed again
    assert again["0-worse"].status() == run_directory.PRUNED  # measured by what was finished before


@pytest.mark.thorough
def test_a_run_that_is_better_is_not_ended(sweeping: Sweeping) -> None:
    pytest.importorskip("optuna")
    runs = sweeping("1-bad", "2-fair", "3-good", prune="median")
    assert {run.status() for run in runs.values()} == {run_directory.DONE}


def test_pruned_runs_are_computed_once_pruning_is_off(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for status, after in ((run_directory.PRUNED, run_directory.PENDING), (run_directory.FAILED, run_directory.FAILED)):
        run.path(run_directory.STATE).write_text(json.dumps({"status": status, "reason": "why"}))
        pruner.revive_pruned([run])
        assert run.status() == after
