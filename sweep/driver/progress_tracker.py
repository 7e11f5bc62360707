"""How far a sweep is: a row for each run, what has begun and ended, and how long the rest will take."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import run_directory, timed_steps
from gradsweep.files import last_row
from gradsweep.run_directory import EPOCHS, STEPS, Run
from sweep.executors.base import Job

STARTED, ENDED = "started", "ended"


def _number(row: dict[str, str] | None, column: str) -> float | None:
    try:
        value = float(row[column]) if row is not None else None
    except (KeyError, TypeError, ValueError):
        return None
    return value if value is not None and math.isfinite(value) else None


class Row:
    """One run: its newest job, and how far that is, from the files it appends to."""

    def __init__(
        self, run: Run, epochs: int, max_steps: int | None, job: Job | None = None, evaluate_every: int = 1
    ) -> None:
        self.run, self.epochs, self.max_steps, self.job = run, epochs, max_steps, job
        self.evaluate_every = evaluate_every
        self.began: float | None = None  # of the job, by the clock of `Tracker.update`
        self.ended: float | None = None
        self.waiting = False  # for another try: the job has failed, but that is not the last word
        self.epoch: float | None = None
        self.loss: float | None = None
        self.accuracy: float | None = None
        self.iterations_per_second: float | None = None
        self.timed_steps: int | None = None  # of the figure of the report
        self.share: float | None = None  # of the run's steps that are done; None: not known yet
        self.remaining_s: float | None = None

    @property
    def cores(self) -> int:
        """The cores that the run occupies, or would like to."""
        assert self.job is not None
        return len(getattr(self.job, "cores", None) or ()) or self.job.task.cores

    def measure_seconds(self, now: float) -> float | None:
        """Return the seconds since the job began, or that it took."""
        return None if self.began is None else (now if self.ended is None else self.ended) - self.began

    def read(self) -> None:
        """Read the last lines of steps.csv and epochs.csv, and after the end result.json."""
        step, epoch = last_row(self.run.path(STEPS)), last_row(self.run.path(EPOCHS))
        self.epoch, self.loss = _number(step, "epoch"), _number(step, "loss")
        self.accuracy = _number(epoch, "test_accuracy")
        steps, time_s = _number(step, "step"), _number(step, "time_s")
        self.iterations_per_second = steps / time_s if steps and time_s else None
        if self.ended is not None and (result := self.run.result()) is not None:  # the figure of the report
            self.iterations_per_second = result.get("iterations_per_second")
            self.timed_steps = timed_steps.steps(result)
        self.share = self.remaining_s = None
        finished, in_epochs = _number(epoch, "epoch"), _number(epoch, "step")
        if steps and finished and in_epochs:
            planned = in_epochs / finished * self.epochs
            planned = planned if self.max_steps is None else min(planned, self.max_steps)
        elif steps and self.max_steps is not None:
            planned = float(self.max_steps)
        else:
            return
        self.share = min(1.0, steps / planned)
        if self.iterations_per_second:  # counted by the recorder, so attempts before this one are in it
            evaluations = max(0.0, self.epochs - (finished or 0.0)) / self.evaluate_every
            evaluate_s = evaluations * (_number(epoch, "evaluate_s") or 0.0)
            self.remaining_s = max(0.0, planned - steps) / self.iterations_per_second + evaluate_s


@dataclasses.dataclass(frozen=True)
class Change:
    """A job has begun or ended; `final`: no other job of its run is to come, as far as anybody knows."""

    kind: str
    row: Row
    job: Job
    seconds: float | None
    final: bool = True


class Tracker:
    """The runs of a sweep.

    Args:
        jobs: one for each run that is to be computed, in order.
        configs: of the same runs.
        finished: so many other runs are complete already.
        now: seconds of any clock that does not jump, as in all calls.
    """

    def __init__(self, jobs: Sequence[Job], configs: Sequence[Mapping[str, Any]], finished: int, now: float) -> None:
        self.finished, self.began = finished, now
        self.rows: dict[Path, Row] = {}
        self._open: dict[Path, Row] = {}
        self._cost: dict[int, tuple[float, int]] = {}  # cores: core-seconds of done runs of that size, and how many
        self._worked = 0.0  # core-seconds of all jobs that have ended
        self._first: float | None = None  # when the first job began
        for job, config in zip(jobs, configs, strict=True):
            self.add_job(job, config)

    def add_job(self, job: Job, config: Mapping[str, Any] | None = None) -> None:
        """Follow one more job; of a run that had one before, this one counts.

        Args:
            config: of a run that had none.
        """
        run = job.task.run
        before = self.rows.get(run.directory)
        if before is not None:
            row = Row(run, before.epochs, before.max_steps, job, before.evaluate_every)
        else:
            assert config is not None
            row = Row(run, config["epochs"], config["max_steps"], job, config.get("evaluate_every", 1))
        self.rows[run.directory] = self._open[run.directory] = row

    def update(self, now: float) -> list[Change]:
        """Return which runs have begun and ended since the last call, in their order."""
        changes = []
        for directory, row in list(self._open.items()):
            job = row.job
            assert job is not None
            if job.status == run_directory.PENDING:
                continue
            was_queued = row.began is None
            if was_queued and (job.status == run_directory.RUNNING or _has_begun(job)):
                row.began = now
                self._first = now if self._first is None else self._first
                changes.append(Change(STARTED, row, job, None))
            if job.ended:
                row.ended = now
                del self._open[directory]
                row.read()
                seconds = row.measure_seconds(now)
                if seconds is not None:
                    self._count(row, job, seconds)
                changes.append(Change(ENDED, row, job, seconds))
        return changes

    def _count(self, row: Row, job: Job, seconds: float) -> None:
        self._worked += row.cores * seconds
        if job.status == run_directory.DONE:
            total, count = self._cost.get(job.task.cores, (0.0, 0))
            self._cost[job.task.cores] = total + row.cores * seconds, count + 1

    def list_running(self) -> list[Row]:
        """Return the rows of running jobs, in the order in which they began."""
        return sorted(
            (row for row in self._open.values() if row.began is not None), key=lambda row: (row.began, row.run.name)
        )

    def list_ended(self, most: int) -> list[Row]:
        """Return the rows that ended last, at most `most`, the latest last."""
        over = [row for row in self.rows.values() if row.ended is not None and not row.waiting]
        return sorted(over, key=lambda row: row.ended or 0.0)[len(over) - most if most < len(over) else 0 :]

    @property
    def total(self) -> int:
        return self.finished + len(self.rows)

    def list_waits(self) -> list[str]:
        """Return what runs that have not begun wait for, beyond their turn; each once."""
        return list(dict.fromkeys(row.job.waits_for for row in self.rows.values() if row.job and row.job.waits_for))

    def has_shared_cores(self) -> bool:
        """Tell whether others may use the cores that a run has."""
        return any(row.job is not None and row.job.shared_cores for row in self.rows.values())

    def count_statuses(self) -> collections.Counter[str]:
        """Return the number of runs by status; `pending` are those that wait for their turn or for a retry."""
        counts = collections.Counter({run_directory.DONE: self.finished} if self.finished else {})
        for row in self.rows.values():
            assert row.job is not None
            counts[run_directory.PENDING if row.waiting else row.job.status] += 1
        return counts

    def estimate_remaining_s(self, now: float) -> float | None:
        """Return the seconds until all runs are done; None where nothing tells yet.

        What is left to compute, in core-seconds as runs of the same number of cores (or the next most similar one)
        have taken, at the rate of core-seconds a second so far: gaps that gangs leave are in it.
        """
        active = [row for row in self._open.values() if row.began is not None]
        queued = collections.Counter(
            row.job.task.cores
            for row in self.rows.values()
            if row.job is not None and (row.waiting or (row.began is None and row.ended is None))
        )
        left = longest = 0.0
        worked = self._worked
        projected: dict[int, tuple[float, int]] = {}
        for row in active:
            assert row.job is not None
            took = row.measure_seconds(now) or 0.0
            worked += took * row.cores
            if row.remaining_s is not None:
                total, count = projected.get(row.job.task.cores, (0.0, 0))
                projected[row.job.task.cores] = total + row.cores * (took + row.remaining_s), count + 1
        known = {**projected, **self._cost}
        if not known:
            return None
        for row in active:
            assert row.job is not None
            rest = row.remaining_s
            if rest is None:
                likely = _average_cost(known, row.job.task.cores) / row.cores
                rest = max(0.0, likely - (row.measure_seconds(now) or 0.0))
            longest = max(longest, rest)
            left += rest * row.cores
        if not queued:
            return longest
        if self._first is None or now <= self._first or not worked:
            return None
        left += sum(count * _average_cost(known, cores) for cores, count in queued.items())
        return max(longest, left / (worked / (now - self._first)))


def _has_begun(job: Job) -> bool:
    """Tell whether a job that has ended had begun: it may have done both between two looks."""
    return (
        job.status not in (run_directory.PENDING, run_directory.CANCELLED) or getattr(job, "attempt", None) is not None
    )


def _average_cost(known: Mapping[int, tuple[float, int]], cores: int) -> float:
    """Return the mean core-seconds of runs of the most similar size."""
    nearest = min(known, key=lambda size: abs(math.log(size / cores)))
    total, count = known[nearest]
    return total / count
