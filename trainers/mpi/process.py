"""The process of a rank: its cores, the threads of its libraries, and its end with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent, MPI's daemon, ends, so that no rank survives."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def pin(local_rank: int, threads: int) -> None:
    """Pin this rank to its own cores among those of the run, or to all of them if they are too few.

    All existing threads are pinned, too: in a packed world there are threads of earlier runs
    (trainers/packed/worker.py).
    """
    from gradsweep.run_directory import CORES_VARIABLE

    cores = [int(core) for core in os.environ.get(CORES_VARIABLE, "").split(",") if core]
    mine = cores[local_rank * threads : (local_rank + 1) * threads]
    wanted = mine if len(mine) == threads else cores
    for thread in os.listdir("/proc/self/task") if wanted else []:
        with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
            os.sched_setaffinity(int(thread), wanted)


def limit_threads(threads: int) -> None:
    """Set the environment variables for the threads of numerical libraries, before these are imported."""
    from gradsweep.run_directory import THREAD_VARIABLES

    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
