"""Launchers: each checks runs, builds the executor for them, and asks its scheduler about jobs or to end them.

Their options are in sweep/settings/{local,slurm}_launcher.py. The modules of executors are loaded when one is built.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory
from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import Run
from sweep.directory.scheduler_job import COMPLETING
from sweep.emulation import find_emulation
from sweep.settings.launcher import Options, parse_options
from sweep.settings.local_launcher import LocalOptions
from sweep.settings.mpi import MpiSettings
from sweep.settings.slurm_launcher import SlurmOptions
from sweep.settings.sweep import SweepSettings
from sweep.system import cores

if TYPE_CHECKING:
    from sweep.executors.base import Estimate, RunExecutor, Weigh
    from sweep.executors.local import SlotExecutor
    from sweep.executors.packed.fork_server import ForkServers
    from sweep.executors.slurm.submitted_jobs import SubmittedJobs

CANCELLED_S = 100.0  # SLURM's KillWait and an epilog


class Launcher:
    """Starts the runs of a sweep where the options of hydra/launcher say; by itself it asks no scheduler."""

    options: Options

    def check_run(self, config: Mapping[str, Any], settings: SweepSettings) -> None:
        """Check that the run and its sweep can be started with these options.

        Raises:
            UsageError: they cannot.
        """
        raise NotImplementedError

    def build_executor(
        self,
        directory: Path,
        settings: SweepSettings,
        estimate: Estimate | None = None,
        weigh: Weigh | None = None,
        fork_servers: ForkServers | None = None,
    ) -> RunExecutor:
        """Return the executor for the runs of a sweep.

        Args:
            estimate: orders the runs, where it is given and knows their times.
            weigh: orders the others.
            fork_servers: that may have been started early, for packed runs.
        """
        raise NotImplementedError

    @classmethod
    def find_living_jobs(cls, jobs: Sequence[str]) -> dict[str, str | None] | None:
        """Return those of the jobs (`id` of job.json) that wait, with why, or run (None); None without an answer."""
        return {}

    @classmethod
    def find_unnoted_jobs(cls, runs: Sequence[Run]) -> dict[Run, str]:
        """Return the jobs of runs whose launcher died before it could write the `id` into job.json.

        Raises:
            UsageError: the scheduler does not answer.
        """
        return {}

    @classmethod
    def cancel_jobs(cls, jobs: Mapping[Run, str], reason: str) -> None:
        """End the jobs of runs; returns when they are gone, or nothing more can be done.

        Raises:
            UsageError: the scheduler does not answer or refuses.
        """


@dataclasses.dataclass(frozen=True)
class LocalLauncher(Launcher):
    """Starts runs on this machine, which has no scheduler."""

    options: LocalOptions

    def check_run(self, config: Mapping[str, Any], settings: SweepSettings) -> None:
        """Check that the run has its GPUs, socket and network here; with too few cores it is oversubscribed.

        Raises:
            UsageError: there are not so many GPUs, the path of a packed sweep's socket is too long, or the network
                cannot be emulated.
        """
        self.options.count_gpus(config)
        if (network := find_emulation(config)) is not None:
            from sweep.emulation.capability_check import check

            most = cores.choose_cores(self.options.cores)[1]
            check(network, run_directory.count_ranks(config), MpiSettings(**config["mpi"]).resolve_command(), most)
        if settings.pack:
            from sweep.executors.packed.rank_connection import check_socket_path

            check_socket_path()

    def build_executor(
        self,
        directory: Path,
        settings: SweepSettings,
        estimate: Estimate | None = None,
        weigh: Weigh | None = None,
        fork_servers: ForkServers | None = None,
    ) -> RunExecutor:
        """Return the executor for the runs of a sweep; it refuses those that SLURM still has."""
        kind: Callable[..., SlotExecutor]
        if settings.pack:
            from sweep.executors.packed.executor import PackedExecutor

            kind = functools.partial(PackedExecutor, fork_servers=fork_servers)
        else:
            from sweep.executors.local import SlotExecutor as kind
        which, most = cores.choose_cores(self.options.cores)
        return kind(
            directory,
            which,
            settings.max_parallel,
            gpus=self.options.list_gpus,
            most=most,
            share_cores=settings.share_cores,
            estimate=estimate,
            weigh=weigh,
            refuse=SubmittedRuns().refuse,
        )


class SubmittedRuns:
    """The runs of a sweep that SLURM may still have; SLURM is asked once."""

    def __init__(self) -> None:
        self._jobs: SubmittedJobs | None = None

    def refuse(self, run: Run) -> None:
        """Refuse a run that is to be computed on this machine while a job of SLURM computes it.

        Raises:
            UsageError: with that job.
        """
        if not run.path(run_directory.JOB).exists():
            return
        from sweep.executors.slurm.submitted_jobs import SubmittedJobs, find_slurm_job

        self._jobs = self._jobs or SubmittedJobs()
        if (job := find_slurm_job(run, self._jobs)) is not None:
            raise UsageError(
                f"hydra.launcher.cluster=local: SLURM still has runs of this sweep, such as {run.name} (job {job}); "
                f"valid is hydra/launcher=slurm, or to end them with scancel first"
            )


@dataclasses.dataclass(frozen=True)
class SlurmLauncher(Launcher):
    """Submits runs as jobs of SLURM."""

    options: SlurmOptions

    def check_run(self, config: Mapping[str, Any], settings: SweepSettings) -> None:
        if (network := find_emulation(config)) is not None:
            valid = "real or none with hydra/launcher=slurm: its nodes have a network, which real measures"
            raise bad_value("network", network["name"], valid)
        self.options.build_request(run_directory.count_ranks(config), config["threads_per_worker"])
        self.options.check_sweep(settings)

    def build_executor(
        self,
        directory: Path,
        settings: SweepSettings,
        estimate: Estimate | None = None,
        weigh: Weigh | None = None,
        fork_servers: ForkServers | None = None,
    ) -> RunExecutor:
        from sweep.executors.slurm.executor import SlurmRunExecutor

        return SlurmRunExecutor(directory, self.options.poll_s, packed=settings.pack, estimate=estimate, weigh=weigh)

    @classmethod
    def find_living_jobs(cls, jobs: Sequence[str]) -> dict[str, str | None] | None:
        from sweep.executors.slurm import queue

        try:
            listed = queue.list_jobs()
        except queue.SlurmSilent:
            return None
        alive = {id: listed[id] for id in jobs if id in listed and listed[id].alive}
        return {id: COMPLETING if job.state == "COMPLETING" else job.waits_for for id, job in alive.items()}

    @classmethod
    def find_unnoted_jobs(cls, runs: Sequence[Run]) -> dict[Run, str]:
        from sweep.executors.slurm import queue
        from sweep.executors.slurm.submitted_jobs import SubmittedJobs

        jobs = SubmittedJobs()
        try:
            return {run: id for run in runs if (id := jobs.find_id(run)) is not None}
        except queue.SlurmSilent as silent:
            raise UsageError(f"hydra/launcher=slurm: {silent}; valid is a SLURM that answers, to find jobs") from None

    @classmethod
    def cancel_jobs(cls, jobs: Mapping[Run, str], reason: str) -> None:
        """End the jobs of runs; returns when they are gone, or SLURM takes too long over it.

        A job that serves other runs, too, goes on with these.
        """
        from sweep.executors.slurm import queue
        from sweep.executors.slurm.shares import find_in_shared_jobs, remove_from_jobs

        out = find_in_shared_jobs(list(jobs))
        whole = sorted({id for run, id in jobs.items() if run not in out})
        try:
            queue.cancel_jobs(whole)
        except queue.SlurmSilent as silent:
            raise UsageError(f"hydra/launcher=slurm: {silent}; nothing was cancelled") from None
        remove_from_jobs(out, reason, CANCELLED_S)
        deadline = time.monotonic() + CANCELLED_S
        while cls.find_living_jobs(whole) and time.monotonic() < deadline:
            time.sleep(0.5)


LAUNCHERS: dict[str, type[Launcher]] = {"local": LocalLauncher, "slurm": SlurmLauncher}
"""Launchers by what `hydra.launcher.cluster` may say."""


def choose_launcher(options: Options) -> Launcher:
    """Return the launcher that has these options."""
    return LocalLauncher(options) if isinstance(options, LocalOptions) else SlurmLauncher(options)


def build_launcher(section: Mapping[str, Any]) -> Launcher:
    """Return the launcher of a config's section `launcher`.

    Raises:
        UsageError: an unknown cluster or key, another launcher's options, or a value out of range.
    """
    return choose_launcher(parse_options(section))
