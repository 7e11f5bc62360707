"""From queued runs to their end: polling, retries, what the user asks for meanwhile."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.console.console import manner
from sweep.console.events import RUNS_PLANNED, Events
from sweep.console.messages import print_line, resume_command
from sweep.directory import completion
from sweep.directory.run_state import include, write_state
from sweep.driver.progress import Progress
from sweep.driver.pruner import Pruner
from sweep.driver.request_handler import RequestHandler
from sweep.driver.retries import Retries
from sweep.executors.base import POLL_S, Job, RunExecutor
from sweep.settings.sweep import SweepSettings
from sweep.system import signals
from sweep.system.signals import Interrupted, collect_signal


@dataclasses.dataclass(frozen=True)
class Retry:
    """A run that waits to be tried again."""

    at: float  # by time.monotonic()
    task: RunTask
    failed: Job


class Drive:
    """Takes the runs of an open sweep to their end.

    Args:
        directory: of the sweep, whose lock this process holds.
        configs: of all runs that were asked for; those that are complete are left alone. `add` adds to it.
        task_of: makes what the executor is given.
        events: where what happens is told to machines.
    """

    def __init__(
        self,
        directory: Path,
        configs: dict[Run, Mapping[str, Any]],
        task_of: Callable[[Run, Mapping[str, Any]], RunTask],
        executor: RunExecutor,
        settings: SweepSettings,
        events: Events | None = None,
    ) -> None:
        self.directory, self.configs, self.task_of = directory, configs, task_of
        self.executor, self.settings = executor, settings
        self.manner, self.events = manner(settings), events
        self.console = self.manner.info()
        self.alarm = self.manner.errors() if self.manner.is_terse else self.console  # a live picture wants one for all
        self.jobs: dict[Run, Job] = {}  # the latest of each run
        self.unjudged: dict[Run, Job] = {}
        self.waiting: dict[Run, Retry] = {}
        self.retries = Retries(settings)
        self.failed = 0  # for good
        self.ending = False
        self.left = False  # the jobs go on without us
        self.shown: Progress | None = None

    def run(self) -> None:
        """Compute what is missing.

        Raises:
            Interrupted: by a signal; everything that was started has been ended.
        """
        todo = completion.list_missing(self.configs, self.executor.reconcile)
        print_line(self.console, f"{os.path.relpath(self.directory)}: {len(todo)} of {len(self.configs)} runs to do")
        if self.events is not None:
            self.events.write(RUNS_PLANNED, runs=len(self.configs), missing=len(todo))
        try:
            with signals.defer_interrupts():
                pruner = Pruner(self.executor, self.settings, self.configs, self._finished(set(todo)))
                self._queue({run: self.task_of(run, self.configs[run]) for run in todo})
                self._run(len(self.configs) - len(todo), pruner)
        except Interrupted as interrupted:
            if self.executor.can_leave and interrupted.code == 128 + signal.SIGHUP:
                interrupted.reported = self.left = True  # the terminal or the connection to it has gone; the jobs go on
                self.executor.leave()
                raise
            self._give_up("interrupted")
            if self.shown is not None:
                self.shown.refresh()
            if completion.list_unfinished(self.configs):
                interrupted.reported = True
                what = "what was running has been ended, unsaved since its last checkpoint"
                print_line(self.alarm, f"\ninterrupted; {what}. To go on:", "yellow")
                print_line(self.alarm, f"  {resume_command(self.directory)}")
            raise
        finally:
            self._give_up("the launcher failed")

    def _finished(self, todo: Set[Run]) -> list[Run]:
        """All other runs of the sweep, where they matter: a sweeper hands over batch after batch."""
        return (
            []
            if self.settings.prune is None
            else [run for run in run_directory.runs_of(self.directory) if run not in todo]
        )

    def add(self, configs: Mapping[Run, Mapping[str, Any]]) -> None:
        """Queue more runs, or some of them again, while the others go on."""
        self.configs |= configs
        self._queue({run: self.task_of(run, config) for run, config in configs.items()})

    def ask_to_end(self, runs: Mapping[Run, Job], reason: str) -> None:
        """Have these runs ended, and wait for no retry of theirs; their jobs tell when that has come about."""
        for run in runs:
            self._drop_retry(run, run_directory.CANCELLED, reason)
        self.executor.ask_to_end(list(runs.values()), reason)

    def active(self) -> dict[Run, Job]:
        """The runs that are queued, running, or waiting for a retry, with their latest jobs."""
        return {run: job for run, job in self.jobs.items() if not job.ended or run in self.waiting}

    def _queue(self, tasks: Mapping[Run, RunTask]) -> None:
        if not self.executor.can_leave:  # jobs of a scheduler may be adopted, and say themselves how they stand
            for run in tasks:
                with suppress(OSError):  # a full disk: the run says how it stood before
                    if run.status() != run_directory.PENDING:
                        include(run, status=run_directory.PENDING, reason=None)
        jobs = dict(zip(tasks, self.executor.submit_runs(list(tasks.values())), strict=True))
        self.jobs |= jobs
        self.unjudged |= jobs
        if self.shown is not None:
            for run, job in jobs.items():
                self.shown.take(job, self.configs[run])

    def _run(self, finished: int, pruner: Pruner) -> None:
        configs = [self.configs[run] for run in self.jobs]
        self.shown = Progress(
            list(self.jobs.values()),
            configs,
            finished,
            self.console if self.manner.json else self.alarm,
            quiet=self.manner.is_terse,
            events=self.events,
        )
        heed = RequestHandler(self)
        with self.shown as progress, collect_signal(signal.SIGUSR1) as preempted:
            while self.executor.active or self.waiting:
                signals.raise_deferred()
                self.executor.poll()
                pruner.poll(self.unjudged.values())  # before anybody is told that what it has ended was cancelled
                if preempted:
                    preempted.clear()
                    self._drop_retries()
                    self.executor.preempt_all()
                heed()
                for job, attempt, why in self.executor.news:
                    if not job.ended:
                        progress.event("preempted", job.task.run, why, attempt)
                self.executor.news.clear()
                progress.refresh()
                ended = [run for run, job in self.unjudged.items() if job.ended]
                for run in ended:
                    self._judge(run, self.unjudged.pop(run))
                now = time.monotonic()
                due = [run for run, retry in self.waiting.items() if retry.at <= now]
                if due:
                    self._try_again({run: self.waiting.pop(run) for run in due})
                if not ended:
                    time.sleep(POLL_S)

    def _try_again(self, retries: Mapping[Run, Retry]) -> None:
        """Queue runs once more; where they are refused (by a scheduler) they have failed as they had."""
        try:
            self._queue({run: retry.task for run, retry in retries.items()})
        except UsageError as refused:
            print_line(self.alarm, f"no retry: {refused}", "red")
            self.waiting |= retries
            for run, retry in retries.items():
                self._drop_retry(run, retry.failed.status, retry.failed.reason)
            self.failed += len(retries)

    def _judge(self, run: Run, job: Job) -> None:
        """What follows from the end of a job: another try, the end of the sweep, or nothing."""
        if job.status not in (run_directory.FAILED, run_directory.TIMEOUT):
            return
        again = None if self.ending else self.retries.again(job)
        if again is not None:
            how = f"retry {again.number} of {self.settings.retries} in {again.wait_s:g} s"
            how += " with nothing beside it" if again.alone else ""
            if self.shown is not None:
                self.shown.event("retried", run, how)
            task = dataclasses.replace(job.task, alone=job.task.alone or again.alone)
            self.waiting[run] = Retry(time.monotonic() + again.wait_s, task, job)
            with suppress(OSError):
                write_state(run, status=run_directory.PENDING, reason=f"{how}; {job.reason}")
            return
        self.failed += 1
        most = self.settings.most_failures
        if most is not None and self.failed >= most and not self.ending:
            key = "sweep.fail_fast=true" if self.settings.fail_fast else f"sweep.max_failures={most}"
            print_line(self.alarm, f"{key}: {run.name} has failed; the rest is cancelled", "red")
            self._give_up(f"{key}: {run.name} had failed")

    def _give_up(self, reason: str) -> None:
        """End everything that runs or waits."""
        self._drop_retries()
        self.executor.cancel_all(reason)

    def _drop_retries(self) -> None:
        """No more tries: runs that wait for one have failed as they had."""
        self.ending = True
        for run, retry in list(self.waiting.items()):
            self._drop_retry(run, retry.failed.status, retry.failed.reason)

    def _drop_retry(self, run: Run, status: str, reason: str | None) -> None:
        if self.waiting.pop(run, None) is not None:
            if self.shown is not None:
                self.shown.given_up(run)
            with suppress(OSError):
                write_state(run, status=status, reason=reason)
