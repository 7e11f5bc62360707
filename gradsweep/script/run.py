"""The run of a training script of the user: its config, its ranks, and the reports on its progress."""

from __future__ import annotations

import contextlib
import csv
import faulthandler
import math
import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.csv_columns import EPOCH_COLUMNS, PHASES, STEP_COLUMNS, YARDSTICK_COLUMNS
from gradsweep.files import append_rows, keep_rows, now, read_json, write_json
from gradsweep.run_directory import (
    ATTEMPT_VARIABLE,
    CHECKPOINT,
    DONE,
    EPOCHS,
    PREEMPTED,
    RESULT,
    RUN_VARIABLE,
    SCRIPT_CONFIG,
    SCRIPT_RESUMED,
    STEPS,
    STOPPED,
    YARDSTICK,
)
from gradsweep.script.ranks import find_rank_variables

_MEANS = ("loss", "accuracy")  # over an epoch's steps
FLUSH_S = 1.0
"""Time after which rows are written, so that recording takes hardly any time in a step."""
_LOOPS, _PASSES = 10_000, 5


class Run:
    """The run of this process: its config, its ranks, and the reports on its progress.

    Attributes:
        config: of the run (config.yaml), without the sections of the launcher; empty outside of Gradsweep.
        rank, size, local_rank: of this process.
        steps: the number of steps so far, also those of earlier attempts.
    """

    def __init__(self) -> None:
        os.environ.update(find_rank_variables(os.environ))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29500")
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.local_rank = int(os.environ["LOCAL_RANK"])
        directory, attempt = os.environ.get(RUN_VARIABLE), os.environ.get(ATTEMPT_VARIABLE)
        self._directory = Path(directory) if directory and attempt else None
        self._attempt = Path(attempt) if directory and attempt else None
        self._is_writer = self._directory is not None and self.rank == 0
        self.config: dict[str, Any] = (read_json(self._attempt / SCRIPT_CONFIG) or {}) if self._attempt else {}
        self.steps = 0
        self._epoch = 1
        self._time_s = 0.0
        self._rows: list[dict[str, Any]] = []
        self._epoch_sums: dict[str, list[float]] = {}  # value x samples, samples
        self._requested = False
        self._listen()
        self._last = self._flushed = time.perf_counter()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a dotted key of the config, such as `ddp.hook`; `default` if it is missing or null."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value

    @property
    def checkpoint(self) -> Path:
        """The directory in which the script keeps its own checkpoint; it is removed when the run is done.

        It exists; outside of Gradsweep it is a path in the working directory, and is not made.
        """
        if self._directory is None:
            return Path(CHECKPOINT)
        (self._directory / CHECKPOINT).mkdir(exist_ok=True)
        return self._directory / CHECKPOINT

    def resume(self, step: int) -> None:
        """Go on after this step of an earlier attempt, whose later rows are cut off. Call it before the first step.

        Raises:
            ValueError: the earlier attempts have not reported so many steps.
        """
        self.steps = step
        if not self._is_writer:
            return
        assert self._directory is not None and self._attempt is not None
        keep_rows(self._directory / STEPS, step)
        for name in (EPOCHS, YARDSTICK):
            keep_rows(self._directory / name, sum(int(row["step"]) <= step for row in _read(self._directory / name)))
        last_step, last_epoch = (next(iter(_read(self._directory / name)[-1:]), {}) for name in (STEPS, EPOCHS))
        evaluated = int(last_epoch.get("step") or 0)
        for row in _read(self._directory / STEPS):
            if int(row["step"]) > evaluated:
                self._add_to_epoch({name: float(row[name]) for name in _MEANS if row.get(name)}, float(row["samples"]))
        self._time_s = float(last_step.get("time_s") or 0.0)
        self._epoch = int(last_epoch.get("epoch") or 0) + 1
        write_json(self._attempt / SCRIPT_RESUMED, {"step": step})

    def start(self) -> None:
        """Begin to time the next step now; without this call the first step includes the set-up."""
        self._last = time.perf_counter()

    def step(
        self,
        samples: float,
        loss: Any = None,
        accuracy: Any = None,
        *,
        lr: float | None = None,
        step_s: float | None = None,
        phases: Mapping[str, float] | None = None,
        payload_bytes: float | None = None,
        sent_bytes: float | None = None,
        compression_ratio: float | None = None,
        compression_error: float | None = None,
        memory_norm: float | None = None,
    ) -> None:
        """Report one optimizer step: a row of steps.csv (gradsweep/csv_columns.py).

        Args:
            samples: of the global batch.
            loss, accuracy: means over the global batch, or over rank 0's part where the script knows no more.
            step_s: of the whole step; None: the time since the last step, evaluation or `start`.
            phases: seconds of some of `csv_columns.PHASES`, such as {"forward": 0.01}.
        """
        self.steps += 1
        if not self._is_writer:
            return
        seconds = time.perf_counter() - self._last if step_s is None else step_s
        self._time_s += seconds
        if unknown := set(phases or ()) - set(PHASES):
            raise ValueError(f"phases: {', '.join(sorted(unknown))}: unknown; valid is some of {', '.join(PHASES)}")
        figures = {
            "loss": loss,
            "accuracy": accuracy,
            "lr": lr,
            "payload_bytes": payload_bytes,
            "sent_bytes": sent_bytes,
            "compression_ratio": compression_ratio,
            "compression_error": compression_error,
            "memory_norm": memory_norm,
            **{f"{phase}_s": value for phase, value in (phases or {}).items()},
        }
        numbers = {name: float(value) for name, value in figures.items() if value is not None}
        self._add_to_epoch(numbers, samples)
        counters = {"step": self.steps, "epoch": self._epoch, "time_s": self._time_s, "step_s": seconds}
        self._rows.append({**counters, "samples": samples, **numbers})
        if time.perf_counter() - self._flushed >= FLUSH_S:
            self.flush()
        self._last = time.perf_counter()

    def _add_to_epoch(self, figures: Mapping[str, float], samples: float) -> None:
        for name in _MEANS:
            if name in figures:
                sums = self._epoch_sums.setdefault(name, [0.0, 0.0])
                sums[0] += figures[name] * samples
                sums[1] += samples

    def epoch(
        self,
        test_accuracy: Any = None,
        test_loss: Any = None,
        *,
        train_loss: Any = None,
        train_accuracy: Any = None,
        lr: float | None = None,
        sent_bytes: float | None = None,
        evaluate_s: float | None = None,
        **metrics: float,
    ) -> None:
        """Report the evaluation after an epoch: a row of epochs.csv.

        The training loss and accuracy are those of the epoch's steps if they are not given.

        Args:
            sent_bytes: by one worker, in all steps so far.
            evaluate_s: None: the time since the last step.
            metrics: named metrics of the script's own, each a column; the same ones in every epoch.
        """
        if self._is_writer:
            assert self._directory is not None
            seconds = time.perf_counter() - self._last if evaluate_s is None else evaluate_s
            self.flush()
            means = {name: total / count for name, (total, count) in self._epoch_sums.items() if count}
            figures = {
                "lr": lr,
                "train_loss": means.get("loss") if train_loss is None else train_loss,
                "train_accuracy": means.get("accuracy") if train_accuracy is None else train_accuracy,
                "test_loss": test_loss,
                "test_accuracy": test_accuracy,
                "sent_bytes": sent_bytes,
                **metrics,
            }
            numbers = {name: float(value) for name, value in figures.items() if value is not None}
            row = {"epoch": self._epoch, "step": self.steps, "time_s": self._time_s, "evaluate_s": seconds, **numbers}
            append_rows(self._directory / EPOCHS, (*EPOCH_COLUMNS, *sorted(metrics)), [_printable(row)])
        self._epoch += 1
        self._epoch_sums.clear()
        self._last = time.perf_counter()

    def read_yardstick(self) -> None:
        """Time a fixed piece of work, which shows whether others slow this machine down (docs/guide/races.md).

        All ranks call this between two steps, right after a collective, about once a second: rank 0 works for some
        milliseconds, and the others sleep meanwhile. No step includes this time.
        """
        if self._directory is None:
            return
        if self.rank:
            time.sleep(0.005)
        else:
            values = (self.steps, self._time_s, 0, socket.gethostname(), _measure_work(), "")
            append_rows(
                self._directory / YARDSTICK, YARDSTICK_COLUMNS, [dict(zip(YARDSTICK_COLUMNS, values, strict=True))]
            )
        self._last = time.perf_counter()

    def checkpoint_requested(self) -> bool:
        """Tell whether this rank has been asked to save and to end (SIGUSR1: preemption, a time limit).

        The signal may reach the ranks in different steps, so the script has to agree on a step, for example by an
        allreduce of this value. Then it saves into `checkpoint`, calls `stop` and ends.
        """
        return self._requested

    def flush(self) -> None:
        """Write all rows; call it before the script saves a checkpoint of its own accord."""
        if self._rows and self._directory is not None:
            append_rows(self._directory / STEPS, STEP_COLUMNS, map(_printable, self._rows))
            self._rows = []
        self._flushed = time.perf_counter()

    def stop(self) -> None:
        """Report that the script has saved its state and ends early; a later attempt goes on from `checkpoint`."""
        if self._is_writer:
            assert self._attempt is not None
            self.flush()
            reason = f"SIGUSR1: saved at step {self.steps}; a resume goes on from there"
            stopped = {"status": PREEMPTED, "reason": reason, "step": self.steps, "time": now()}
            write_json(self._attempt / STOPPED, stopped)

    def finish(self, *, status: str = DONE, reason: str | None = None, **figures: float | None) -> None:
        """Report the end of the run.

        Args:
            status: `done`, or `diverged` with a reason.
            figures: for result.json, such as accuracy=0.93 (default: that of the last epoch) or a metric of your own.
        """
        if self._is_writer:
            assert self._attempt is not None
            self.flush()
            numbers = {name: value if value is None else float(value) for name, value in figures.items()}
            write_json(self._attempt / RESULT, {"status": status, "reason": reason, **numbers})

    def _listen(self) -> None:
        """Note SIGUSR1, and write the stacks of all threads on SIGUSR2."""
        if self._attempt is None:
            return

        def note(number: int, frame: Any) -> None:
            self._requested = True

        with contextlib.suppress(ValueError, OSError):  # not in the main thread; a full disk
            signal.signal(signal.SIGUSR1, note)
            path = self._attempt / f"stacks-{self.rank}.txt"
            self._stacks = path.open("a", encoding="utf-8")
            faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []


def _printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN, which means not measured, by an empty field, except in a loss."""
    return {
        key: "" if isinstance(value, float) and math.isnan(value) and "loss" not in key else value
        for key, value in row.items()
    }


def _measure_work() -> float:
    """Return the CPU time of a fixed piece of work in seconds: the quickest of a few passes, about 1 ms."""
    times = []
    for _ in range(_PASSES):
        began, total = time.thread_time(), 0
        for number in range(_LOOPS):
            total += number & 7
        times.append(time.thread_time() - began)
    return min(times)
