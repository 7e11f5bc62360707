"""Read the status of all runs of a sweep from their files, quickly enough for ten thousand runs.

Damaged and missing files are reported, nothing is written, and a file is read again only if it has changed.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory, timed_steps
from gradsweep.disk import regular_files
from gradsweep.disk.regular_files import stamp_file
from gradsweep.run_directory import Run
from gradsweep.sweeps import planned_runs
from gradsweep.sweeps.sweep_lock import read_lock_owner
from sweep.directory import scheduler_job
from sweep.directory.run_progress import RunProgress
from sweep.directory.scheduler_job import COMPLETING, Job
from sweep.launchers import schedulers

MISSING = "missing"  # the run is recorded, but has no directory
LOST = "lost"  # its state says running, but no process works on it
ASK_EVERY_S = 30.0  # between two questions to a scheduler
ASK_SOON_S = 2.0  # while it decides what becomes of a job
ENDED_BY_SCHEDULER = (run_directory.PREEMPTED, run_directory.CANCELLED)
"""Statuses of runs whose job a scheduler has ended: only the scheduler can tell whether it has queued the job again."""


@dataclasses.dataclass
class View:
    """The status and progress of one run, as read from its files; values that the files lack are None."""

    name: str
    status: str = run_directory.PENDING  # of run_directory.STATUSES, LOST or MISSING
    reason: str | None = None
    attempts: int = 0
    epoch: float | None = None
    epochs: int | None = None
    progress: float | None = None  # share of the steps, 0 to 1
    accuracy: float | None = None
    iterations_per_second: float | None = None
    few_steps: str = ""  # the remark on the throughput of a run that has ended after few steps
    time_s: float | None = None  # of the latest attempt, so far
    queued: bool = False  # preempted or cancelled, but a scheduler still has its job
    left_out: bool = False  # cancelled, and not to be resumed unless it is named
    job: str | None = None  # of a scheduler
    waits_for: str | None = None  # why the job does not run, in the scheduler's words, or that it has ended
    signature: str | None = None
    damaged: list[str] = dataclasses.field(default_factory=list)  # files that are missing or unreadable, and how

    @property
    def ended(self) -> bool:
        return not self.queued and self.status not in (run_directory.PENDING, run_directory.RUNNING, LOST)


class Overview:
    """The status of all runs of a sweep; `refresh` updates it from their files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.holder: dict[str, Any] | None = None
        self.views: dict[str, View] = {}  # by name of the run, sorted
        self.strangers: list[str] = []  # directories beside the runs that have no config
        self.racing: list[str] = []  # names of the races under way
        self._recorded: tuple[tuple[int, ...] | None, dict[str, str]] = (None, {})  # names by signature
        self._known: dict[str, tuple[tuple[int, ...] | None, View]] = {}
        self._alive: tuple[float, frozenset[Job], dict[Job, str | None]] = (0.0, frozenset(), {})

    def refresh(self) -> None:
        self.holder = read_lock_owner(self.directory)
        views, self.strangers = {}, []
        above = f"{self.directory}/{run_directory.RUNS}/"
        try:
            names = sorted(os.listdir(above))
        except OSError:
            names = []
        for name in names:
            if os.path.exists(f"{above}{name}/{run_directory.CONFIG}"):
                views[name] = self._read_view(above, name)
            elif os.path.isdir(above + name):
                self.strangers.append(name)
        for name in self._find_missing(views):
            views[name] = View(name, MISSING, planned_runs.GONE)
        self.views = dict(sorted(views.items()))
        self._find_lost()
        self._show_waiting()
        races = [] if self.holder is None else run_directory.runs_of(self.directory, run_directory.RACES)
        self.racing = [race.name for race in races if race.status() == run_directory.RUNNING and self._is_driven(race)]

    @property
    def active(self) -> bool:
        """Whether a launcher or a scheduler was working on the sweep at the last `refresh`."""
        return self.holder is not None or bool(self._alive[2])

    def count_statuses(self) -> dict[str, int]:
        """Count the runs of each status, in the order of STATUSES."""
        counted = collections.Counter(view.status for view in self.views.values())
        return {status: counted[status] for status in (*run_directory.STATUSES, LOST, MISSING) if counted[status]}

    def _find_missing(self, views: Mapping[str, View]) -> list[str]:
        """Return the names of recorded runs without a directory; a renamed directory counts."""
        changed = stamp_file(f"{self.directory}/{planned_runs.FILE}")
        if changed != self._recorded[0]:
            self._recorded = (
                changed,
                {each.signature: each.name for each in planned_runs.read(self.directory).values()},
            )
        absent = {signature: name for signature, name in self._recorded[1].items() if name not in views}
        there = {view.signature for view in views.values()} if absent else set()
        return [name for signature, name in absent.items() if signature not in there]

    def _read_view(self, above: str, name: str) -> View:
        changed = stamp_file(f"{above}{name}/{run_directory.STATE}")
        before, view = self._known.get(name, (None, None))
        if view is None or before != changed or view.status in (run_directory.RUNNING, LOST) or view.damaged:
            view = read_view(above, name)
            self._known[name] = (changed, view)
        return view

    def _find_lost(self) -> None:
        """Mark the runs whose launcher has ended without finishing them as lost.

        Query the scheduler for runs whose state only it knows.
        """
        asked: dict[str, Job] = {}
        unclear = [view for view in self.views.values() if view.status == run_directory.RUNNING]
        if self.holder is None:
            unclear += [view for view in self.views.values() if view.status == run_directory.PENDING]
        for view in unclear:
            if (job := self._read_job(view)) is not None:
                asked[view.name] = job
                view.job = job[1]
        ended = [view for view in self.views.values() if view.status in ENDED_BY_SCHEDULER and not view.left_out]
        again = {view.name: job for view in ended if (job := self._read_job(view)) is not None}
        when, which, alive = self._alive
        both = frozenset([*asked.values(), *again.values()])
        if not both:
            alive = {}
        elif which != both or time.monotonic() - when > self._choose_pause(again.values()):
            alive = (
                schedulers.find_living_jobs(asked.values()) if self.holder is None else dict.fromkeys(asked.values())
            )
            alive |= schedulers.find_living_jobs(again.values(), believed=False)
            when = time.monotonic()
        self._alive = (when, both, alive)
        for view in unclear:
            view.waits_for = alive.get(asked[view.name], "ended") if view.name in asked else None
            if (
                view.status == run_directory.RUNNING
                and asked.get(view.name) not in alive
                and not self._is_driven(Run(self.directory / run_directory.RUNS / view.name))
            ):
                view.status, view.time_s = LOST, None
        for view in ended:
            view.queued = again.get(view.name) in alive
            view.job = again[view.name][1] if view.queued else None
            view.waits_for = alive[again[view.name]] if view.queued else None

    def _choose_pause(self, ended: Iterable[Job]) -> float:
        """Return the seconds until the next query of the scheduler: fewer if one of the jobs is just completing."""
        alive = self._alive[2]
        return ASK_SOON_S if any(alive.get(job) == COMPLETING for job in ended) else ASK_EVERY_S

    def _show_waiting(self) -> None:
        """Add what waiting.json says of waiting jobs, so that only the launcher queries their scheduler."""
        noted = {} if self.holder is None else scheduler_job.read_waiting(self.directory, self.holder)
        for view in self.views.values():
            if self.holder is not None and view.status == run_directory.PENDING:
                view.job, view.waits_for = noted.get(view.name, (None, None))

    def _read_job(self, view: View) -> Job | None:
        return scheduler_job.read_job(Run(self.directory / run_directory.RUNS / view.name))

    def _is_driven(self, run: Run) -> bool:
        """Tell whether the process with the sweep's lock has started this run: an earlier launcher may have."""
        if self.holder is None:
            return False
        attempts = run.state()["attempts"]
        latest = attempts[-1] if attempts else {}
        if str(latest.get("started", "")) >= str(self.holder.get("since", "")):
            return True
        if latest.get("host") != socket.gethostname():
            return False
        return isinstance(latest.get("pid"), int) and os.path.exists(f"/proc/{latest['pid']}")


