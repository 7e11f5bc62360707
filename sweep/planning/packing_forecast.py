"""Forecast how sweep.pack groups runs: MPI worlds on this machine, allocations on SLURM."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.text import plural
from sweep.attempts.run_task import RunTask
from sweep.emulation import find_emulation
from sweep.executors.backlog import count_places
from sweep.executors.packed.world_size import build_world_key, compute_world_size
from sweep.planning.row import Row
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import SweepSettings
from sweep.system import cores


@dataclasses.dataclass(frozen=True)
class Pack:
    """A forecast MPI world, on this machine or in its own SLURM allocation."""

    ranks: int
    runs: int


def forecast_packs(runs: Sequence[Row], settings: SweepSettings) -> list[Pack]:
    """Return the MPI worlds in which runs would be trained if none fails."""
    packed = {str(row.directory): row for row in runs}
    tasks = [_make_task(directory, row) for directory, row in packed.items()]
    if not tasks:
        return []
    is_local = tasks[0].launcher["cluster"] == "local"
    return _forecast_worlds(tasks, settings) if is_local else _forecast_allocations(tasks, packed)


def _make_task(directory: str, row: Row) -> RunTask:
    """Return an incomplete task of a run, with the fields that decide which runs share a world."""
    mpi, config = MpiSettings(**row.config["mpi"]), row.config
    return RunTask(
        directory,
        row.workers,
        config["threads_per_worker"],
        mpi.command,
        mpi.variables,
        launcher=dict(config["launcher"]),
        network=find_emulation(config),
    )


def _forecast_worlds(tasks: Sequence[RunTask], settings: SweepSettings) -> list[Pack]:
    """Return the worlds on this machine: one for each set of runs that can share a world."""
    total = cores.choose_cores(tasks[0].launcher.get("cores"))[1]
    most = count_places(settings.max_parallel, total, settings.share_cores)
    room = 0 if settings.share_cores else total
    kinds: dict[Any, list[RunTask]] = {}
    for task in tasks:
        kinds.setdefault(build_world_key(task), []).append(task)
    return [Pack(compute_world_size(alike, room, most), len(alike)) for alike in kinds.values()]


def _forecast_allocations(tasks: Sequence[RunTask], rows: Mapping[str, Row]) -> list[Pack]:
    """Return the worlds on SLURM: one for each job; `rows` maps each run's directory to its row."""
    from sweep.executors.slurm.batch import group_tasks
    from sweep.executors.slurm.shares import share_out  # with submitit
    from sweep.settings.slurm_launcher import parse_slurm_options

    share_out = functools.partial(share_out, estimate=lambda task: rows[task.directory].seconds)
    shares = [share for _, some in group_tasks(tasks, sys.maxsize, share_out) for share in some]
    return [
        Pack(share[0].workers * min(len(share), parse_slurm_options(share[0].launcher).side_by_side), len(share))
        for share in shares
    ]


def describe_packs(packs: Sequence[Pack], cluster: str) -> str:
    """Return a line with the number of worlds or allocations of each size."""
    what = "MPI world" if cluster == "local" else "allocation"
    words = [
        f"{plural(count, what)} of {plural(pack.ranks, 'rank')} for {plural(pack.runs, 'run')}"
        + (" each" if count > 1 else "")
        for pack, count in collections.Counter(packs).items()
    ]
    return f"packed: {', '.join(words)}"
