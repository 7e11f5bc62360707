"""Cancel runs on which no launcher works."""

from __future__ import annotations

from collections.abc import Iterable

from gradsweep import run_directory
from gradsweep.run_directory import Run
from sweep.directory.run_state import finish_attempt, reconcile_abandoned, write_state
from sweep.launchers import schedulers


def cancel_unwatched(runs: Iterable[Run], reason: str) -> None:
    """Cancel runs that are marked as pending or running although no launcher works on them.

    Raises:
        UsageError: a scheduler that has some of them does not answer; nothing has been changed.
    """
    ended = (run_directory.PREEMPTED, run_directory.CANCELLED)
    wanted = (run_directory.PENDING, run_directory.RUNNING, *ended)
    left = {run: status for run in runs if (status := run.status()) in wanted}
    given = schedulers.find_jobs(left)
    # a run whose job the scheduler has ended may wait for its turn again
    queued = schedulers.find_living_jobs(given[run] for run in given if left[run] in ended)
    left = {run: status for run, status in left.items() if status not in ended or given.get(run) in queued}
    schedulers.cancel_jobs({run: job for run, job in given.items() if run in left}, reason)
    for run, before in left.items():
        reconcile_abandoned(run)
        if run.status() in (run_directory.FAILED, run_directory.CANCELLED) and run.state()["attempts"]:
            finish_attempt(run, run_directory.CANCELLED, reason, None)
        elif run.status() == run_directory.PENDING or before in ended:
            write_state(run, status=run_directory.CANCELLED, reason=reason)
