"""Asks the schedulers of all launchers about jobs, and has them end jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gradsweep.run_directory import Run
from sweep.directory.scheduler_job import Job, read_cluster, read_job


def find_jobs(runs: Iterable[Run]) -> dict[Run, Job]:
    """Return the latest jobs of runs; a scheduler is asked for those that a launcher died too early to note.

    Raises:
        UsageError: a scheduler does not answer.
    """
    from sweep.launchers.launchers import LAUNCHERS  # a look at a sweep without jobs does without

    jobs: dict[Run, Job] = {}
    unnoted: dict[str, list[Run]] = {}
    for run in runs:
        if (job := read_job(run)) is not None:
            jobs[run] = job
        elif (cluster := read_cluster(run)) is not None:
            unnoted.setdefault(cluster, []).append(run)
    for cluster, some in unnoted.items():
        if cluster in LAUNCHERS:
            jobs |= {run: (cluster, id) for run, id in LAUNCHERS[cluster].find_unnoted_jobs(some).items()}
    return jobs


def find_living_jobs(jobs: Iterable[Job], *, believed: bool = True) -> dict[Job, str | None]:
    """Return those of the jobs that wait, with why, or run; without an answer all of them if `believed`."""
    from sweep.launchers.launchers import LAUNCHERS

    alive: dict[Job, str | None] = {}
    for cluster, ids in _group_by_cluster(jobs).items():
        found = LAUNCHERS[cluster].find_living_jobs(ids) if cluster in LAUNCHERS else None
        if found is None:
            found = dict.fromkeys(ids) if believed else {}
        alive |= {(cluster, id): waits_for for id, waits_for in found.items()}
    return alive


def cancel_jobs(jobs: Mapping[Run, Job], reason: str) -> None:
    """End the jobs of runs; a job that others need, too, goes on with these.

    Raises:
        UsageError: a scheduler does not answer or refuses.
    """
    from sweep.launchers.launchers import LAUNCHERS

    for cluster in {job[0] for job in jobs.values()} & LAUNCHERS.keys():
        LAUNCHERS[cluster].cancel_jobs({run: job[1] for run, job in jobs.items() if job[0] == cluster}, reason)


def _group_by_cluster(jobs: Iterable[Job]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for cluster, each in jobs:
        grouped.setdefault(cluster, []).append(each)
    return grouped
