"""Jobs of a scheduler, by what runs have written of them: which are known to it still, and their end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.run_directory import Run

Job = tuple[str, str]
"""The cluster, a key of launchers.LAUNCHERS, and the scheduler's id."""

COMPLETING = "completing"
"""What a job waits for that has been ended, while its scheduler tidies up: it may then be gone, or queued again."""
WAITING = "waiting.json"  # in the sweep's directory, while a launcher waits for a scheduler


def read_job(run: Run) -> Job | None:
    """The latest job that a run was given to; None where no scheduler has it."""
    try:
        found = files.read_json(run.path(run_directory.JOB))
    except OSError:
        return None
    if found is None or not all(isinstance(found.get(key), str) for key in ("cluster", "id")):
        return None
    return found["cluster"], found["id"]


def note_waiting(directory: Path, waiting: Mapping[str, tuple[str, str | None]]) -> None:
    """Have other shells know for what runs wait in a scheduler, as far as this process, the sweep's launcher, knows.

    Args:
        waiting: by the name of the run its job, and why that does not run, in the scheduler's words.
    """
    with contextlib.suppress(OSError):  # a full disk: nobody is told
        if waiting:
            files.write_json(directory / WAITING, {"pid": os.getpid(), "runs": dict(waiting)}, durable=False)
        else:
            (directory / WAITING).unlink(missing_ok=True)


def read_waiting(directory: Path, holder: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """What the launcher that holds a sweep has noted; nothing where an earlier one did."""
    try:
        noted = files.read_json(directory / WAITING) or {}
    except OSError:
        return {}
    if noted.get("pid") != holder.get("pid") or not isinstance(noted.get("runs"), dict):
        return {}
    pairs = {name: each for name, each in noted["runs"].items() if isinstance(each, list) and len(each) == 2}
    return {name: (str(job), None if why is None else str(why)) for name, (job, why) in pairs.items()}


def found(runs: Iterable[Run]) -> dict[Run, Job]:
    """The latest jobs of runs, also where a launcher died before it could note which: then its scheduler is asked.

    Raises:
        UsageError: a scheduler does not answer.
    """
    from sweep.settings.launcher import LAUNCHERS

    jobs: dict[Run, Job] = {}
    unnoted: dict[str, list[Run]] = {}
    for run in runs:
        if (job := read_job(run)) is not None:
            jobs[run] = job
        elif (cluster := _given_to(run)) is not None:
            unnoted.setdefault(cluster, []).append(run)
    for cluster, some in unnoted.items():
        if cluster in LAUNCHERS:
            jobs |= {run: (cluster, id) for run, id in LAUNCHERS[cluster].unnoted_jobs(some).items()}
    return jobs


def _given_to(run: Run) -> str | None:
    """The cluster that a run was given to; None where it never was."""
    try:
        given = files.read_json(run.path(run_directory.JOB)) or {}
    except OSError:
        return None
    return given["cluster"] if isinstance(given.get("cluster"), str) else None


def known(jobs: Iterable[Job], *, believed: bool = True) -> dict[Job, str | None]:
    """Those of the jobs that wait or run, with why they wait. Where nobody can tell, they are `believed` to, or not."""
    from sweep.settings.launcher import LAUNCHERS

    alive: dict[Job, str | None] = {}
    for cluster, ids in _by_cluster(jobs).items():
        found = LAUNCHERS[cluster].known_jobs(ids) if cluster in LAUNCHERS else None
        if found is None:
            found = dict.fromkeys(ids) if believed else {}
        alive |= {(cluster, id): waits_for for id, waits_for in found.items()}
    return alive


def cancel(jobs: Mapping[Run, Job], reason: str) -> None:
    """End the jobs of runs; one that others need, too, goes on with these.

    Raises:
        UsageError: a scheduler does not answer or refuses.
    """
    from sweep.settings.launcher import LAUNCHERS

    for cluster in {job[0] for job in jobs.values()} & LAUNCHERS.keys():
        LAUNCHERS[cluster].cancel_jobs({run: job[1] for run, job in jobs.items() if job[0] == cluster}, reason)


def _by_cluster(jobs: Iterable[Job]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for cluster, each in jobs:
        grouped.setdefault(cluster, []).append(each)
    return grouped
