"""What is written is what was measured: the numbers in result.json from the rows of steps.csv, by hand."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradsweep import csv_columns, run_directory, timed_steps
from gradsweep.errors import UsageError
from trainers.devices.stopwatch import StepTimes, Stopwatch
from trainers.devices.yardstick import Reading
from trainers.exchange.base import Traffic
from trainers.recording.local_models import LocalModels
from trainers.recording.recorder import LOCAL, Diverged, Recorder


class Twins:
    """A communicator of two workers that always bring the same rows."""

    rank, size = 0, 2

    def Allgather(self, mine: np.ndarray, everyone: np.ndarray) -> None:
        everyone[:] = mine


class FixedWatch(Stopwatch):
    """A step that took as long as the test says."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self.seconds = {"forward": step_s / 2, "encode": step_s / 4}
        self.step_s = step_s

    def measure_step(self) -> float:
        return self.step_s


def note(recorder: Recorder, step: int, loss: float, samples: int = 8, error: float | None = None) -> None:
    traffic = Traffic(payload_bytes=100, sent_bytes=100.0, compression_error=error)
    recorder.record_step(
        step,
        1,
        0.1,
        samples,
        lambda: (loss / 2, 0.25),
        FixedWatch(step / 10).end_step(),
        traffic,
        None if error is None else 3.0,
    )


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(Twins(), tmp_path, gradient_bytes=400, warmup_steps=2)  # type: ignore[arg-type]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


class Half(Twins):
    """Of which the second worker has measured nothing: what it has sent was dropped."""

    def Allgather(self, mine: np.ndarray, everyone: np.ndarray) -> None:
        super().Allgather(mine, everyone)
        everyone[1, :, LOCAL.index("compression_error")] = np.nan


def test_the_mean_is_over_the_workers_that_have_measured(tmp_path: Path) -> None:
    half = Recorder(Half(), tmp_path, gradient_bytes=400, warmup_steps=0)  # type: ignore[arg-type]
    for step in (1, 2):
        note(half, step, loss=step, error=0.5 if step == 1 else None)
    half.combine()
    written = rows(tmp_path / run_directory.STEPS)
    assert [row["compression_error"] for row in written] == ["0.5", ""] and half.figures()["compression_error"] == 0.5
    assert [row["memory_norm"] for row in written] == ["3.0", ""] and float(written[0]["payload_bytes"]) == 100


def test_rows_and_figures(recorder: Recorder, tmp_path: Path) -> None:
    for step in range(1, 5):
        note(recorder, step, loss=step, samples=4 if step == 4 else 8, error=0.5 if step == 1 else None)
    recorder.combine()
    recorder.record_epoch(1, 4, 0.1, test_loss=0.7, test_accuracy=0.9, evaluate_s=2.0)
    written = rows(tmp_path / run_directory.STEPS)
    assert [float(row["loss"]) for row in written] == [1, 2, 3, 4]  # halves of two workers
    assert [float(row["accuracy"]) for row in written] == [0.5] * 4
    assert [float(row["step_s"]) for row in written] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert [float(row["time_s"]) for row in written] == pytest.approx([0.1, 0.3, 0.6, 1.0])
    assert [row["compression_error"] for row in written] == ["0.5", "", "", ""]
    assert [row["memory_norm"] for row in written] == ["3.0", "", "", ""]
    assert float(written[0]["compression_ratio"]) == 4
    (epoch,) = rows(tmp_path / run_directory.EPOCHS)
    assert float(epoch["train_loss"]) == pytest.approx((8 * 1 + 8 * 2 + 8 * 3 + 4 * 4) / 28)
    assert float(epoch["sent_bytes"]) == 400 and float(epoch["time_s"]) == pytest.approx(1.0)

    figures = recorder.figures()
    assert figures["warmup_steps"] == 2 and figures["timed_steps"] == 2
    assert figures["iterations_per_second"] == pytest.approx(2 / 0.7)  # the steps of 0.3 and 0.4 s
    assert figures["samples_per_second"] == pytest.approx(12 / 0.7)
    assert figures["phases_s"]["forward"] == pytest.approx(0.35 / 2)
    assert figures["phases_s"]["decode"] == 0
    assert (figures["accuracy"], figures["loss"], figures["evaluate_s"]) == (0.9, 0.7, 2.0)
    assert (figures["payload_bytes"], figures["compression_ratio"], figures["compression_error"]) == (100, 4, 0.5)


