"""`python -m sweep.executors.slurm_job BATCH`: what a task of a job array of SLURM does.

It takes the place of the batch script's shell, so that SLURM's signals come here: USR2 some time before the time limit
and at a preemption, USR1 from the launcher, TERM from scancel. Exit status 0 when the runs have results or will go on
in another job, else 1.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from gradsweep import run_directory
from gradsweep.disk import disk_errors
from gradsweep.files import read_json
from gradsweep.run_directory import Run
from sweep.attempts.run_task import load_task
from sweep.executors.slurm_job.job_signals import JobSignals
from sweep.executors.slurm_job.single_run import SingleRunJob
from sweep.system.slurm_allocation import Allocation


def main(arguments: list[str]) -> int:
    """Compute the runs of this task and return the exit status; an error of the disk is printed in one line."""
    try:
        return _compute(arguments)
    except OSError as error:
        if (line := disk_errors.describe(error)) is None:
            raise
        print(line, file=sys.stderr)
        return 1


def _compute(arguments: list[str]) -> int:
    signals = JobSignals()
    signals.listen()
    if len(arguments) != 1 or "SLURM_ARRAY_TASK_ID" not in os.environ:
        usage = "python -m sweep.executors.slurm_job SWEEP/slurm/batch-NNNN.json"
        print(f"usage, in a job array of SLURM: {usage}", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    batch = read_json(path)
    if batch is None:
        print(f"{path}: there is no such batch", file=sys.stderr)
        return 2
    index, allocation = int(os.environ["SLURM_ARRAY_TASK_ID"]), Allocation.from_environment(os.environ)
    exclusive = (batch.get("resources") or {}).get("exclusive") is True
    beside_others = not exclusive and (allocation.shared or allocation.is_overcounted())
    allocation = dataclasses.replace(allocation, shared=beside_others or allocation.is_oversubscribed())
    mine = batch["runs"][index]
    if isinstance(mine, list):
        from sweep.executors.slurm_job.packed_runs import PackedRunsJob

        return PackedRunsJob(path, index, mine, allocation, signals).compute()
    run = Run(path.parent.parent / batch.get("folder", run_directory.RUNS) / mine)
    job = read_json(run.path(run_directory.JOB))
    if job is None or job.get("batch") != path.stem:
        print(f"{run.name}: has been submitted anew, or is gone", file=sys.stderr)
        return 1
    return SingleRunJob(load_task(job["task"]), allocation, signals).compute()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
