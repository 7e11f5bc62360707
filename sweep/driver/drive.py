"""The main loop of a sweep: submits runs, polls them until they end, retries, prunes, and handles requests."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from pathlib import Path

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.console.console import Verbosity
from sweep.console.events import RUNS_PLANNED, Events
from sweep.console.messages import print_line
from sweep.directory import completion
from sweep.directory.run_state import include, write_state
from sweep.driver.progress import Progress
from sweep.driver.pruner import Pruner
from sweep.driver.retries import Retries
from sweep.executors.base import POLL_S, Job, RunExecutor
from sweep.settings.resolved_point import ResolvedPoint
from sweep.settings.sweep import SweepSettings
from sweep.system import signals
from sweep.system.signals import Interrupted, collect_signal


@dataclasses.dataclass(frozen=True)
class WaitingRetry:
    """A failed run that waits until it is retried."""

    at: float  # by time.monotonic()
    task: RunTask
    failed: Job


class Drive:
    """The main loop of an open sweep: `run` computes its missing runs.

    Args:
        directory: the sweep's directory, whose lock this process holds.
        points: the points of all requested runs, including complete ones; requests of other shells add further runs.
        make_task: makes the task of a run for the executor.
        verbosity: how much is printed.
        events: writes events for machines.
        resume_command: the command line that computes what is missing after an interruption.
    """

    def __init__(
        self,
        directory: Path,
        points: dict[Run, ResolvedPoint],
        make_task: Callable[[Run, ResolvedPoint], RunTask],
        executor: RunExecutor,
        settings: SweepSettings,
        *,
        verbosity: Verbosity | None = None,
        events: Events | None = None,
        resume_command: str = "",
    ) -> None:
        self.directory, self.points, self.make_task = directory, points, make_task
        self.executor, self.settings = executor, settings
        self.verbosity, self.events, self.resume_command = verbosity or Verbosity(), events, resume_command
        self.console = self.verbosity.info()
        # a live picture needs one console for all
        self.alarm = self.verbosity.errors() if self.verbosity.is_terse else self.console
        self.jobs: dict[Run, Job] = {}  # the latest of each run
        self.unjudged: dict[Run, Job] = {}
        self.waiting: dict[Run, WaitingRetry] = {}
        self.retries = Retries(settings)
        self.failed = 0  # for good
        self.ending = False
        self.left = False  # the jobs go on without this process
        self.stopped = False  # the whole sweep is to end: asked by a signal or another shell, or too much has failed
        self.shown: Progress | None = None

    def run(self, handle_requests: Callable[[], None] = lambda: None) -> None:
        """Compute the missing runs.

        Args:
            handle_requests: carries out the requests of other shells; called often.

        Raises:
            Interrupted: by a signal; everything that was started has been ended.
        """
        todo = completion.list_missing(self.points, self.executor.reconcile)
        print_line(self.console, f"{os.path.relpath(self.directory)}: {len(todo)} of {len(self.points)} runs to do")
        if self.events is not None:
            self.events.write(RUNS_PLANNED, runs=len(self.points), missing=len(todo))
        try:
            with signals.defer_interrupts():
                pruner = Pruner(self.executor, self.settings, self.points, self._list_others(set(todo)))
                self._queue({run: self.make_task(run, self.points[run]) for run in todo})
                self._run(len(self.points) - len(todo), pruner, handle_requests)
        except Interrupted as interrupted:
            if self.executor.can_leave and interrupted.code == 128 + signal.SIGHUP:
                interrupted.reported = self.left = True  # the terminal or the connection to it has gone; the jobs go on
                self.executor.leave()
                raise
            self._give_up("interrupted")
            if self.shown is not None:
                self.shown.refresh()
            if completion.list_unfinished(self.points):
                interrupted.reported = True
                what = "what was running has been ended, unsaved since its last checkpoint"
                print_line(self.alarm, f"\ninterrupted; {what}. To go on:", "yellow")
                print_line(self.alarm, f"  {self.resume_command}")
            raise
        finally:
            self._give_up("the launcher failed")

    def _list_others(self, todo: Set[Run]) -> list[Run]:
        """Return the sweep's other runs, such as those of earlier batches, for pruning; empty without pruning."""
        runs = [] if self.settings.prune is None else run_directory.runs_of(self.directory)
        return [run for run in runs if run not in todo]

    def add(self, points: Mapping[Run, ResolvedPoint]) -> None:
        """Queue more runs, or some runs again, while others are running."""
        if points and not self.ending:
            self.stopped = False
        self.points.update(points)
        self._queue({run: self.make_task(run, point) for run, point in points.items()})

    def ask_to_end(self, runs: Mapping[Run, Job], reason: str) -> None:
        """Ask the jobs of these runs to end, and drop the runs' retries; a job reports when it has ended."""
        for run in runs:
            self._drop_retry(run, run_directory.CANCELLED, reason)
        self.executor.ask_to_end(list(runs.values()), reason)

    def list_active(self) -> dict[Run, Job]:
        """Return the runs that are queued, running, or waiting for a retry, with their latest jobs."""
        return {run: job for run, job in self.jobs.items() if not job.ended or run in self.waiting}

    def _queue(self, tasks: Mapping[Run, RunTask]) -> None:
        if not self.executor.can_leave:  # jobs of a scheduler may be adopted, and write their states themselves
            for run in tasks:
                with suppress(OSError):  # a full disk: the state stays as it was
                    if run.status() != run_directory.PENDING:
                        include(run, status=run_directory.PENDING, reason=None)
        jobs = dict(zip(tasks, self.executor.submit_runs(list(tasks.values())), strict=True))
        self.jobs |= jobs
        self.unjudged |= jobs
        if self.shown is not None:
            for run, job in jobs.items():
                self.shown.add_job(job, self.points[run].config)

    def _run(self, finished: int, pruner: Pruner, handle_requests: Callable[[], None]) -> None:
        configs = [self.points[run].config for run in self.jobs]
        self.shown = Progress(
            list(self.jobs.values()),
            configs,
            finished,
            self.console if self.verbosity.json else self.alarm,
            quiet=self.verbosity.is_terse,
            events=self.events,
        )
        with self.shown as progress, collect_signal(signal.SIGUSR1) as preempted:
            while self.executor.active or self.waiting:
                signals.raise_deferred()
                self.executor.poll()
                pruner.poll(self.unjudged.values())  # before its victims are reported as cancelled
                if preempted:
                    preempted.clear()
                    self.stopped = True
                    self._drop_retries()
                    self.executor.preempt_all()
                handle_requests()
                for job, attempt, why in self.executor.news:
                    if not job.ended:
                        progress.report_event("preempted", job.task.run, why, attempt)
                self.executor.news.clear()
                progress.refresh()
                ended = [run for run, job in self.unjudged.items() if job.ended]
                for run in ended:
                    self._decide_on_end(run, self.unjudged.pop(run))
                now = time.monotonic()
                due = [run for run, retry in self.waiting.items() if retry.at <= now]
                if due:
                    self._queue_retries({run: self.waiting.pop(run) for run in due})
                if not ended:
                    time.sleep(POLL_S)
            self.stopped |= bool(preempted)

    def _queue_retries(self, retries: Mapping[Run, WaitingRetry]) -> None:
        """Queue failed runs again; if a scheduler refuses them, they stay failed."""
        try:
            self._queue({run: retry.task for run, retry in retries.items()})
        except UsageError as refused:
            print_line(self.alarm, f"no retry: {refused}", "red")
            self.waiting |= retries
            for run, retry in retries.items():
                self._drop_retry(run, retry.failed.status, retry.failed.reason)
            self.failed += len(retries)

    def _decide_on_end(self, run: Run, job: Job) -> None:
        """Decide whether a job that has ended is retried, ends the whole sweep, or neither."""
        if job.status not in (run_directory.FAILED, run_directory.TIMEOUT):
            return
        again = None if self.ending else self.retries.plan_retry(job)
        if again is not None:
            how = f"retry {again.number} of {self.settings.retries} in {again.wait_s:g} s"
            how += " with nothing beside it" if again.alone else ""
            if self.shown is not None:
                self.shown.report_event("retried", run, how)
            task = dataclasses.replace(job.task, alone=job.task.alone or again.alone)
            self.waiting[run] = WaitingRetry(time.monotonic() + again.wait_s, task, job)
            with suppress(OSError):
                write_state(run, status=run_directory.PENDING, reason=f"{how}; {job.reason}")
            return
        self.failed += 1
        most = self.settings.most_failures
        if most is not None and self.failed >= most and not self.ending:
            key = "sweep.fail_fast=true" if self.settings.fail_fast else f"sweep.max_failures={most}"
            print_line(self.alarm, f"{key}: {run.name} has failed; the rest is cancelled", "red")
            self.stopped = True
            self._give_up(f"{key}: {run.name} had failed")

    def _give_up(self, reason: str) -> None:
        """End all running and waiting runs."""
        self._drop_retries()
        self.executor.cancel_all(reason)

    def _drop_retries(self) -> None:
        """Allow no more retries: runs that wait for a retry stay failed."""
        self.ending = True
        for run, retry in list(self.waiting.items()):
            self._drop_retry(run, retry.failed.status, retry.failed.reason)

    def _drop_retry(self, run: Run, status: str, reason: str | None) -> None:
        if self.waiting.pop(run, None) is not None:
            if self.shown is not None:
                self.shown.count_failure(run)
            with suppress(OSError):
                write_state(run, status=status, reason=reason)
