"""What rank 0 tells others: trackers, which may fail but never end a run, and the lines on its standard output."""

from __future__ import annotations

import errno
import importlib.util
import json
import math
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from tests.trainers.recording.test_recorder import Twins, note
from trainers import trackers
from trainers.config import groups, run_config
from trainers.options.sections import TRACKERS
from trainers.recording.progress import Progress
from trainers.recording.recorder import Recorder
from trainers.rules.resolve import resolve
from trainers.trackers.base import Tracker


class Remembered(Tracker):
    """A tracker in memory, which can be told to fail."""

    calls: list[tuple[Any, ...]] = []
    fails_at = ""

    def _note(self, *call: Any) -> None:
        if call[0] == self.fails_at:
            raise OSError(f"no more {call[0]}")
        Remembered.calls.append(call)

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        assert directory.is_dir() and after == 0
        self._note("start", dict(config), directory)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._note("epoch" if "epoch/epoch" in values else "log", step, dict(values))

    def finish(self, status: str) -> None:
        self._note("finish", status)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> type[Remembered]:
    module: Any = ModuleType("trainers.trackers.mlflow")
    module.MLflow = Remembered
    monkeypatch.setitem(sys.modules, "trainers.trackers.mlflow", module)
    monkeypatch.setattr(Remembered, "calls", [])
    return Remembered


def row(step: int, **changes: float) -> dict[str, float]:
    fixed = {"step": step, "epoch": 1 + step // 4, "lr": 0.1 / step, "samples": 8, "loss": 1 / step, "accuracy": 0.5}
    return {
        **fixed,
        "step_s": 0.25,
        "sent_bytes": 2e6,
        "compression_error": 0.5 if step == 1 else math.nan,
        "time_s": 1.0,
        **changes,
    }


EPOCH = {
    "epoch": 1,
    "step": 4,
    "time_s": 2.0,
    "lr": 0.1,
    "train_loss": 0.5,
    "train_accuracy": 0.75,
    "test_loss": math.nan,
    "test_accuracy": 0.875,
    "sent_bytes": 8e6,
    "evaluate_s": 1.0,
}


def begun(run: run_config.RunConfig, directory: Path, after: int = 0) -> trackers.Trackers:
    one = trackers.Trackers(run, directory)
    one.begin(after)
    return one


def tell(one: trackers.Trackers) -> None:
    one.on_steps([row(1), row(2), row(4, lr=0.3)])
    one.on_steps([])
    one.on_epoch(EPOCH)
    one.finish("done")


def test_a_tracker_is_told_all(remembered: type[Remembered], tmp_path: Path) -> None:
    run = run_config.parse(compose_config(trackers=["mlflow"], compressor="topk", policy={"min_elements": 9}))
    tell(begun(run, tmp_path))
    (_, options, directory), log, epoch, finish = remembered.calls
    assert directory == tmp_path / "trackers" / "mlflow"
    assert options["compressor"] == "topk" and options["compressor.ratio"] == 0.01 and options["workers"] == 2
    assert options["policy.min_elements"] == 9 and options["policy.accordion.interval"] == 10
    assert log[:2] == ("log", 4)
    assert log[2] == pytest.approx(
        {
            "step/epoch": 2,
            "step/lr": 0.3,
            "step/samples": 8,
            "step/loss": (1 + 0.5 + 0.25) / 3,
            "step/accuracy": 0.5,
            "step/step_s": 0.25,
            "step/sent_bytes": 2e6,
            "step/compression_error": 0.5,
        }
    )
    assert epoch[:2] == ("epoch", 4) and "epoch/test_loss" not in epoch[2] and epoch[2]["epoch/test_accuracy"] == 0.875
    assert finish == ("finish", "done")


@pytest.mark.parametrize(("fails_at", "told"), [("start", 0), ("log", 1), ("epoch", 2), ("finish", 3)])
def test_a_tracker_that_fails_is_left_out_with_one_warning(
    fails_at: str,
    told: int,
    remembered: type[Remembered],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(remembered, "fails_at", fails_at)
    one = begun(run_config.parse(compose_config(trackers=["mlflow"])), tmp_path)
    tell(one)
    tell(one)
    assert len(remembered.calls) == told
    expected = f"trackers=mlflow: OSError: no more {fails_at}; the run goes on without it\n"
    assert capsys.readouterr().err == expected


def test_without_trackers_nothing_is_made(tmp_path: Path) -> None:
    tell(begun(run_config.parse(compose_config()), tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    missing = TRACKERS[name]
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None if package == missing else known(package))
    with pytest.raises(UsageError) as error:
        resolve(compose_config(trackers=[name]))
    assert str(error.value) == (
        f"trackers={name}: the package {missing} is not installed; valid after `pip install 'gradsweep[{name}]'`"
    )


def test_a_list_of_trackers_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: True)
    for given, message in (
        (["comet"], "valid is a list of some of tensorboard, mlflow, wandb"),
        (["mlflow", "mlflow"], "trackers=[mlflow,mlflow]: valid is each of them once"),
    ):
        with pytest.raises(UsageError) as error:
            resolve(compose_config(trackers=given))
        assert message in str(error.value)
    assert set(trackers.METHODS) == set(TRACKERS)


def written(name: str, directory: Path) -> Path:
    """What the real tracker leaves of a run."""
    tell(begun(run_config.parse(compose_config(trackers=[name])), directory))
    return directory / "trackers" / name


def events(file: Path) -> Iterator[Any]:
    """The events in a file of TensorBoard's."""
    from tensorboardX.proto import event_pb2

    data = file.read_bytes()
    while data:  # records of the length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", data[:8])
        yield event_pb2.Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_tensorboard_has_the_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (file,) = written("tensorboard", tmp_path).iterdir()
    found = {}
    for event in events(file):
        found |= {value.tag: (event.step, value.simple_value) for value in event.summary.value}
    assert found["step/loss"] == (4, pytest.approx(7 / 12)) and found["epoch/test_accuracy"] == (4, 0.875)
    assert "config/text_summary" in found and "step/step" not in found


def test_tensorboard_is_told_which_steps_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As TensorBoard does with a directory: what was said of a step before a later start from there is left out."""
    pytest.importorskip("tensorboardX")
    from tensorboardX import event_file_writer

    run = run_config.parse(compose_config(trackers=["tensorboard"]))
    for number, (after, steps) in enumerate([(0, (2, 4, 6)), (4, (5, 6, 8)), (8, (9,))]):
        monkeypatch.setattr(event_file_writer.time, "time", lambda number=number: 1e9 + number)  # of the file's name
        one = begun(run, tmp_path, after)
        for step in steps:
            one.on_steps([row(step, loss=100 * number + step)])
        one.finish("preempted")
    points: list[tuple[int, float]] = []
    for file in sorted((tmp_path / "trackers" / "tensorboard").iterdir()):
        for event in events(file):
            if event.HasField("session_log") and event.session_log.status == event.session_log.START:
                points = [point for point in points if point[0] < event.step]
            points += [(event.step, value.simple_value) for value in event.summary.value if value.tag == "step/loss"]
    assert points == [(2, 2), (4, 4), (5, 105), (6, 106), (8, 108), (9, 209)]


def test_tensorboard_on_a_full_disk_is_left_out_and_waited_for_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tensorboardX's own writer has a thread that dies of it, and a queue that is full after ten events."""
    pytest.importorskip("tensorboardX")

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    one = begun(run_config.parse(compose_config(trackers=["tensorboard"])), tmp_path, 0)
    for step in range(1, 50):
        one.on_steps([row(step)])
    one.finish("done")
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_mlflow_has_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    store = written("mlflow", tmp_path)
    client = MlflowClient(tracking_uri=store.resolve().as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("gradsweep").experiment_id])
    assert run.data.metrics["step/loss"] == pytest.approx(7 / 12) and run.data.params["model"] == "mlp"
    assert client.get_metric_history(run.info.run_id, "epoch/test_accuracy")[0].step == 4
    assert run.info.status == "FINISHED" and run.data.tags["status"] == "done"


def test_wandb_stays_offline_and_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "online")  # a user's habit must not send a run away
    store = written("wandb", tmp_path / "run")
    (file,) = store.glob("wandb/offline-run-*/*.wandb")
    assert file.stat().st_size > 1000 and b"step/loss" in file.read_bytes()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_tells_what_it_writes(rank: int, remembered: type[Remembered], tmp_path: Path) -> None:
    twins: Any = type("Ranks", (Twins,), {"rank": rank})()
    tracking = begun(run_config.parse(compose_config(trackers=["mlflow"])), tmp_path)
    recorder = Recorder(twins, tmp_path, gradient_bytes=400, warmup_steps=2, listeners=[tracking])
    remembered.calls.clear()
    for step in range(1, 4):
        note(recorder, step, loss=step, error=0.5 if step == 1 else None)
    recorder.combine()
    recorder.record_epoch(1, 3, 0.1, test_loss=0.7, test_accuracy=0.9, evaluate_s=2.0)
    kinds = [call[0] for call in remembered.calls]
    assert kinds == ([] if rank else ["log"] * (len(kinds) - 1) + ["epoch"])
    if rank == 0:
        assert remembered.calls[-2][1] == 3 and remembered.calls[0][2]["step/compression_error"] == 0.5


