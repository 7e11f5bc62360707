"""One rank of a run: its training, cores, measured network, result, failures and end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainers.mpi import stopping
from trainers.mpi.process import die_with_parent, limit_threads, pin

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.config.run_config import RunConfig

BROKEN = ("Connection reset by peer", "Connection closed by peer", "Broken pipe")
GRACE_S = 10.0


Tune = Callable[["RunConfig", "MPI.Intracomm", Path], "RunConfig | None"]
"""Returns a config with the setting that its trial has found, if exchange.tune asks for one (race/tuning.py); None if a
signal has ended the trial."""


def run(tune: Tune, directory: Path) -> None:
    """Train the run in `directory`.

    Raises:
        UsageError: the config cannot be used, the MPI world has the wrong size, or the run is finished.
    """
    from trainers.config import run_config as configs

    config = configs.load(directory / "config.yaml")
    limit_threads(config.threads_per_worker)

    from mpi4py import MPI

    train_run(config, MPI.COMM_WORLD, directory, tune)


def train_run(config: RunConfig, comm: MPI.Intracomm, directory: Path, tune: Tune) -> None:
    """Train a run with the ranks of `comm`, and write its result in `directory`. All ranks call this.

    Raises:
        UsageError: `comm` has the wrong size, the run is finished, or options do not go together.
    """
    from mpi4py import MPI

    from gradsweep.errors import UsageError
    from gradsweep.files import now, read_json, write_json
    from gradsweep.run_directory import CHECKPOINT, DONE, PREEMPTED, RESULT, STOPPED, TUNED, Run

    check_size_and_pin(config, comm, config.ranks)

    import torch

    from trainers.checkpoint import files
    from trainers.training.loop import train

    torch.set_num_threads(config.threads_per_worker)
    if comm.rank == 0 and Run(directory).result() is not None:
        raise UsageError(
            f"{directory / RESULT}: the run is finished; remove the file, and {CHECKPOINT} where there is one, to "
            f"compute it again"
        )
    network = measure_network(config, comm, directory)
    tuned_config = tune(config, comm, directory)
    if tuned_config is None:
        result = {"status": PREEMPTED, "reason": "SIGUSR1 came before its first step", "steps": 0}
    else:
        config = tuned_config
        result = train(config, comm, directory)
    if result["status"] == PREEMPTED:
        if comm.rank == 0:
            stopped = {"status": PREEMPTED, "reason": result["reason"], "step": result["steps"], "time": now()}
            write_json(find_attempt_directory(directory) / STOPPED, stopped)
        return
    hosts = comm.gather(MPI.Get_processor_name())
    transport = describe_transport(config, comm)
    if comm.rank == 0:
        result["hosts"] = sorted(set(hosts or []))
        if transport is not None:
            result["transport"] = transport
        if network is not None:
            result["network"] = network
        if getattr(config.exchange, "tune", False) and (tuned := read_json(directory / TUNED)):
            result["tuned"] = tuned
        result["versions"] = collect_versions()
        write_json(directory / RESULT, result)
        files.conclude(directory / CHECKPOINT, keep=int(config.checkpoint.final and result["status"] == DONE))


def check_size_and_pin(config: RunConfig, comm: MPI.Comm, ranks: int) -> None:
    """Check that `comm` has `ranks` ranks, and pin each to its cores. All ranks call this.

    Raises:
        UsageError: `comm` has another size.
    """
    from mpi4py import MPI

    from gradsweep.errors import UsageError

    if comm.size != ranks:
        raise UsageError(
            f"workers={config.workers}: the MPI world has {comm.size} rank(s); valid is an mpi.command that starts "
            f"{ranks} of the MPI that mpi4py uses ({MPI.Get_library_version().splitlines()[0].strip(chr(0))})"
        )
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    pin(node.rank, config.threads_per_worker)
    node.Free()


def measure_network(config: RunConfig, comm: MPI.Comm, directory: Path) -> dict[str, Any] | None:
    """Measure the network and write network.json of this attempt; return its content on rank 0, else None."""
    if not config.network.measured:
        return None
    from gradsweep.files import read_json, write_json
    from gradsweep.run_directory import EMULATION, NETWORK
    from trainers.network import links

    folder = find_attempt_directory(directory)
    network = links.measure_run(comm, config.network, read_json(folder / EMULATION))
    if network is not None:
        write_json(folder / NETWORK, network)
    return network


def uses_mpi(config: RunConfig) -> bool:
    """Tell whether MPI carries the gradients of a run."""
    return bool(getattr(config.exchange, "transport", "mpi") == "mpi")


def describe_transport(config: RunConfig, comm: MPI.Comm) -> dict[str, Any] | None:
    """Return on rank 0 what carries the messages of MPI, as result.json has it; None where MPI carries no gradients.

    `algorithms` are those of the collectives (`read_algorithms`), with the exchange's own of allreduce. All ranks call
    this. On an emulated network, devices that are faster than TCP are not reported as unused.
    """
    from trainers.mpi.control_variables import read_algorithms
    from trainers.network.transport import find_transport
    from trainers.options.networks import Emulated

    if not uses_mpi(config):
        return None
    found = find_transport(comm)
    if found is None:
        return None
    if isinstance(config.network, Emulated):
        found = {**found, "faster": []}
    algorithms = read_algorithms()
    if algorithms is not None:
        own = getattr(config.exchange, "allreduce", None)
        found["algorithms"] = algorithms | ({"allreduce": own} if own else {})
    return found


def find_attempt_directory(directory: Path) -> Path:
    """Return the directory of this attempt, in which the launcher looks for its outcome."""
    from gradsweep.run_directory import ATTEMPT_VARIABLE

    return Path(os.environ.get(ATTEMPT_VARIABLE) or directory)


def collect_versions() -> dict[str, str]:
    """Return result.json's record of the versions of programs that compute a run."""
    from importlib import metadata

    import torch
    from mpi4py import MPI

    versions = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch.__version__,
        "mpi": MPI.Get_library_version().split(",")[0].strip("\0 \n"),
    }
    for package in ("numpy", "numba", "mpi4py"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    for name, version in (("cuda", torch.version.cuda), ("hip", torch.version.hip)):
        if version is not None:
            versions[name] = version
    return versions


def guess_rank() -> int:
    """Return this rank's number from mpirun's environment variables, before MPI starts; 0 without these."""
    variables = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
    return int(next((os.environ[name] for name in variables if name in os.environ), "0"))


def report_failure(directory: Path, error: BaseException, rank: int) -> None:
    """Print an error, and write its reason and cause to failure-R.json for the launcher."""
    from gradsweep.errors import UsageError, get_first_line
    from gradsweep.files import now, write_json
    from gradsweep.run_directory import FAILURE
    from trainers.training.failure_cause import RunFailed, find_cause

    if isinstance(error, UsageError):
        reason = str(error)
        if error.__cause__ is not None:  # of the user's code
            traceback.print_exception(error.__cause__)
        print(reason, file=sys.stderr)
    elif isinstance(error, RuntimeError) and "DataLoader worker" in str(error):  # torch raises it wherever this rank is
        reason = f"data.loaders: {get_first_line(error)} Valid is fewer processes, or 0, where it ran out of memory"
        print(reason, file=sys.stderr)
    else:
        reason = f"rank {rank}: {type(error).__name__}: {error}"
        traceback.print_exception(error)
    folder = find_attempt_directory(directory)
    with contextlib.suppress(OSError):  # a full disk must not hide what is on stderr
        report = {"rank": rank, "reason": reason, "cause": find_cause(error), "time": now()}
        report |= {"run": error.run, "in_trial": error.in_trial} if isinstance(error, RunFailed) else {}
        write_json(folder / FAILURE.format(rank=rank), report)


def wait_for_mpirun(error: BaseException) -> None:
    """Wait briefly if the error is a broken connection to another rank (exchange.transport=torch).

    The other rank has ended. It has written its own reason, or mpirun is about to report the signal that killed it.
    During the wait mpirun ends this rank, so that this rank's error does not hide the cause.
    """
    if isinstance(error, RuntimeError) and any(words in str(error) for words in BROKEN):
        time.sleep(GRACE_S)


def exit_rank(status: int) -> NoReturn:
    """End this rank with `status`; unless that is 0, abort all ranks, which may be waiting in a collective.

    Python's clean-up at exit is skipped, because with torch loaded it takes half a second of CPU time.
    """
    stopping.end_stacks()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        if status:
            sys.stderr.flush()
            mpi.COMM_WORLD.Abort(status)
        mpi.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(arguments: list[str], work: Callable[..., None], module: str, words: str) -> NoReturn:
    """Call `work` with the arguments, which are named by `words` and end with the run's directory; then end the
    rank."""
    stopping.listen()  # before anything slow: an unhandled SIGUSR1 would end this rank
    die_with_parent()
    if len(arguments) != len(words.split()):
        print(f"usage: mpirun -n WORKERS python -m {module} {words}", file=sys.stderr)
        exit_rank(2)
    *options, last = arguments
    directory = Path(last)
    stopping.write_stacks_into(find_attempt_directory(directory), guess_rank())
    try:
        work(*options, directory)
    except BaseException as error:
        wait_for_mpirun(error)
        report_failure(directory, error, guess_rank())
        exit_rank(1)
    exit_rank(0)
