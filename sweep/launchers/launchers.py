"""Check that runs can start with their options of hydra/launcher, and build their executor.

The options are in sweep/settings/{local,slurm}_launcher.py. An executor's modules are only loaded to build it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory
from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import Run
from sweep.emulation import find_emulation
from sweep.settings.launcher import Options, parse_options
from sweep.settings.mpi import MpiSettings
from sweep.settings.slurm_launcher import SlurmOptions
from sweep.settings.sweep import SweepSettings
from sweep.system import cores

if TYPE_CHECKING:
    from sweep.executors.base import Arrange, Estimate, RunExecutor
    from sweep.executors.packed.fork_server import ForkServers
    from sweep.executors.slurm.submitted_jobs import SubmittedJobs


def check_network(config: Mapping[str, Any]) -> None:
    """Check that the launcher's machine can emulate the network of a run, if it is to be emulated.

    Raises:
        UsageError: it cannot; the message says why.
    """
    network = find_emulation(config)
    if network is None:
        return
    options = parse_options(config["launcher"])
    if isinstance(options, SlurmOptions):
        valid = "real or none with hydra/launcher=slurm: its nodes have a network, which real measures"
        raise bad_value("network", network["name"], valid)
    from sweep.emulation.capability_check import check

    most = cores.choose_cores(options.cores)[1]
    check(network, run_directory.count_ranks(config), MpiSettings(**config["mpi"]).resolve_command(), most)


def check_run(options: Options, config: Mapping[str, Any], settings: SweepSettings) -> None:
    """Check that a run can start. Too few cores on this machine are no error: the run is then marked oversubscribed.

    Raises:
        UsageError: the machine has too few GPUs, the path of a packed sweep's socket is too long, or SLURM's options
            exclude each other.
    """
    if isinstance(options, SlurmOptions):
        options.build_request(run_directory.count_ranks(config), config["threads_per_worker"])
        options.check_sweep(settings)
        return
    options.count_gpus(config)
    if settings.pack:
        from sweep.executors.packed.rank_connection import check_socket_path

        check_socket_path()


def build_executor(
    options: Options,
    directory: Path,
    settings: SweepSettings,
    estimate: Estimate | None = None,
    arrange: Arrange | None = None,
    fork_servers: ForkServers | None = None,
) -> RunExecutor:
    """Return the executor for a sweep's runs; the one for this machine refuses runs that still have a SLURM job.

    Args:
        estimate: estimates the duration of a run.
        arrange: orders the runs of one submission.
        fork_servers: the fork servers for packed runs, which may have been started early.
    """
    if isinstance(options, SlurmOptions):
        from sweep.executors.slurm.executor import SlurmRunExecutor

        return SlurmRunExecutor(directory, options.poll_s, packed=settings.pack, estimate=estimate, arrange=arrange)
    which, most = cores.choose_cores(options.cores)
    how: dict[str, Any] = {
        "gpus": options.list_gpus,
        "most": most,
        "share_cores": settings.share_cores,
        "estimate": estimate,
        "arrange": arrange,
        "refuse": SubmittedRuns().refuse,
    }
    if settings.pack:
        from sweep.executors.packed.executor import PackedExecutor

        return PackedExecutor(directory, which, settings.max_parallel, fork_servers=fork_servers, **how)
    from sweep.executors.local import SlotExecutor

    return SlotExecutor(directory, which, settings.max_parallel, **how)


class SubmittedRuns:
    """Finds runs that may still have a SLURM job; asks SLURM only once."""

    def __init__(self) -> None:
        self._jobs: SubmittedJobs | None = None

    def refuse(self, run: Run) -> None:
        """Refuse to compute a run on this machine while a SLURM job computes it.

        Raises:
            UsageError: there is such a job; the message names it.
        """
        if not run.path(run_directory.JOB).exists() or run.status() in run_directory.COMPLETE or not which("squeue"):
            return
        from sweep.executors.slurm.queue import SlurmSilent
        from sweep.executors.slurm.submitted_jobs import SubmittedJobs

        self._jobs, job = self._jobs or SubmittedJobs(), None
        with contextlib.suppress(SlurmSilent):
            job = self._jobs.find_living(run)
        if job is not None:
            raise UsageError(
                f"hydra.launcher.cluster=local: SLURM still has runs of this sweep, such as {run.name} (job {job}); "
                f"valid is hydra/launcher=slurm, or to end them with scancel first"
            )