def read_view(above: str, name: str) -> View:
    """Read the state of a run from its files; `above` is the path of its parent directory, with a slash.

    For speed it uses strings and descriptors: Path objects and text files would take longer than the reading itself.
    """
    view, run = View(name), f"{above}{name}/"
    state = _read_object(run, run_directory.STATE, view, needed=True) or {}
    status = state.get("status")
    result = _read_object(run, run_directory.RESULT, view, needed=status in run_directory.RESULTS)
    if state:
        view.status = str(status) if status in run_directory.STATUSES else run_directory.PENDING
    elif result is not None:
        view.status = str(result["status"]) if result.get("status") in run_directory.STATUSES else run_directory.DONE
    view.signature = state["signature"] if isinstance(state.get("signature"), str) else None
    view.reason = None if state.get("reason") is None else str(state["reason"])
    view.left_out = view.status == run_directory.CANCELLED and bool(state.get("left_out"))
    attempts = state.get("attempts")
    attempts = [each for each in attempts if isinstance(each, dict)] if isinstance(attempts, list) else []
    view.attempts = len(attempts)
    if attempts:
        view.time_s = _compute_seconds(attempts[-1])
    if result is not None:
        view.epoch, view.epochs = _to_number(result.get("epochs")), _to_whole(result.get("epochs"))
        view.accuracy = _to_number(result.get("accuracy"))
        view.iterations_per_second = _to_number(result.get("iterations_per_second"))
        view.few_steps = timed_steps.remark_on(result)
        view.progress = 1.0 if view.status == run_directory.DONE else None
    elif attempts:
        _read_rows(run, view)
    return view


