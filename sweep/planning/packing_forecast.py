"""What sweep.pack will make of runs, before anything starts: MPI worlds on this machine, allocations on SLURM."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory
from gradsweep.text import plural
from sweep.attempts.build_task import weight
from sweep.attempts.run_task import RunTask
from sweep.emulation import emulated
from sweep.executors.backlog import places
from sweep.executors.packed.world_size import key_of, world_size
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import SweepSettings
from sweep.system import cores

if TYPE_CHECKING:
    from sweep.planning.dry_run import Row


@dataclasses.dataclass(frozen=True)
class Pack:
    """One MPI world: of this machine, or of an allocation, which has no other."""

    ranks: int
    runs: int


def packs(rows: Sequence[Row], settings: SweepSettings, mpi: MpiSettings) -> list[Pack]:
    """What the runs of a dry run would be trained in, as long as nothing fails; those that `alone` counts are not."""
    known = {str(row.directory): (row.config, row.estimate) for row in rows if row.config and not emulated(row.config)}
    tasks = [
        RunTask(
            directory,
            run_directory.ranks(config),
            config["threads_per_worker"],
            mpi.command,
            mpi.environment,
            launcher=dict(config["launcher"]),
        )
        for directory, (config, _) in known.items()
    ]
    if not tasks:
        return []
    if tasks[0].launcher["cluster"] == "local":
        return _worlds(tasks, settings)
    seconds = {directory: estimate.seconds if estimate else None for directory, (_, estimate) in known.items()}
    weights = {directory: weight(config) for directory, (config, _) in known.items()}
    return _allocations(tasks, seconds, weights)


def _worlds(tasks: Sequence[RunTask], settings: SweepSettings) -> list[Pack]:
    """A world for each kind of runs."""
    total = cores.choose_cores(tasks[0].launcher.get("cores"))[1]
    most = places(settings.max_parallel, total, settings.share_cores)
    room = 0 if settings.share_cores else total
    kinds: dict[Any, list[RunTask]] = {}
    for task in tasks:
        kinds.setdefault(key_of(task), []).append(task)
    return [
        Pack(world_size([task.workers for task in alike], room, alike[0].threads_per_worker, most), len(alike))
        for alike in kinds.values()
    ]


def _allocations(
    tasks: Sequence[RunTask], seconds: Mapping[str, float | None], weights: Mapping[str, tuple[float, ...]]
) -> list[Pack]:
    """A world for each job, of which there may be some for each kind of runs.

    Args:
        seconds: how long each run may take, by its directory.
        weights: what ranks those that nobody can estimate.
    """
    from sweep.executors.slurm.batch import grouped
    from sweep.executors.slurm.shares import shared_out  # with submitit
    from sweep.settings.slurm_launcher import options_of

    share_out = functools.partial(
        shared_out, estimate=lambda task: seconds[task.directory], weigh=lambda task: weights[task.directory]
    )
    shares = [share for _, some in grouped(tasks, sys.maxsize, share_out) for share in some]
    return [
        Pack(share[0].workers * min(len(share), options_of(share[0].launcher).side_by_side), len(share))
        for share in shares
    ]


def alone(rows: Sequence[Row]) -> int:
    """How many runs of a dry run start by themselves although it is packed: those with hosts of their own."""
    return sum(row.config is not None and emulated(row.config) is not None for row in rows)


def line(found: Sequence[Pack], cluster: str, alone: int = 0) -> str:
    """Worlds or allocations for people, those that are alike together, and how many runs are in none."""
    what = "MPI world" if cluster == "local" else "allocation"
    words = [
        f"{plural(count, what)} of {plural(pack.ranks, 'rank')} for {plural(pack.runs, 'run')}"
        + (" each" if count > 1 else "")
        for pack, count in collections.Counter(found).items()
    ]
    own = f"; by themselves: {plural(alone, 'run')} on an emulated network" if alone else ""
    return f"packed: {', '.join(words) or 'none'}{own}"