def test_lines_of_progress() -> None:
    now, lines = [0.0], list[str]()
    progress = Progress(3, 12, clock=lambda: now[0], write=lines.append)
    progress.begin("mlp on digits")
    progress.on_steps([row(1), row(2, samples=24, accuracy=0.9)])
    assert lines.pop() == "mlp on digits" and not lines
    now[0] = 10.0
    progress.on_steps([row(4)])
    assert lines.pop() == (
        "epoch 2/3  step 4/12  loss 0.5500  accuracy 0.740  lr 0.025  4.0 it/s  2.000 MB/step"
    )  # (8 * 1 + 24 * 0.5 + 8 * 0.25) / 40
    progress.on_steps([row(5)])
    assert not lines
    progress.on_epoch(EPOCH)
    assert lines.pop() == (
        "epoch 1/3  step 4/12  loss 0.5000  accuracy 0.750  lr 0.1  2.0 it/s  2.000 MB/step  "
        "test loss nan  test accuracy 0.8750"
    )
    progress.on_epoch({**EPOCH, "local_test_accuracy": 0.5, "consensus_distance": 0.01234})
    assert lines.pop().endswith("test accuracy 0.8750  local accuracy 0.5000  consensus distance 0.0123")
    now[0] = 21.0
    progress.on_steps([row(6)])
    assert "loss 0.1667" in lines.pop()  # of what came after the epoch's line only


def test_progress_needs_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    Progress(1, 1).begin("nobody reads this")


def test_options_are_plain(tmp_path: Path) -> None:
    options = groups.flatten_options(
        run_config.parse(compose_config(memory="dgc", optimizer={"momentum": 0.0, "nesterov": False}))
    )
    json.dumps(options)
    assert options["memory"] == "dgc" and options["memory.momentum"] == 0.9
