"""Reports the progress of a running sweep: a live display on a terminal, else plain lines; events for machines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gradsweep import run_directory
from gradsweep.run_directory import Run
from gradsweep.text import duration, number, one_line
from sweep.console import events as happened
from sweep.console.events import Events
from sweep.driver.live_display import STYLES, build_picture
from sweep.driver.progress_tracker import STARTED, Change, Tracker
from sweep.executors.base import Job

REFRESH_S = 0.5  # the ranks need the cores more than the picture does
FEW, LOOK_S = 1000, 2e-5  # more runs than a few are not looked at all the time: so many seconds a run lie in between
FAILURES = (run_directory.FAILED, run_directory.TIMEOUT, run_directory.DIVERGED)
SILENT = (run_directory.DONE, run_directory.CANCELLED, run_directory.PRUNED)
"""Statuses that a terminal shows in its counts only."""


class Progress:
    """A context manager that shows the progress of a sweep's jobs until it is left; `refresh` may be called often.

    On a terminal, failures and retries are permanent lines above a live display of the running runs. If stdout is no
    terminal, each run that ends is a line.

    Args:
        jobs: all jobs of the sweep, in order.
        configs: the config of each job's run.
        finished: the number of runs that were complete before.
        console: the console to print to.
        quiet: print failures only.
        events: writes the same as events for machines.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        configs: Sequence[Mapping[str, Any]],
        finished: int,
        console: Console,
        *,
        quiet: bool = False,
        events: Events | None = None,
    ) -> None:
        self.console, self.quiet, self.events = console, quiet, events
        self.tracker = Tracker(jobs, configs, finished, time.monotonic())
        self._next = self._look = 0.0
        self._waits: set[str] = set()  # what runs wait for, as far as that has been printed
        is_live = console.is_terminal and console.is_interactive and not quiet and not console.quiet
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop") if is_live else None
        self._left = False

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refresh(force=True)
        self._left = True
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def add_job(self, job: Job, config: Mapping[str, Any] | None = None) -> None:
        """Show another job, in place of the same run's earlier job; `config` is needed if there was none."""
        self._report(self.tracker.update(time.monotonic()))
        self.tracker.add_job(job, config)

    def report_event(self, kind: str, run: Run, text: str, attempt: int | None = None) -> None:
        """Report an event of a run other than its start and end.

        Args:
            kind: the event's name without `run_`. After `retried` the run does not count as failed, because another job
                follows; after `preempted` the same job will begin again; other kinds are only reported.
            text: a line for people.
            attempt: the number of the attempt; None: the latest one.
        """
        self._report(self.tracker.update(time.monotonic()))
        row = self.tracker.rows.get(run.directory)
        if row is not None and kind in ("retried", "preempted"):
            if row.ended is not None:
                row.waiting = True
            else:
                row.began = None  # it will begin again
        if self.events is not None:
            number = _find_attempt_number(run) if attempt is None else attempt
            self.events.write(f"run_{kind}", run=run.name, attempt=number, reason=text)
        if not self.quiet:
            self._print_line(f"{kind}  {run.name}  ({text})", "yellow")

    def count_failure(self, run: Run) -> None:
        """Count the failure of a run that will not be retried."""
        if (row := self.tracker.rows.get(run.directory)) is not None:
            row.waiting = False

    def refresh(self, *, force: bool = False) -> None:
        """Report runs that have begun or ended since the last call; redraw the live display when due.

        After the context has been left, runs that end are only reported as events.
        """
        now = time.monotonic()
        if now < self._look and not force:
            return
        many = len(self.tracker.rows) if len(self.tracker.rows) > FEW else 0
        self._look = now + many * LOOK_S
        changes = self.tracker.update(now)
        self._report(changes)
        if self._live is None and not self.quiet:
            for what in self.tracker.list_waits():
                if what not in self._waits:
                    self._waits.add(what)
                    self._print_line(f"waits for {what}", "")
        if self._live is not None and not self._left and (force or changes or now >= self._next):
            self._next = now + REFRESH_S
            for row in self.tracker.list_running():
                row.read()
            self._live.update(build_picture(self.tracker, self.console.width, self.console.height, now), refresh=True)

    def _report(self, changes: Sequence[Change]) -> None:
        left = sum(change.kind != STARTED for change in changes)
        for change in changes:
            left -= change.kind != STARTED
            if self.events is not None:
                self._write_event(self.events, change)
            if change.kind == STARTED or self._left:
                continue
            status = change.job.status
            if self._live is not None and status in SILENT:
                continue
            if not self.quiet or status in FAILURES:
                self._print_line(
                    self._format_end(change, left), STYLES.get(status, "") if self._live is not None else ""
                )

    def _write_event(self, events: Events, change: Change) -> None:
        run, job = change.job.task.run, change.job
        if change.kind == STARTED:
            events.write(happened.RUN_STARTED, run=run.name, attempt=_find_attempt_number(run), cores=change.row.cores)
            return
        events.write(
            happened.RUN_ENDED,
            run=run.name,
            attempt=_find_attempt_number(run),
            status=job.status,
            cause=job.cause,
            reason=job.reason,
            seconds=None if change.seconds is None else round(change.seconds, 3),
            accuracy=change.row.accuracy,
            iterations_per_second=change.row.iterations_per_second,
        )

    def _format_end(self, change: Change, left: int) -> str:
        """Return the line of an ended run, whose count leaves out `left` more runs that ended at the same poll."""
        job, row = change.job, change.row
        counts = self.tracker.count_statuses()
        over = self.tracker.total - counts[run_directory.PENDING] - counts[run_directory.RUNNING] - left
        parts = [f"[{over}/{self.tracker.total}]", job.status, job.task.run.name]
        if row.accuracy is not None:
            parts.append(f"accuracy {number(row.accuracy, '.4f')}")
        if row.iterations_per_second is not None:
            rate = f"{number(row.iterations_per_second, '.1f')} it/s"
            parts.append(" ".join(filter(None, (rate, row.few_steps))))
        if change.seconds is not None:
            parts.append(duration(change.seconds))
        if job.shared_cores:
            parts.append("shared cores")
        if job.reason:
            parts.append(f"({job.cause}: {job.reason})" if job.cause else f"({job.reason})")
        return "  ".join(parts)

    def _print_line(self, text: str, style: str) -> None:
        """Print a permanent line, without rich's markup and line breaks."""
        self.console.print(Text("  ".join(map(one_line, text.split("  "))), style), soft_wrap=True, highlight=False)


def _find_attempt_number(run: Run) -> int | None:
    """Return the number of a run's latest attempt; None without an attempt."""
    attempts = run.state()["attempts"]
    return attempts[-1].get("number") if attempts else None
