"""What a user sees while a sweep runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sweep import run as names
from sweep.local import SlotJob
from sweep.run import EPOCHS, STEPS, Run, last_row

REFRESH_S = 0.5  # the ranks need the cores more than the table does

_STYLES = {
    names.DONE: "green",
    names.RUNNING: "cyan",
    names.FAILED: "red",
    names.DIVERGED: "yellow",
    names.CANCELLED: "yellow",
    names.PREEMPTED: "yellow",
}


def _number(row: dict[str, str] | None, column: str) -> float | None:
    try:
        return float(row[column]) if row is not None else None
    except (KeyError, ValueError):
        return None


def duration(seconds: float | None) -> str:
    """Seconds for people: 8.1 s, 2:05, 1:02:03."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Output(Console):
    """Standard output; where whoever read it has gone (`| head`), the sweep goes on without."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Row:
    """How far one run is, from the files it appends to."""

    def __init__(self, run: Run, epochs: int, max_steps: int | None) -> None:
        self.run, self.epochs, self.max_steps = run, epochs, max_steps
        self.epoch: float | None = None
        self.loss: float | None = None
        self.accuracy: float | None = None
        self.iterations_per_second: float | None = None
        self.remaining_s: float | None = None

    def update(self, running_s: float | None) -> None:
        """Read the last lines of steps.csv and epochs.csv; `running_s` is the time since the start."""
        step, epoch = last_row(self.run.path(STEPS)), last_row(self.run.path(EPOCHS))
        self.epoch, self.loss = _number(step, "epoch"), _number(step, "loss")
        self.accuracy = _number(epoch, "test_accuracy")
        steps, time_s = _number(step, "step"), _number(step, "time_s")
        self.iterations_per_second = steps / time_s if steps and time_s else None
        if running_s is None and (result := self.run.result()) is not None:  # the figure of the report
            self.iterations_per_second = result.get("iterations_per_second")
        finished, in_epochs = _number(epoch, "epoch"), _number(epoch, "step")
        self.remaining_s = None
        if running_s is not None and steps and finished and in_epochs:
            planned = in_epochs / finished * self.epochs
            share = min(1.0, steps / (planned if self.max_steps is None else min(planned, self.max_steps)))
            self.remaining_s = running_s * (1 - share) / share


class Progress:
    """A context that shows the jobs of a sweep until it is left; `refresh` may be called at any rate.

    Args:
        jobs: all jobs of the sweep, in order.
        configs: of each job's run.
        finished: runs that needed nothing to be done.
    """

    def __init__(
        self, jobs: Sequence[SlotJob], configs: Sequence[Mapping[str, Any]], finished: int, console: Console
    ) -> None:
        self.jobs, self.finished, self.console = jobs, finished, console
        self.rows = [
            Row(job.mpi_run.run, config["epochs"], config["max_steps"])
            for job, config in zip(jobs, configs, strict=True)
        ]
        self.began = time.monotonic()
        self._next = 0.0
        self._started: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refresh(force=True)
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def refresh(self, *, force: bool = False) -> None:
        """Note what has begun and ended since the last call; redraw when it is time to."""
        now = time.monotonic()
        changed = False
        for index, job in enumerate(self.jobs):
            if job.status != names.PENDING and index not in self._started:
                self._started[index] = now
                changed = True
            if job.status not in (names.PENDING, names.RUNNING) and index not in self._ended:
                self._ended[index] = now
                changed = True
                self.rows[index].update(None)
                if self._live is None:
                    self.console.print(self._line(index), highlight=False, markup=False, soft_wrap=True)
        if self._live is not None and (force or changed or now >= self._next):
            self._next = now + REFRESH_S
            for index in self._started.keys() - self._ended.keys():
                self.rows[index].update(now - self._started[index])
            self._live.update(self._table(now), refresh=True)

    def _seconds(self, index: int, now: float) -> float | None:
        if index not in self._started:
            return None
        return self._ended.get(index, now) - self._started[index]

    def _line(self, index: int) -> str:
        job, row = self.jobs[index], self.rows[index]
        total = len(self.jobs) + self.finished
        parts = [f"[{len(self._ended) + self.finished}/{total}]", job.status, job.mpi_run.run.name]
        if row.accuracy is not None:
            parts.append(f"accuracy {row.accuracy:.4f}")
        if row.iterations_per_second is not None:
            parts.append(f"{row.iterations_per_second:.1f} it/s")
        parts.append(duration(self._seconds(index, self._ended[index])))
        if job.reason:
            parts.append(f"({job.reason})")
        return "  ".join(parts)

    def _table(self, now: float) -> Table:
        over = len(self._ended)
        total = len(self.jobs) + self.finished
        remaining = (now - self.began) / over * (len(self.jobs) - over) if over else None
        caption = f"{over + self.finished} of {total} runs finished, {duration(now - self.began)}"
        if remaining:
            caption += f", about {duration(remaining)} to go"
        table = Table(caption=caption, caption_justify="left", expand=False, show_edge=False)
        table.add_column("run", overflow="ellipsis", no_wrap=True, ratio=None)
        for heading in ("status", "epoch", "loss", "accuracy", "it/s", "time", "to go"):
            table.add_column(heading, justify="left" if heading == "status" else "right", no_wrap=True)
        for index in self._visible():
            job, row = self.jobs[index], self.rows[index]
            table.add_row(
                job.mpi_run.run.name.rpartition("-")[0],
                f"[{_STYLES.get(job.status, 'dim')}]{job.status}[/]",
                "" if row.epoch is None else f"{row.epoch:.0f}/{row.epochs}",
                "" if row.loss is None else f"{row.loss:.4f}",
                "" if row.accuracy is None else f"{row.accuracy:.4f}",
                "" if row.iterations_per_second is None else f"{row.iterations_per_second:.1f}",
                duration(self._seconds(index, now)),
                duration(row.remaining_s) if job.status == names.RUNNING else "",
            )
        return table

    def _visible(self) -> list[int]:
        """As many rows as the terminal has room for: the running first, then the last to end, then the next."""
        room = max(3, self.console.height - 5)
        running = [i for i in range(len(self.jobs)) if i in self._started and i not in self._ended]
        ended = sorted(self._ended, key=lambda i: -self._ended[i])
        waiting = [i for i in range(len(self.jobs)) if i not in self._started]
        return sorted((running + ended[: max(0, room - len(running) - min(3, len(waiting)))] + waiting)[:room])
