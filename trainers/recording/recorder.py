"""Records a run: steps.csv, epochs.csv, local_models.csv, yardstick.csv and the numbers in result.json.

Workers keep their rows and combine them about once a second, so that recording takes hardly any time in a step.
Loss and accuracy are sums over the workers; times, bytes and measured values are means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from compressors import unit_state
from gradsweep import timed_steps
from gradsweep.csv_columns import (
    EPOCH_COLUMNS,
    LOCAL_EPOCH_COLUMNS,
    LOCAL_MODEL_COLUMNS,
    PHASES,
    STEP_COLUMNS,
    TEST,
    YARDSTICK_COLUMNS,
)
from gradsweep.errors import UsageError
from gradsweep.files import append_rows
from gradsweep.run_directory import EPOCHS, LOCAL_MODELS, STEPS, YARDSTICK
from trainers.devices.stopwatch import StepTimes
from trainers.devices.yardstick import Yardstick
from trainers.exchange.base import Traffic
from trainers.recording.batch_means import BatchMeans
from trainers.recording.readings import Readings

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.recording.local_models import LocalModels

COMBINE_EVERY_S = 1.0
SUMMED = ("loss", "accuracy")
LOCAL = (
    *SUMMED,
    *(f"{phase}_s" for phase in PHASES),
    "step_s",
    "payload_bytes",
    "sent_bytes",
    "compression_error",
    "memory_norm",
)
"""The columns of a step to which every worker contributes; the others are the same on all workers."""
_OF_LOCAL = {
    "local_accuracy": "local_test_accuracy",
    "local_accuracy_least": "local_test_accuracy_least",
    "consensus_distance": "consensus_distance",
}
"""Numbers in result.json about the workers' own models after the last epoch, with their columns in epochs.csv."""


class Diverged(Exception):
    """The training has diverged: the loss is not finite. Raised on all workers."""


