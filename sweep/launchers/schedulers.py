"""Query SLURM about the jobs of runs, and cancel jobs. The modules for SLURM are loaded only if a run has a job."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.directory.scheduler_job import COMPLETING, Job, read_cluster, read_job

SLURM = "slurm"
CANCELLED_S = 100.0  # SLURM's KillWait and an epilog


def find_jobs(runs: Iterable[Run]) -> dict[Run, Job]:
    """Return the latest jobs of runs; ask SLURM for the ids that a launcher did not record because it died.

    Raises:
        UsageError: SLURM does not answer.
    """
    jobs: dict[Run, Job] = {}
    unnoted: list[Run] = []
    for run in runs:
        if (job := read_job(run)) is not None:
            jobs[run] = job
        elif read_cluster(run) == SLURM:
            unnoted.append(run)
    if unnoted:
        from sweep.executors.slurm.queue import SlurmSilent
        from sweep.executors.slurm.submitted_jobs import SubmittedJobs

        submitted = SubmittedJobs()
        try:
            jobs |= {run: (SLURM, id) for run in unnoted if (id := submitted.find_id(run)) is not None}
        except SlurmSilent as silent:
            raise UsageError(f"hydra/launcher=slurm: {silent}; valid is a SLURM that answers, to find jobs") from None
    return jobs


def find_living_jobs(jobs: Iterable[Job], *, believed: bool = True) -> dict[Job, str | None]:
    """Return the jobs that wait (with the reason) or run (None); if SLURM does not answer, all jobs if `believed`."""
    asked = list(jobs)
    ids = [id for cluster, id in asked if cluster == SLURM]
    listed = query_slurm(ids) if ids else {}
    if listed is None:
        return dict.fromkeys(asked) if believed else {}
    return {(SLURM, id): waits_for for id, waits_for in listed.items()}


def query_slurm(ids: Sequence[str]) -> dict[str, str | None] | None:
    """Return the jobs that wait (with the reason) or run (None); None if SLURM does not answer."""
    from sweep.executors.slurm import queue

    try:
        listed = queue.list_jobs()
    except queue.SlurmSilent:
        return None
    alive = {id: listed[id] for id in ids if id in listed and listed[id].alive}
    return {id: COMPLETING if job.state == "COMPLETING" else job.waits_for for id, job in alive.items()}


def cancel_jobs(jobs: Mapping[Run, Job], reason: str) -> None:
    """Cancel the jobs of runs, and wait for their end, but not too long; jobs that also have other runs continue.

    Raises:
        UsageError: SLURM does not answer or refuses.
    """
    if not jobs:
        return
    from sweep.executors.slurm import queue
    from sweep.executors.slurm.shares import find_in_shared_jobs, remove_from_jobs

    out = find_in_shared_jobs(list(jobs))
    whole = sorted({job for run, job in jobs.items() if run not in out})
    try:
        queue.scancel([id for _, id in whole])
    except queue.SlurmSilent as silent:
        raise UsageError(f"hydra/launcher=slurm: {silent}; nothing was cancelled") from None
    remove_from_jobs(out, reason, CANCELLED_S)
    deadline = time.monotonic() + CANCELLED_S
    while find_living_jobs(whole, believed=False) and time.monotonic() < deadline:
        time.sleep(0.5)
