"""The slots of this machine for users of submitit: `AutoExecutor(folder, cluster="slots").submit(compute, task)`.

pyproject.toml names `SubmititSlots` as submitit's entry point.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core
from submitit.core.utils import DelayedSubmission, FailedJobError

from gradsweep import run_directory
from gradsweep.run_directory import Run
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.executors.base import Job
from sweep.executors.local import SlotExecutor
from sweep.system.processes import GRACE_S

STATES = {
    run_directory.PENDING: "PENDING",
    run_directory.RUNNING: "RUNNING",
    run_directory.DONE: "COMPLETED",
    run_directory.DIVERGED: "COMPLETED",
    run_directory.CANCELLED: "CANCELLED",
    run_directory.PREEMPTED: "PREEMPTED",
    run_directory.TIMEOUT: "TIMEOUT",
    run_directory.PRUNED: "CANCELLED",
}
"""submitit's word for each status of a job."""


class RunFailed(Exception):
    """A run ended without a result; `str()` gives the reason."""


def compute(task: RunTask) -> dict[str, Any]:
    """Train a run on all cores of this process, wait until it ends, and return its result.

    Raises:
        RunFailed: the run has no result; the message is the reason in state.json.
    """
    attempt = MpirunAttempt(task, sorted(os.sched_getaffinity(0)))
    try:
        while attempt.poll() is None:
            time.sleep(0.2)
    finally:
        attempt.stop(run_directory.CANCELLED, "interrupted")
    return load_result(task.run)


def load_result(run: Run) -> dict[str, Any]:
    """Return the result of a finished run.

    Raises:
        RunFailed: the run has no result.
    """
    result = run.result()
    if result is None:
        state = run.state()
        raise RunFailed(f"{state['status']}: {state.get('reason')}")
    return result


class SubmititJob(core.Job[dict[str, Any]]):
    """A job in submitit's interface; its result is the content of result.json."""

    _cancel_at_deletion = False

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(job.executor.folder, job.task.run.name)

    def _register_in_watcher(self) -> None:
        """Do nothing: submitit's watchers would query a scheduler, but the executor knows the states of its jobs."""

    @property
    def state(self) -> str:
        return STATES.get(self.job.status, "FAILED")

    def get_info(self, mode: str = "force") -> dict[str, str]:
        return {"jobState": self.state, "reason": self.job.reason or ""}

    def done(self, force_check: bool = False) -> bool:
        self.job.executor.poll()
        return self.job.ended

    def wait(self) -> None:
        self.job.wait()

    def cancel(self, check: bool = True) -> None:
        self.job.cancel(GRACE_S if check else 0.0)

    def exception(self) -> FailedJobError | None:
        self.wait()
        outcome, result = self._get_outcome_and_result()
        if outcome == "success":
            return None
        return FailedJobError(f"{self.job.task.run.name}: {result}\n{self.stderr() or ''}")

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        try:
            return "success", load_result(self.job.task.run)
        except RunFailed as error:
            return "error", str(error)

    def stdout(self) -> str | None:
        return self._read_log(run_directory.STDOUT)

    def stderr(self) -> str | None:
        return self._read_log(run_directory.STDERR)

    def _read_log(self, name: str) -> str | None:
        numbers = self.job.task.run.attempt_numbers()
        if not numbers:
            return None
        return (self.job.task.run.attempt(numbers[-1]) / name).read_text(encoding="utf-8", errors="replace")

    def __del__(self) -> None:
        if self._cancel_at_deletion and not self.job.ended:
            self.cancel(check=False)


class SubmititSlots(core.Executor):
    """Submitit's executor `slots`: passes submitted tasks (`compute`, task) to a `SlotExecutor`."""

    job_class = SubmititJob

    def __init__(self, folder: str | Path, **options: Any) -> None:
        super().__init__(folder)
        self.slots = SlotExecutor(self.folder, **options)

    @classmethod
    def name(cls) -> str:
        return "slots"

    @classmethod
    def affinity(cls) -> int:
        return 0  # submitit must not pick it by itself: it runs nothing but tasks

    def _internal_process_submissions(self, delayed_submissions: Sequence[DelayedSubmission]) -> list[core.Job[Any]]:
        tasks = []
        for submission in delayed_submissions:
            given = (submission.function, *submission.args)
            task = given[-1]
            if not isinstance(task, RunTask) or given[:-1] not in ((), (compute,)) or submission.kwargs:
                raise TypeError(f"the executor `{self.name()}` computes RunTask objects, not {submission.function!r}")
            tasks.append(task)
        return [SubmititJob(job) for job in self.slots.submit_runs(tasks)]