def test_the_models_of_workers_that_differ(tmp_path: Path) -> None:
    """Columns at the end, a row a worker, figures of the last epoch; a loss that is no number is told, NaN else not."""
    told: list[Mapping[str, float]] = []
    listener: Any = type(
        "Listener", (), {"on_steps": lambda self, rows: None, "on_epoch": lambda self, row: told.append(row)}
    )
    recorder = Recorder(Twins(), tmp_path, gradient_bytes=400, warmup_steps=2, listeners=[listener()])  # type: ignore[arg-type]
    for epoch, loss in ((1, math.nan), (2, 0.5)):
        note(recorder, epoch, loss=1)
        recorder.combine()
        models = LocalModels(np.array([loss, 1.5]), np.array([0.5, 0.75]), np.array([3.0, 4.0]))
        recorder.record_epoch(epoch, 1, 0.1, 0.7, 0.9, 2.0, models)
    first, second = rows(tmp_path / run_directory.EPOCHS)
    assert tuple(first) == (*csv_columns.EPOCH_COLUMNS, *csv_columns.LOCAL_EPOCH_COLUMNS)
    assert (first["local_test_loss"], second["local_test_loss"]) == ("nan", "1.0")
    written = [float(second[name]) for name in csv_columns.LOCAL_EPOCH_COLUMNS[1:]]
    assert written == [0.625, 0.5, 0.75, pytest.approx(math.sqrt(12.5))]
    assert [told[-1][name] for name in csv_columns.LOCAL_EPOCH_COLUMNS[1:]] == written, "trackers hear of it"
    models_of = rows(tmp_path / run_directory.LOCAL_MODELS)
    assert tuple(models_of[0]) == csv_columns.LOCAL_MODEL_COLUMNS
    assert list(models_of[3].values()) == ["2", "1", "1", "1.5", "0.75", "4.0"]
    figures = recorder.figures()
    assert (figures["accuracy"], figures["local_accuracy"], figures["local_accuracy_least"]) == (0.9, 0.625, 0.5)
    assert figures["consensus_distance"] == pytest.approx(math.sqrt(12.5))

    distances = LocalModels(*(np.full(2, math.nan) for _ in range(2)), np.array([0.0, 0.0]), are_judged=False)
    note(recorder, 3, loss=1)
    recorder.combine()
    recorder.record_epoch(3, 1, 0.1, 0.7, 0.9, 2.0, distances)
    last = rows(tmp_path / run_directory.EPOCHS)[-1]
    assert [last[name] for name in csv_columns.LOCAL_EPOCH_COLUMNS] == ["", "", "", "", "0.0"]
    assert list(rows(tmp_path / run_directory.LOCAL_MODELS)[-1].values()) == ["3", "1", "1", "", "", "0.0"]
    again = Recorder(Twins(), tmp_path, gradient_bytes=400, warmup_steps=2)  # type: ignore[arg-type]
    again.load_state_dict(recorder.state_dict())
    figures = again.figures()
    assert figures["local_accuracy"] is None and figures["consensus_distance"] == 0.0


def test_metrics_of_a_task_are_columns_at_the_end(tmp_path: Path) -> None:
    """In their first order, also after a resume; an accuracy that there is not is an empty field and null."""
    recorder = Recorder(Twins(), tmp_path, gradient_bytes=400, warmup_steps=2)  # type: ignore[arg-type]
    note(recorder, 1, loss=1)
    recorder.combine()
    recorder.record_epoch(1, 1, 0.1, 0.7, math.nan, 2.0, metrics={"mae": 0.5, "r2": math.nan})
    again = Recorder(Twins(), tmp_path, gradient_bytes=400, warmup_steps=2)  # type: ignore[arg-type]
    again.load_state_dict(recorder.state_dict())
    note(again, 2, loss=1)
    again.combine()
    again.record_epoch(2, 2, 0.1, 0.6, math.nan, 2.0, metrics={"r2": 0.9, "mae": 0.25})
    first, second = rows(tmp_path / run_directory.EPOCHS)
    assert tuple(first) == (*csv_columns.EPOCH_COLUMNS, "test_mae", "test_r2")
    assert (first["test_accuracy"], first["test_mae"], first["test_r2"]) == ("", "0.5", "")
    assert (second["test_mae"], second["test_r2"]) == ("0.25", "0.9")
    figures = again.figures()
    assert figures["metrics"] == {"mae": 0.25, "r2": 0.9} and math.isnan(figures["accuracy"])
    assert "metrics" not in Recorder(Twins(), tmp_path, gradient_bytes=4, warmup_steps=2).figures()  # type: ignore[arg-type]
    note(again, 3, loss=1)
    again.combine()
    with pytest.raises(UsageError, match="^task: the metrics were mae, r2, and are mae after epoch 3$"):
        again.record_epoch(3, 2, 0.1, 0.6, math.nan, 2.0, metrics={"mae": 0.25})


