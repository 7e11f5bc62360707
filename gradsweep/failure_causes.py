"""The causes of failed attempts, named as in state.json and failure-*.json.

docs/reference/exit-statuses.md is generated from here.
"""

from __future__ import annotations

INPUT, ERROR, MEMORY, DISK, KILLED = "input", "error", "memory", "disk", "killed"
START, LOST, HANG, TIME, UNKNOWN = "start", "lost", "hang", "time", "unknown"

MEANINGS = {
    INPUT: "the request cannot work, or files of the run or of the code snapshot were changed or removed",
    ERROR: "an exception in an MPI rank",
    MEMORY: "a rank reported a lack of memory (Python, torch, CUDA), or the kernel killed a rank for lack of memory",
    DISK: "no space, no inode, an exhausted quota, or a failing or read-only disk",
    KILLED: "a signal ended a rank or mpirun",
    START: "the attempt could not be started",
    LOST: "the process that ran the attempt is gone: a killed launcher, a failed node, or a preempted SLURM job that "
    "was not queued again",
    HANG: "no progress for `sweep.hang_minutes`",
    TIME: "the attempt took longer than `sweep.time_minutes`, or than its SLURM job may; the status is `timeout`",
    UNKNOWN: "mpirun ended without a message of any rank; before the first step, the usual reason is a wrong "
    "`mpi.command`",
}

LOST_CONNECTION = 14
"""Exit status of Open MPI's mpirun (MPI_ERR_UNKNOWN) where ranks on other hosts were the first to see one end."""
