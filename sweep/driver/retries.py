"""Decide which failed runs are retried, and when."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path

from gradsweep import failure_causes, files, run_directory
from gradsweep.run_directory import Run
from sweep.executors.base import Job
from sweep.settings.sweep import SweepSettings

MAY_PASS = (failure_causes.KILLED, failure_causes.LOST, failure_causes.START, failure_causes.HANG, failure_causes.DISK)
"""Causes that have nothing to do with what was asked for."""
LONGEST_S = 600.0
"""Between two tries at a run."""


@dataclasses.dataclass(frozen=True)
class Retry:
    """The plan to retry a run for the `number`th time, after `wait_s` seconds."""

    number: int
    wait_s: float
    alone: bool = False  # with nothing beside it


class Retries:
    """Decides on the retries of runs; counts only retries by this process, not those before a resume."""

    def __init__(self, settings: SweepSettings) -> None:
        self.limit, self.backoff_s = settings.retries, settings.backoff_s
        self._tried: collections.Counter[Path] = collections.Counter()
        self._causes: dict[Path, set[str]] = collections.defaultdict(set)

    def plan_retry(self, job: Job) -> Retry | None:
        """Return the retry of a job that has ended; None if the run is not retried."""
        run = job.task.run
        key, cause = run.directory, str(job.cause)
        if job.status not in (run_directory.FAILED, run_directory.TIMEOUT) or self._tried[key] >= self.limit:
            return None
        if not is_worth_retrying(run, cause) or (cause == failure_causes.MEMORY and cause in self._causes[key]):
            return None
        self._causes[key].add(cause)
        self._tried[key] += 1
        wait = min(LONGEST_S, self.backoff_s * 2 ** (self._tried[key] - 1))
        return Retry(self._tried[key], wait, failure_causes.MEMORY in self._causes[key])


def is_worth_retrying(run: Run, cause: str) -> bool:
    """Tell whether another attempt may succeed.

    A run that exceeded its time limit is retried if there is a checkpoint to continue from. A run that ended without an
    error message is retried if it had trained a step: otherwise the command for MPI is most often wrong.
    """
    if cause == failure_causes.TIME:
        saved = run.path(run_directory.CHECKPOINT).glob("*")
        return any(not path.name.startswith(".") for path in saved)
    if cause == failure_causes.UNKNOWN:
        return files.last_row(run.path(run_directory.STEPS)) is not None
    return cause in MAY_PASS or cause == failure_causes.MEMORY