def test_a_run_shorter_than_its_warm_up_is_measured_as_a_whole(recorder: Recorder) -> None:
    note(recorder, 1, loss=1)
    note(recorder, 2, loss=1)
    recorder.combine()
    figures = recorder.figures()
    assert figures["warmup_steps"] == 0 and figures["iterations_per_second"] == pytest.approx(2 / 0.3)
    assert figures["timed_steps"] == 0, "after the warm-up"


def test_a_run_without_a_warm_up_has_no_steps_after_it(tmp_path: Path) -> None:
    recorder = Recorder(Twins(), tmp_path, gradient_bytes=400, warmup_steps=0)  # type: ignore[arg-type]
    for step in range(1, 41):
        note(recorder, step, loss=1)
    recorder.combine()
    assert recorder.figures()["timed_steps"] == 0 and timed_steps.remark_on(recorder.figures()) != ""


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_a_number_is_written_and_ends_the_run(
    recorder: Recorder, tmp_path: Path, loss: float
) -> None:
    with pytest.raises(Diverged, match=rf"the loss is {loss} at step 1"):
        note(recorder, 1, loss=loss)
    assert rows(tmp_path / run_directory.STEPS)[0]["loss"] == str(loss)
    assert recorder.figures()["accuracy"] is None


def test_nothing_measured_is_nothing_claimed(recorder: Recorder) -> None:
    recorder.combine()
    figures = recorder.figures()
    assert figures["steps"] == 0 and figures["iterations_per_second"] is None and figures["phases_s"] == {}


class Watched:
    """A yardstick of two workers; `events` has what was asked of it, and of a stopwatch."""

    hosts = ("a", "b")

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.events: list[str] = []

    def read(self) -> Reading:
        self.events.append("read")
        return Reading(np.array([1e-3, 2e-3]), np.array([math.nan, 0.25]), 0.5, 2.0)


class WatchedWatch(FixedWatch):
    def __init__(self, step_s: float, events: list[str]) -> None:
        super().__init__(step_s)
        self.events = events

    def measure_step(self) -> float:
        self.events.append("measured")
        return super().measure_step()


def take(recorder: Recorder, step: int, step_s: float, events: list[str]) -> None:
    traffic = Traffic(payload_bytes=100, sent_bytes=100.0, compression_error=None)
    recorder.record_step(step, 1, 0.1, 8, lambda: (0.5, 0.25), WatchedWatch(step_s, events).end_step(), traffic, None)


def test_a_step_is_read_when_the_next_one_is_recorded(tmp_path: Path) -> None:
    """On a GPU, whose steps end later; all of them have been read when rows are combined."""
    recorder = Recorder(Twins(), tmp_path, 400, 0, late=1)  # type: ignore[arg-type]
    traffic, ended = Traffic(payload_bytes=100, sent_bytes=100.0, compression_error=None), list[int]()

    def record(step: int) -> None:
        def read() -> StepTimes:
            ended.append(step)
            return StepTimes(2.0, {"forward": 1.0})

        recorder.record_step(step, 1, 0.1, 8, lambda: (step / 2, 0.25), read, traffic, None)

    for step in range(1, 4):
        record(step)
        assert ended == list(range(1, step)) or recorder.time_s
    recorder.combine()
    assert ended == [1, 2, 3]
    assert [float(row["loss"]) for row in rows(tmp_path / "steps.csv")] == [1.0, 2.0, 3.0]


def test_the_yardstick_is_read_between_steps_when_its_time_has_come(tmp_path: Path) -> None:
    """A step has been measured by then, and the next one has not begun; at the end it is read once more."""
    yardstick = Watched(2.0)
    recorder = Recorder(Twins(), tmp_path, 400, 0, yardstick=yardstick)  # type: ignore[arg-type]
    for step in range(1, 6):
        take(recorder, step, 1.0, yardstick.events)
    recorder.combine()
    measured, read = "measured", "read"
    assert yardstick.events == [measured, read, measured, measured, read, measured, measured, read]
    take(recorder, 6, 1.0, yardstick.events)
    recorder.combine()
    recorder.finish()
    recorder.finish()
    assert yardstick.events[8:] == [measured, read], "the last step has one, once"
    written = rows(tmp_path / run_directory.YARDSTICK)
    assert tuple(written[0]) == csv_columns.YARDSTICK_COLUMNS
    assert [(row["step"], row["worker"], row["host"]) for row in written[2:4]] == [("3", "0", "a"), ("3", "1", "b")]
    assert [row["time_s"] for row in written[::2]] == ["1.0", "3.0", "5.0", "6.0"]
    assert [row["cores_of_others"] for row in written[:2]] == ["", "0.25"], "unknown is empty"
    found = recorder.figures()["yardstick"]
    assert (found["readings"], found["slow_s"], found["cores_of_others"]) == (4, 2e-3, 0.25)
    assert recorder.time_s == 6.0


