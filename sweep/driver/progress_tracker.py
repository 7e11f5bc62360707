"""Tracks the progress of a sweep: one row for each run, the runs that begin and end, and the remaining time."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import run_directory, timed_steps
from gradsweep.run_directory import Run
from sweep.directory.run_progress import RunProgress
from sweep.executors.base import Job

STARTED, ENDED = "started", "ended"


@dataclasses.dataclass(eq=False)
class Row:
    """One run: its latest job, and its progress as read from its CSVs."""

    job: Job
    epochs: int
    max_steps: int | None
    evaluate_every: int = 1
    evaluate_every_steps: int | None = None
    began: float | None = None
    """Of the job, by the clock of `Tracker.update`; likewise `ended`."""

    ended: float | None = None
    waiting: bool = False
    """Whether the job has failed and another one is to come."""

    epoch: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    iterations_per_second: float | None = None
    few_steps: str = ""
    """The remark on the throughput of a run that has ended after few steps."""

    share: float | None = None
    """Of the run's steps that are done; None: not known yet."""

    remaining_s: float | None = None

    @property
    def run(self) -> Run:
        return self.job.task.run

    @property
    def cores(self) -> int:
        """The number of cores that the run occupies, or will need."""
        return len(getattr(self.job, "cores", None) or ()) or self.job.task.cores

    def measure_seconds(self, now: float) -> float | None:
        """Return the seconds since the job began, or its duration if it has ended."""
        return None if self.began is None else (now if self.ended is None else self.ended) - self.began

    def read(self) -> None:
        """Read the last lines of steps.csv and epochs.csv, and after the end of the run result.json.

        If they cannot be read, what was read before stays.
        """
        try:
            progress, result = RunProgress(self.run), None if self.ended is None else self.run.result()
        except OSError:
            return
        self.epoch, self.loss, self.accuracy = progress.epoch, progress.loss, progress.accuracy
        self.iterations_per_second = progress.iterations_per_second
        if result is not None:  # the figure of the report
            self.iterations_per_second = result.get("iterations_per_second")
            self.few_steps = timed_steps.remark_on(result)
        epochs = self.epochs if self.evaluate_every_steps is None else None
        self.share, self.remaining_s = progress.compute_share(epochs, self.max_steps), None
        planned = progress.plan_steps(epochs, self.max_steps)
        if progress.steps and planned and self.iterations_per_second:  # of earlier attempts, too
            evaluations = max(0.0, self.epochs - (progress.finished_epochs or 0.0)) / self.evaluate_every
            if self.evaluate_every_steps is not None:
                evaluations = max(0.0, planned - progress.steps) / self.evaluate_every_steps
            evaluate_s = evaluations * (progress.evaluate_s or 0.0)
            self.remaining_s = max(0.0, planned - progress.steps) / self.iterations_per_second + evaluate_s


@dataclasses.dataclass(frozen=True)
class Change:
    """The start or end of a job."""

    kind: str
    row: Row
    job: Job
    seconds: float | None


class Tracker:
    """The progress of all runs of a sweep.

    Args:
        jobs: one for each run that is to be computed, in order.
        configs: the configs of the same runs.
        finished: the number of other runs, which were complete before.
        now: the time in seconds, by the same monotonic clock in all calls.
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
        """Follow another job, in place of the same run's earlier job; `config` is needed if there was none."""
        directory = job.task.run.directory
        if (before := self.rows.get(directory)) is not None:
            row = Row(job, before.epochs, before.max_steps, before.evaluate_every, before.evaluate_every_steps)
        else:
            assert config is not None
            every, every_steps = config.get("evaluate_every", 1), config.get("evaluate_every_steps")
            row = Row(job, config["epochs"], config["max_steps"], every, every_steps)
        self.rows[directory] = self._open[directory] = row

    def update(self, now: float) -> list[Change]:
        """Return which runs have begun and ended since the last call, in the order in which their jobs were added.

        A run that has begun and ended since is in the list twice.
        """
        changes = []
        for directory, row in list(self._open.items()):
            job = row.job
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
        running = (row for row in self._open.values() if row.began is not None)
        return sorted(running, key=lambda row: (row.began, row.run.name))

    def list_ended(self, most: int) -> list[Row]:
        """Return the rows of the runs that ended last, at most `most`, in the order of their ends."""
        over = [row for row in self.rows.values() if row.ended is not None and not row.waiting]
        return sorted(over, key=lambda row: row.ended or 0.0)[len(over) - most if most < len(over) else 0 :]

    @property
    def total(self) -> int:
        return self.finished + len(self.rows)

    def list_waits(self) -> list[str]:
        """Return the reasons why runs wait, each once, except that it is not their turn."""
        return list(dict.fromkeys(row.job.waits_for for row in self.rows.values() if row.job.waits_for))

    def has_shared_cores(self) -> bool:
        """Tell whether other programs may use the cores of any of the runs."""
        return any(row.job.shared_cores for row in self.rows.values())

    def count_statuses(self) -> collections.Counter[str]:
        """Return the number of runs by status; `pending` includes runs that wait for their retry."""
        counts = collections.Counter({run_directory.DONE: self.finished} if self.finished else {})
        for row in self.rows.values():
            counts[run_directory.PENDING if row.waiting else row.job.status] += 1
        return counts

    def estimate_remaining_s(self, now: float) -> float | None:
        """Return the seconds until all runs are done; None if they cannot be estimated yet.

        The remaining work is divided by the rate so far, in core-seconds per second, which includes idle cores. The
        work of a run is the mean core-seconds of finished runs with the same, or else the most similar, number of
        cores.
        """
        active = [row for row in self._open.values() if row.began is not None]
        queued = collections.Counter(
            row.job.task.cores for row in self.rows.values() if row.waiting or (row.began is None and row.ended is None)
        )
        left = longest = 0.0
        worked = self._worked
        projected: dict[int, tuple[float, int]] = {}
        for row in active:
            took = row.measure_seconds(now) or 0.0
            worked += took * row.cores
            if row.remaining_s is not None:
                total, count = projected.get(row.job.task.cores, (0.0, 0))
                projected[row.job.task.cores] = total + row.cores * (took + row.remaining_s), count + 1
        known = {**projected, **self._cost}
        if not known:
            return None
        for row in active:
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
    """Tell whether an ended job had begun, even if no poll has seen it running."""
    has_attempt = getattr(job, "attempt", None) is not None
    return has_attempt or job.status not in (run_directory.PENDING, run_directory.CANCELLED)


def _average_cost(known: Mapping[int, tuple[float, int]], cores: int) -> float:
    """Return the mean core-seconds of finished runs with the most similar number of cores."""
    nearest = min(known, key=lambda size: abs(math.log(size / cores)))
    total, count = known[nearest]
    return total / count