class Listener(Protocol):
    """An object that receives newly written rows on rank 0; NaN stands for values that were not measured."""

    def on_steps(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Receive rows of steps.csv."""

    def on_epoch(self, row: Mapping[str, float]) -> None:
        """Receive a row of epochs.csv."""


class _Unread(NamedTuple):
    """A step whose figures have not been read: reading them waits for its end."""

    fixed: dict[str, Any]
    read_shares: Callable[[], tuple[float, float]]
    read_times: Callable[[], StepTimes]
    traffic: Traffic
    memory_norm: float | None


class Recorder:
    """Collects the figures of all steps and workers, which rank 0 writes to files.

    Args:
        gradient_bytes: size of the uncompressed fp32 gradient.
        warmup_steps: number of steps at the begin of every attempt that do not count for the throughput.
        yardstick: read between steps; None: there is none.
        whole_epochs: combine rows only at the end of an epoch, when asynchronous workers synchronise.
        late: steps after which the figures of a step are read: 1 on a GPU, which then works while the host prepares the
            next step.
        listeners: receive on rank 0 the rows that have just been written.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        directory: Path,
        gradient_bytes: int,
        warmup_steps: int,
        *,
        yardstick: Yardstick | None = None,
        whole_epochs: bool = False,
        late: int = 0,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.comm, self.directory, self.whole_epochs = comm, directory, whole_epochs
        self._listeners = listeners
        self.gradient_bytes, self.warmup_steps = gradient_bytes, warmup_steps
        self._late = late
        self._unread: list[_Unread] = []
        self._pending: list[dict[str, Any]] = []
        self._local: list[list[float]] = []
        self._combine_after = 1
        self.evaluate_s = 0.0
        self.epochs: list[dict[str, Any]] = []
        self._metrics: list[str] = []
        """The names of the task's metrics besides loss and accuracy, in the order of their columns."""
        self._epoch_sums = np.zeros(3)  # samples, loss x samples, accuracy x samples
        self._sums = {name: 0.0 for name in (*LOCAL, "samples")}  # over all steps so far
        self._left_out = dict(self._sums)  # the part of it that is not in the throughput
        self._steps_left_out = 0
        self._errors: list[float] = []
        self._steps = 0
        self.resumed_after: list[int] = []
        self.readings = Readings()
        self._yardstick = yardstick
        self._read_at = -math.inf  # training time
        self._batches = BatchMeans()

    def record_step(
        self,
        step: int,
        epoch: int,
        lr: float,
        samples: int,
        read_shares: Callable[[], tuple[float, float]],
        read_times: Callable[[], StepTimes],
        traffic: Traffic,
        memory_norm: float | None,
    ) -> bool:
        """Record one step; return whether the workers have met to combine their rows, the same on all workers.

        Args:
            read_shares: returns this worker's shares of the mean loss and accuracy over `samples`.
            read_times: returns the times of the step.

        Raises:
            Diverged: when the workers' rows are combined and a loss is not finite.
        """
        fixed = {"step": step, "epoch": epoch, "lr": lr, "samples": samples}
        self._unread.append(_Unread(fixed, read_shares, read_times, traffic, memory_norm))
        self._read_steps(self._late)
        is_due = len(self._local) >= self._combine_after and not self.whole_epochs
        if is_due:
            self.combine()
        return is_due

    def _read_steps(self, late: int) -> None:
        """Read the figures of all recorded steps but the last `late`."""
        count = max(0, len(self._unread) - late)
        ready, self._unread = self._unread[:count], self._unread[count:]
        for one in ready:
            times = one.read_times()
            self._pending.append(one.fixed)
            self._local.append(
                [
                    *one.read_shares(),
                    *(times.phases.get(phase, 0.0) for phase in PHASES),
                    times.total,
                    one.traffic.payload_bytes,
                    one.traffic.sent_bytes,
                    math.nan if one.traffic.compression_error is None else one.traffic.compression_error,
                    math.nan if one.memory_norm is None else one.memory_norm,
                ]
            )

    def combine(self) -> None:
        """Combine the rows recorded since the last call; all workers call this after the same step.

        This also reads the yardstick if it is due. The time for this is in no step: the last step has been timed, and
        the next one has not begun.
        """
        self._read_steps(0)
        if not self._local:
            return
        rows = self._combine_rows(np.array(self._local))
        pending = self._pending
        self._pending, self._local = [], []
        # every worker holds the same sums, so all come to the same decision
        step_s = rows[:, LOCAL.index("step_s")].mean()
        self._combine_after = int(min(max(COMBINE_EVERY_S / max(step_s, 1e-9), 1), 1000))
        time_s = self.time_s + float(rows[:, LOCAL.index("step_s")].sum())
        if self._yardstick is not None and time_s >= self._read_at + self._yardstick.every_s:
            self._read_yardstick(self._yardstick, pending[-1]["step"], time_s)
        self._account(pending, rows)
        lost = np.flatnonzero(~np.isfinite(rows[:, 0]))
        if lost.size:
            raise Diverged(f"the loss is {rows[lost[0], 0]} at step {pending[lost[0]]['step']}")

    def finish(self) -> None:
        """Read the yardstick after the last step. All workers call this; all rows must have been combined."""
        if self._yardstick is not None and self._steps and self.time_s > self._read_at:
            self._read_yardstick(self._yardstick, self._steps, self.time_s)

    def _read_yardstick(self, yardstick: Yardstick, step: int, time_s: float) -> None:
        reading, hosts = yardstick.read(), yardstick.hosts
        self._read_at = time_s
        self.readings.add(step, reading, hosts)
        if self.comm.rank == 0:
            columns = zip(hosts, reading.seconds.tolist(), reading.others.tolist(), strict=True)
            rows = [(step, time_s, worker, *values) for worker, values in enumerate(columns)]
            named = (_printable(dict(zip(YARDSTICK_COLUMNS, row, strict=True))) for row in rows)
            append_rows(self.directory / YARDSTICK, YARDSTICK_COLUMNS, named)

    def _combine_rows(self, rows: np.ndarray) -> np.ndarray:
        """Combine the rows of all workers: add the SUMMED columns, and average the others if they were measured.

        Rows are added in the order of the workers; the rounding of a sum by MPI would depend on the number of rows.
        """
        everyone = np.empty((self.comm.size, *rows.shape))
        self.comm.Allgather(rows, everyone)
        means = everyone[:, :, len(SUMMED) :]
        measured = ~np.isnan(means)
        means[~measured] = 0.0
        total: np.ndarray = everyone[0]
        for other in everyone[1:]:
            total += other
        with np.errstate(invalid="ignore"):  # NaN where no worker has measured
            total[:, len(SUMMED) :] /= measured.sum(0)
        return total

    def _account(self, pending: list[dict[str, Any]], rows: np.ndarray) -> None:
        written = []
        for fixed, values in zip(pending, rows, strict=True):
            row = dict(zip(LOCAL, values.tolist(), strict=True))
            row["samples"] = fixed["samples"]
            for name in self._sums:
                self._sums[name] += row[name]
            if not math.isnan(row["compression_error"]):
                self._errors.append(row["compression_error"])
            self._steps = fixed["step"]
            if self._steps <= (self.resumed_after or [0])[-1] + self.warmup_steps:
                self._steps_left_out += 1
                for name in self._left_out:
                    self._left_out[name] += row[name]
            else:
                self._batches.add(row["step_s"])
            self._epoch_sums += fixed["samples"] * np.array([1.0, row["loss"], row["accuracy"]])
            row["compression_ratio"] = self.gradient_bytes / row["payload_bytes"] if row["payload_bytes"] else math.nan
            written.append({**fixed, **row, "time_s": self.time_s})
        if self.comm.rank == 0:
            append_rows(self.directory / STEPS, STEP_COLUMNS, map(_printable, written))
            for listener in self._listeners:
                listener.on_steps(written)

    def record_epoch(
        self,
        epoch: int,
        step: int,
        lr: float,
        test_loss: float,
        test_accuracy: float,
        evaluate_s: float,
        local: LocalModels | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Record an evaluation, after an epoch or a step, and the training since the previous one.

        Args:
            local: evaluation of the workers' own models in a decentralised run.
            metrics: of the task, besides loss and accuracy.

        Raises:
            UsageError: the metrics have other names than in an earlier epoch.
        """
        metrics = metrics or {}
        samples, loss, accuracy = self._epoch_sums
        self._epoch_sums = np.zeros(3)
        self.evaluate_s += evaluate_s
        row = {
            "epoch": epoch,
            "step": step,
            "time_s": self.time_s,
            "lr": lr,
            "train_loss": loss / samples,
            "train_accuracy": accuracy / samples,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "sent_bytes": self.sent_bytes,
            "evaluate_s": evaluate_s,
            **(local.columns() if local else {}),
            **{f"{TEST}{name}": value for name, value in metrics.items()},
        }
        self._metrics = self._metrics or list(metrics)
        if set(self._metrics) != set(metrics):
            names = [", ".join(each) or "none" for each in (self._metrics, metrics)]
            raise UsageError(f"task: the metrics were {names[0]}, and are {names[1]} after epoch {epoch}")
        self.epochs.append(row)
        if self.comm.rank == 0:
            if local:
                append_rows(
                    self.directory / LOCAL_MODELS, LOCAL_MODEL_COLUMNS, map(_printable, local.rows(epoch, step))
                )
            own = [f"{TEST}{name}" for name in self._metrics]
            columns = (*EPOCH_COLUMNS, *(LOCAL_EPOCH_COLUMNS if local else ()), *own)
            append_rows(self.directory / EPOCHS, columns, [_printable(row)])
            for listener in self._listeners:
                listener.on_epoch(row)

    @property
    def time_s(self) -> float:
        """The training time so far, in seconds, over all attempts."""
        return self._sums["step_s"]

    @property
    def steps_since_start(self) -> int:
        """The number of steps in this attempt."""
        return self._steps - (self.resumed_after or [0])[-1]

    @property
    def sent_bytes(self) -> float:
        """The mean bytes that a worker has sent so far."""
        return self._sums["sent_bytes"]

    def figures(self) -> dict[str, Any]:
        """Return the numbers in result.json for the steps so far."""
        # a run that ends within its warm-up is measured over all its steps
        warmup = self._steps_left_out if self._steps > self._steps_left_out else 0
        counted = self._steps - warmup
        late = {name: self._sums[name] - (self._left_out[name] if warmup else 0.0) for name in self._sums}
        payload = self._sums["payload_bytes"] / self._steps if self._steps else None
        last = self.epochs[-1] if self.epochs else {}
        low, high = self._compute_interval(late["step_s"] / counted) if counted else (None, None)
        return {
            "steps": self._steps,
            "epochs": last.get("epoch", 0),
            "accuracy": last.get("test_accuracy"),
            "best_accuracy": max((row["test_accuracy"] for row in self.epochs), default=None),
            "loss": last.get("test_loss"),
            **{name: last.get(column) for name, column in _OF_LOCAL.items() if "consensus_distance" in last},
            **({"metrics": {name: last.get(f"{TEST}{name}") for name in self._metrics}} if self._metrics else {}),
            "train_loss": last.get("train_loss"),
            "iterations_per_second": counted / late["step_s"] if counted else None,
            "throughput_low": low,
            "throughput_high": high,
            "samples_per_second": late["samples"] / late["step_s"] if counted else None,
            "warmup_steps": warmup,
            "timed_steps": timed_steps.after_warmup(self._steps, self._steps_left_out),
            "resumed_after": self.resumed_after,
            "time_s": self.time_s,
            "evaluate_s": self.evaluate_s,
            "payload_bytes": payload,
            "sent_bytes": self.sent_bytes / self._steps if self._steps else None,
            "compression_ratio": self.gradient_bytes / payload if payload else None,
            "compression_error": sum(self._errors) / len(self._errors) if self._errors else None,
            "phases_s": {phase: late[f"{phase}_s"] / counted for phase in PHASES} if counted else {},
            "yardstick": self.readings.summarise(),
        }

    def _compute_interval(self, step_s: float) -> tuple[float | None, float | None]:
        """Return the 95 % interval of the throughput 1 / `step_s`; None if there are too few timed steps.

        Args:
            step_s: mean seconds of a timed step.
        """
        margin = self._batches.compute_margin()
        if margin is None or margin >= step_s:
            return None, None
        return 1 / (step_s + margin), 1 / (step_s - margin)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state from which the figures are computed; `combine` must have been called before."""
        assert not self._local and not self._unread, "combine() comes first"
        return {
            "steps": self._steps,
            "sums": dict(self._sums),
            "left_out": dict(self._left_out),
            "steps_left_out": self._steps_left_out,
            "errors": torch.tensor(self._errors, dtype=torch.float64),
            "epochs": [dict(row) for row in self.epochs],
            "metrics": list(self._metrics),
            "epoch_sums": self._epoch_sums.tolist(),
            "evaluate_s": self.evaluate_s,
            "resumed_after": list(self.resumed_after),
            "batches": self._batches.state_dict(),
            "readings": self.readings.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`: the next step is the first of a new attempt.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        batches, readings = BatchMeans(), Readings()
        if isinstance(state, Mapping):  # earlier versions have no batches, readings and metrics
            unread = Readings(state.get("steps", 0))
            state = {"batches": batches.state_dict(), "readings": unread.state_dict(), "metrics": [], **state}
        unit_state.require_keys("a recorder", state, self.state_dict())
        for sums in (state["sums"], state["left_out"]):
            unit_state.require_keys("a recorder's sums", sums, self._sums)
        batches.load_state_dict(state["batches"])
        readings.load_state_dict(state["readings"])
        self._batches, self.readings = batches, readings
        self._steps, self._steps_left_out = state["steps"], state["steps_left_out"]
        self._sums, self._left_out = dict(state["sums"]), dict(state["left_out"])
        self._errors = state["errors"].tolist()
        self.epochs = [dict(row) for row in state["epochs"]]
        self._metrics = list(state["metrics"])
        self._epoch_sums = np.array(state["epoch_sums"])
        self.evaluate_s = state["evaluate_s"]
        self.resumed_after = [*state["resumed_after"], self._steps]


def _printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN, which means not measured, by an empty field, except in a loss."""
    return {
        key: "" if isinstance(value, float) and math.isnan(value) and "loss" not in key else value
        for key, value in row.items()
    }