def test_a_run_without_steps_has_no_reading(tmp_path: Path) -> None:
    recorder = Recorder(Twins(), tmp_path, 400, 0, yardstick=Watched(0.0))  # type: ignore[arg-type]
    recorder.combine()
    recorder.finish()
    assert recorder.figures()["yardstick"] is None and not (tmp_path / run_directory.YARDSTICK).exists()


def test_throughput_has_an_interval_from_its_own_steps_after_the_warm_up(tmp_path: Path) -> None:
    recorder = Recorder(Twins(), tmp_path, 400, warmup_steps=2)  # type: ignore[arg-type]
    times = [9.0, 9.0, *np.random.default_rng(0).normal(1, 0.1, size=40).tolist()]
    for step, step_s in enumerate(times, 1):
        if step == 31:
            recorder.combine()
            figures = recorder.figures()
            assert figures["throughput_low"] is None and figures["throughput_high"] is None, "of 28 steps"
        take(recorder, step, step_s, [])
    recorder.combine()
    figures = recorder.figures()
    means = np.array(times[2:]).reshape(10, 4).mean(1)
    gaps = means - means.mean()
    alike = max((gaps[1:] * gaps[:-1]).sum() / (gaps**2).sum() * 1.3 + 0.1, 0.0)  # neighbours: corrected for the bias
    margin = 2.2622 * math.sqrt((1 + alike) / (1 - alike)) * means.std(ddof=1) / math.sqrt(10)
    assert figures["throughput_low"] == pytest.approx(1 / (np.mean(times[2:]) + margin))
    assert figures["throughput_high"] == pytest.approx(1 / (np.mean(times[2:]) - margin))
    assert figures["throughput_low"] < figures["iterations_per_second"] < figures["throughput_high"]


def test_times_that_differ_too_much_have_no_interval(tmp_path: Path) -> None:
    recorder = Recorder(Twins(), tmp_path, 400, warmup_steps=0)  # type: ignore[arg-type]
    for step in range(1, 41):
        take(recorder, step, 100.0 if step == 40 else 0.001, [])
    recorder.combine()
    assert recorder.figures()["throughput_low"] is None and recorder.figures()["throughput_high"] is None


def test_a_restored_recorder_goes_on_and_an_older_state_has_no_readings(tmp_path: Path) -> None:
    def build(folder: str) -> Recorder:
        (tmp_path / folder).mkdir(exist_ok=True)
        return Recorder(Twins(), tmp_path / folder, 400, 0, yardstick=Watched(0.0))  # type: ignore[arg-type]

    whole, first, second, older = (build(name) for name in ("whole", "first", "second", "older"))
    for step in range(1, 61):
        take(whole, step, 1 + step % 7, [])
    for step in range(1, 21):
        take(first, step, 1 + step % 7, [])
    for recorder in (whole, first):
        recorder.combine()
    state = first.state_dict()
    second.load_state_dict(state)
    older.load_state_dict({key: value for key, value in state.items() if key not in ("batches", "readings")})
    assert older.readings.state_dict()["start"] == 20, "the first reading stands for no steps before"
    for step in range(21, 61):
        for recorder in (second, older):
            take(recorder, step, 1 + step % 7, [])
    for recorder in (second, older):
        recorder.combine()
    figures = second.figures()
    assert {**figures, "resumed_after": []} == whole.figures() and figures["throughput_low"] is not None
    assert older.figures()["yardstick"]["readings"] == 40 and older.figures()["throughput_low"] is not None
    assert older.figures()["iterations_per_second"] == figures["iterations_per_second"]
    with pytest.raises(ValueError, match="the state of a recorder has the keys"):
        build("other").load_state_dict({**state, "more": 1})
    with pytest.raises(ValueError, match="the state of batch means"):
        older.load_state_dict({**state, "batches": {}})
