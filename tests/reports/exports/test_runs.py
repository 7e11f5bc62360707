"""Runs that have ended, for TensorBoard and MLflow: as live trackers say it, once, and not in their directories."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import reports
from gradsweep import csv_columns, files, run_directory
from reports.__main__ import main
from reports.commands.export import PACKAGES
from reports.exports import runs
from tests.reports import fabricate
from tests.trainers.trackers import test_trackers
from trainers.config import run_config
from trainers.config.groups import flatten_options
from trainers.options.sections import TRACKERS
from trainers.trackers import Trackers

ENDED_S = pd.Timestamp("2026-11-20T14:05:01.123Z").timestamp()


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """One run that is done, one that failed, one that diverged, one that goes on, one that has not begun."""
    made = fabricate.sweep(tmp_path / "output" / "2026-11-20" / "14-03-22", [fabricate.config("qsgd")])
    fabricate.run(made, fabricate.config("none"), run_directory.FAILED, "out of memory")
    fabricate.run(made, fabricate.config("svd"), run_directory.DIVERGED, "loss is nan")
    fabricate.run(made, fabricate.config("none", 4), run_directory.RUNNING)
    fabricate.run(made, fabricate.config("none", 8), run_directory.PENDING)
    return made


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def event_file(directory: Path) -> list[Any]:
    (file,) = directory.iterdir()
    return list(test_trackers.events(file))


def scalars(events: list[Any]) -> dict[str, list[tuple[int, float, float]]]:
    """By tag: step, wall time, value."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for event in events:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, event.wall_time, value.simple_value))
    return found


