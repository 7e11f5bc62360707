"""Forecast what sweep.pack makes of runs: MPI worlds on this machine, allocations on SLURM."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep import run_directory
from gradsweep.text import plural
from sweep.attempts.build_task import weigh
from sweep.attempts.run_task import RunTask
from sweep.emulation import find_emulation
from sweep.executors.backlog import count_places
from sweep.executors.packed.world_size import build_world_key, compute_world_size
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import SweepSettings
from sweep.system import cores


@dataclasses.dataclass(frozen=True)
class Pack:
    """One MPI world: of this machine, or of an allocation, which has no other."""

    ranks: int
    runs: int


@dataclasses.dataclass(frozen=True)
class PackedRun:
    """A run of which a dry run forecasts what it is trained in."""

    directory: str
    config: Mapping[str, Any]
    seconds: float | None
    """How long it may take; None: unknown."""


def forecast_packs(runs: Sequence[PackedRun], settings: SweepSettings, mpi: MpiSettings) -> list[Pack]:
    """Return the MPI worlds that runs are trained in as long as nothing fails; `count_unpacked` counts the others."""
    packed = [run for run in runs if not find_emulation(run.config)]
    tasks = [
        RunTask(
            run.directory,
            run_directory.count_ranks(run.config),
            run.config["threads_per_worker"],
            mpi.command,
            mpi.environment,
            launcher=dict(run.config["launcher"]),
        )
        for run in packed
    ]
    if not tasks:
        return []
    if tasks[0].launcher["cluster"] == "local":
        return _forecast_worlds(tasks, settings)
    seconds = {run.directory: run.seconds for run in packed}
    weights = {run.directory: weigh(run.config) for run in packed}
    return _forecast_allocations(tasks, seconds, weights)


def _forecast_worlds(tasks: Sequence[RunTask], settings: SweepSettings) -> list[Pack]:
    """Return a world for each kind of runs."""
    total = cores.choose_cores(tasks[0].launcher.get("cores"))[1]
    most = count_places(settings.max_parallel, total, settings.share_cores)
    room = 0 if settings.share_cores else total
    kinds: dict[Any, list[RunTask]] = {}
    for task in tasks:
        kinds.setdefault(build_world_key(task), []).append(task)
    return [
        Pack(compute_world_size([task.workers for task in alike], room, alike[0].threads_per_worker, most), len(alike))
        for alike in kinds.values()
    ]


def _forecast_allocations(
    tasks: Sequence[RunTask], seconds: Mapping[str, float | None], weights: Mapping[str, tuple[float, ...]]
) -> list[Pack]:
    """Return a world for each job, of which there may be some for each kind of runs.

    Args:
        seconds: how long each run may take, by its directory.
        weights: order the runs without an estimate.
    """
    from sweep.executors.slurm.batch import group_tasks
    from sweep.executors.slurm.shares import share_out  # with submitit
    from sweep.settings.slurm_launcher import parse_slurm_options

    share_out = functools.partial(
        share_out, estimate=lambda task: seconds[task.directory], weigh=lambda task: weights[task.directory]
    )
    shares = [share for _, some in group_tasks(tasks, sys.maxsize, share_out) for share in some]
    return [
        Pack(share[0].workers * min(len(share), parse_slurm_options(share[0].launcher).side_by_side), len(share))
        for share in shares
    ]


def count_unpacked(configs: Sequence[Mapping[str, Any]]) -> int:
    """Return how many runs start by themselves although the sweep is packed: those with an emulated network."""
    return sum(find_emulation(config) is not None for config in configs)


def describe_packs(packs: Sequence[Pack], cluster: str, unpacked: int = 0) -> str:
    """Return a line with how many worlds or allocations of each size there are, and how many runs are in none."""
    what = "MPI world" if cluster == "local" else "allocation"
    words = [
        f"{plural(count, what)} of {plural(pack.ranks, 'rank')} for {plural(pack.runs, 'run')}"
        + (" each" if count > 1 else "")
        for pack, count in collections.Counter(packs).items()
    ]
    own = f"; by themselves: {plural(unpacked, 'run')} on an emulated network" if unpacked else ""
    return f"packed: {', '.join(words) or 'none'}{own}"