def _read_object(run: str, name: str, view: View, needed: bool) -> dict[str, Any] | None:
    """Read the JSON object in a run's file; note in `view` if it is damaged, or missing although `needed`."""
    try:
        value = json.loads(regular_files.read_bytes(run + name))
    except FileNotFoundError:
        if needed:
            view.damaged.append(f"{name}: missing")
        return None
    except (OSError, ValueError, RecursionError) as error:
        value, why = None, getattr(error, "strerror", None) or "damaged"
    else:
        why = "damaged"
    if not isinstance(value, dict):
        view.damaged.append(f"{name}: {why}")
        return None
    return value


def _read_rows(run: str, view: View) -> None:
    """Read the progress of a run without a result from the last rows of its CSVs."""
    try:
        rows = RunProgress(Run(Path(run)))
        has_begun = rows.epoch is not None
        config = regular_files.read_bytes(run + run_directory.CONFIG).decode("utf-8", "replace") if has_begun else ""
    except OSError as error:
        view.damaged.append(f"{os.path.basename(str(error.filename))}: {error.strerror}")
        return
    view.epochs = _read_setting(config, "epochs")
    view.epoch, view.accuracy = rows.epoch, rows.accuracy
    view.iterations_per_second = rows.iterations_per_second
    ends = _read_setting(config, "evaluate_every_steps") is None
    view.progress = rows.compute_share(view.epochs if ends else None, _read_setting(config, "max_steps"))


def _read_setting(config: str, key: str) -> int | None:
    """Return an integer at the top level of a config.yaml of ours, without parsing the whole file."""
    match = re.search(rf"^{key}: (\d+)$", config, re.MULTILINE)
    return int(match[1]) if match else None


def _to_number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _to_whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _compute_seconds(attempt: Mapping[str, Any]) -> float | None:
    """Return an attempt's duration in s, until now if it is running; 0 if the clock was set back."""
    try:
        started = datetime.datetime.fromisoformat(str(attempt["started"]))
        ended = datetime.datetime.fromisoformat(str(attempt.get("ended") or files.now()))
        return max(0.0, (ended - started).total_seconds())
    except (KeyError, TypeError, ValueError):  # no time, or only one of the two has a zone
        return None