def frames(**steps: list[float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Steps with these columns, and two epochs of two steps, evaluated in 10 s each."""
    count = len(steps["time_s"])
    names = {"sweep": "s", "run": "r"}
    made = pd.DataFrame({"step": range(1, count + 1), "epoch": 1.0, "lr": 0.1, **steps, **names})
    epochs = {
        "epoch": [1, 2],
        "step": [2, 4],
        "time_s": [1.5, 4.0],
        "evaluate_s": [10, 10],
        "test_loss": [3, float("nan")],
    }
    return made, pd.DataFrame({**epochs, **names})


def test_steps_of_a_second_are_one_point_and_wall_times_end_with_the_run() -> None:
    steps, epochs = frames(
        time_s=[0.5, 0.9, 1.5, 4.0], loss=[4, 2, 1, float("inf")], accuracy=[float("nan"), 0.5, float("nan"), 1]
    )
    steps["lr"] = [0.4, 0.3, 0.2, 0.1]
    told = runs.make_samples(steps, epochs, ended_s=1000.0)
    assert [(sample.step, sample.wall_s) for sample in told] == [
        (2, 1000 - 24 + 0.9),
        (2, 1000 - 24 + 11.5),  # the epoch, after its evaluation
        (3, 1000 - 24 + 11.5),
        (4, 990.0),
        (4, 1000.0),
    ]
    assert told[0].values == {"step/epoch": 1, "step/lr": 0.3, "step/loss": 3, "step/accuracy": 0.5}
    assert "step/accuracy" not in told[2].values and told[3].values["step/loss"] == float("inf")
    assert told[4].values == {"epoch/epoch": 2, "epoch/time_s": 4, "epoch/evaluate_s": 10}
    each = runs.make_samples(steps, epochs, ended_s=1000.0, every_s=0)
    assert [sample.step for sample in each] == [1, 2, 2, 3, 4, 4] and each[0].values["step/loss"] == 4


def test_an_unknown_end_and_unknown_times_are_no_obstacle() -> None:
    steps, epochs = frames(time_s=[0.5, 0.9, 1.5, 4.0])
    assert [sample.wall_s for sample in runs.make_samples(steps, epochs, 0.0)] == [0.9, 11.5, 11.5, 14.0, 24.0]
    steps["time_s"] = float("nan")
    assert [sample.step for sample in runs.make_samples(steps, epochs.iloc[:0], 0.0)] == [4]
    assert not runs.make_samples(steps.iloc[:0], epochs.iloc[:0], 0.0)


class Told(test_trackers.Remembered):
    names: set[str] = set()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        Told.names |= set(values)


def test_names_and_options_are_those_of_live_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live tracker is told of a run with every column that there is; the export of the same run says the same."""
    resolved = test_trackers.compose_config(compressor="qsgd")
    sweep = fabricate.sweep(tmp_path / "2026-11-20" / "14-03-22", [])
    run = fabricate.run(sweep, resolved)
    full = dict.fromkeys(csv_columns.STEP_COLUMNS, 0.5) | {"step": 1, "epoch": 1, "samples": 8}
    (run / run_directory.STEPS).unlink()
    files.append_rows(run / run_directory.STEPS, csv_columns.STEP_COLUMNS, [full])
    live = Trackers(run_config.parse(resolved), tmp_path)
    monkeypatch.setattr(live, "_running", [("told", Told())])
    live.on_steps([full])
    live.on_epoch(dict.fromkeys(csv_columns.EPOCH_COLUMNS, 1.0))
    (exported,) = runs.read_ended_runs(reports.load(sweep))
    assert {name for sample in exported.read() for name in sample.values} == Told.names and len(Told.names) > 25
    said = flatten_options(run_config.parse(resolved))
    for name, value in exported.options.items():
        assert value in (said[name], str(said[name])), name  # a list is a text in both
    assert exported.options["compressor"] == "qsgd" and exported.options["workers"] == 2


@pytest.mark.parametrize("program", PACKAGES)
def test_a_missing_package_is_one_line(
    program: str, sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = importlib.util.find_spec
    missing = PACKAGES[program]
    assert missing == TRACKERS[program]
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None if package == missing else known(package))
    assert main(["export", program, str(sweep)]) == 2
    assert capsys.readouterr().err == (
        f"reports: export {program}: the package {missing} is not installed; "
        f"valid after `pip install 'gradsweep[{program}]'`\n"
    )


def test_tensorboard_has_curves_options_and_results(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboardX")
    before = contents(sweep)
    assert main(["export", "tensorboard", str(sweep)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "3 runs exported" and said[-1].endswith("2026-11-20/14-03-22/tensorboard")
    assert sorted(line.rpartition(": ")[2] for line in said[1:-1]) == ["pending", "running"]
    assert {name: data for name, data in contents(sweep).items() if not name.startswith("tensorboard")} == before
    report = reports.load(sweep)
    for _, run in report.runs[report.runs["status"].isin(["done", "failed", "diverged"])].iterrows():
        events = event_file(sweep / "tensorboard" / run["run"])
        found = scalars(events)
        epochs = report.epochs[report.epochs["run"] == run["run"]]
        assert [step for step, _, _ in found["epoch/test_accuracy"]] == list(epochs["step"])
        assert [value for *_, value in found["epoch/test_accuracy"]] == pytest.approx(list(epochs["test_accuracy"]))
        assert found["epoch/test_accuracy"][-1][1] == pytest.approx(ENDED_S, abs=1e-3)
        assert found["result/best_accuracy"] == [
            (epochs["step"].iloc[-1], ENDED_S, pytest.approx(run["best_accuracy"]))
        ]
        texts = {value.tag: value.tensor.string_val for event in events for value in event.summary.value}
        assert texts["status/text_summary"][0].decode() == run["status"]
        assert b"| compressor | " + run["compressor"].encode() in texts["config/text_summary"][0]
        assert ("_hparams_/session_end_info" in texts) == (run["status"] == "done")
        if run["status"] == "failed":
            assert texts["reason/text_summary"][0] == b"out of memory"


def test_tensorboard_knows_the_options_for_its_table_of_them(sweep: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    assert main(["export", "tensorboard", str(sweep), "--quiet"]) == 0
    (directory,) = (sweep / "tensorboard").glob("compressor=qsgd*")
    found = {
        value.tag: HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in event_file(directory)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    }
    options = found["_hparams_/session_start_info"].session_start_info.hparams
    assert options["compressor"].string_value == "qsgd" and options["compressor.levels"].number_value == 7
    assert options["optimizer.nesterov"].bool_value is True
    metrics = {info.name.tag for info in found["_hparams_/experiment"].experiment.metric_infos}
    assert {"result/accuracy", "result/iterations_per_second"} <= metrics


def test_an_export_to_tensorboard_replaces_the_earlier_one(sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    into = tmp_path / "all of them"
    for _ in range(2):
        assert main(["export", "tensorboard", str(sweep), "--into", str(into), "--every", "0"]) == 0
    (directory,) = into.glob("2026-11-20/14-03-22/compressor=qsgd*")
    (directory / "note.txt").write_text("mine")
    assert main(["export", "tensorboard", str(sweep), "--into", str(into), "--every", "0"]) == 0
    assert (directory / "note.txt").read_text() == "mine" and not (sweep / "tensorboard").exists()
    (directory / "note.txt").unlink()
    assert [step for step, *_ in scalars(event_file(directory))["step/loss"]] == list(range(1, 181))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--into", "RUN/here"], "a directory outside those of runs"),
        (["--into", "http://localhost:5000"], "--into=http://localhost:5000: valid is a directory"),
        (["--every", "-1"], "--every=-1.0: valid is"),
        (["--every", "nan"], "--every=nan: valid is"),
    ],
)
def test_what_cannot_be_is_one_line(
    given: list[str], message: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboardX")
    run = next((sweep / run_directory.RUNS).iterdir())
    before = contents(sweep)
    assert main(["export", "tensorboard", str(sweep), *(word.replace("RUN", str(run)) for word in given)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and contents(sweep) == before


def mlflow_runs(store: Path) -> tuple[Any, list[Any]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store.resolve().as_uri())
    return client, list(client.search_runs([client.get_experiment_by_name("gradsweep").experiment_id]))


def test_mlflow_has_a_run_for_each_signature(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow")
    before = contents(sweep / run_directory.RUNS)
    for said in ("3 runs exported\n", "0 runs exported, 3 there already\n"):
        assert main(["export", "mlflow", str(sweep), "--every", "0"]) == 0
        assert capsys.readouterr().out.startswith(said)
    assert contents(sweep / run_directory.RUNS) == before
    client, found = mlflow_runs(sweep / "mlflow")
    by_status = {run.data.tags["status"]: run for run in found}
    assert len(found) == 3 and set(by_status) == {"done", "failed", "diverged"}
    run = by_status["done"]
    known = reports.load(sweep).runs.set_index("signature").loc[run.data.tags["gradsweep.signature"]]
    assert run.data.params["compressor.levels"] == "7" and run.data.tags["sweep"] == "2026-11-20/14-03-22"
    assert run.data.metrics["result/accuracy"] == pytest.approx(known["accuracy"])
    history = client.get_metric_history(run.info.run_id, "step/loss")
    assert [metric.step for metric in history] == list(range(1, 181))
    assert [metric.timestamp for metric in history] == sorted(metric.timestamp for metric in history)
    assert (run.info.status, run.info.end_time) == ("FINISHED", round(ENDED_S * 1000))
    assert run.info.run_name == known["run"] and by_status["failed"].info.status == "FAILED"
    assert by_status["failed"].data.tags["reason"] == "out of memory"


def test_a_run_that_has_gone_on_takes_its_place_in_mlflow(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Likewise one of which an export was ended in the middle."""
    pytest.importorskip("mlflow")
    from reports.exports import mlflow

    address = (tmp_path / "with space").as_uri()
    command = ["export", "mlflow", str(sweep), "--into", address]
    with monkeypatch.context() as patched:
        patched.setattr(mlflow, "VERSION", "never")
        assert main(command) == 0
    assert main(command) == 0 and "3 runs exported" in capsys.readouterr().out
    (directory,) = (sweep / run_directory.RUNS).glob("compressor=none,workers=2*")
    state = files.read_json(directory / run_directory.STATE) or {}
    files.write_json(directory / run_directory.STATE, {**state, "status": "timeout"})
    assert main(command) == 0 and "1 run exported, 2 there already\n" in capsys.readouterr().out
    _, found = mlflow_runs(tmp_path / "with space")
    assert sorted(run.data.tags["status"] for run in found) == ["diverged", "done", "timeout"]


def test_two_runs_with_one_signature_are_one_in_mlflow(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow")
    (directory,) = (sweep / run_directory.RUNS).glob("compressor=qsgd*")
    again = fabricate.sweep(sweep.parent / "15-00-00", [])
    copy = fabricate.run(again, fabricate.config("qsgd"), name=directory.name)
    state = files.read_json(copy / run_directory.STATE) or {}
    state["attempts"][0]["ended"] = "2026-11-20T16:10:00.000+01:00"
    files.write_json(copy / run_directory.STATE, state)
    assert main(["export", "mlflow", str(sweep.parent), "--into", str(sweep.parent / "all")]) == 0
    _, found = mlflow_runs(sweep.parent / "all")
    assert [run.data.tags["sweep"] for run in found if run.data.params["compressor"] == "qsgd"] == [
        "2026-11-20/15-00-00"
    ]
    assert f"left out: {directory}: the same config as" in capsys.readouterr().out


def test_mlflow_takes_whatever_an_option_is_called(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    odd = {**fabricate.config(), '"><script>': "x" * 9999, "ünï/code": "ü", "..": 1}
    sweep = fabricate.sweep(tmp_path / "2026-11-20" / "odd", [odd])
    assert main(["export", "mlflow", str(sweep)]) == 0
    _, (run,) = mlflow_runs(sweep / "mlflow")
    assert run.data.params["___script_"] == "x" * 500 and run.data.params["_n__code"] == "ü"


def test_a_store_that_is_none_is_one_line(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow")
    assert main(["export", "mlflow", str(sweep), "--into", "nothing://here"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("reports: export mlflow: ") and error.count("\n") == 1
