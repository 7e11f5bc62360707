"""One rank of a run: training, and what surrounds it: cores, the measured network, the result, failures, the end."""

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


def run(directory: Path) -> None:
    """Train the run in `directory`.

    Raises:
        UsageError: the config cannot be used, the MPI world has the wrong size, or the run is finished.
    """
    from trainers.config import run_config as configs

    config = configs.load(directory / "config.yaml")
    limit_threads(config.threads_per_worker)

    from mpi4py import MPI

    train_run(config, MPI.COMM_WORLD, directory)


def train_run(config: RunConfig, comm: MPI.Comm, directory: Path) -> None:
    """Train a run with the ranks of `comm`, all of which call this, and leave its result in `directory`.

    Raises:
        UsageError: `comm` has the wrong size, or the run is finished, or something cannot be used with the rest.
    """
    from mpi4py import MPI

    from gradsweep.errors import UsageError
    from gradsweep.files import now, write_json
    from gradsweep.run_directory import CHECKPOINT, DONE, PREEMPTED, RESULT, STOPPED, Run

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
    result = train(config, comm, directory)
    if result["status"] == PREEMPTED:
        if comm.rank == 0:
            stopped = {"status": PREEMPTED, "reason": result["reason"], "step": result["steps"], "time": now()}
            write_json(find_attempt_directory(directory) / STOPPED, stopped)
        return
    hosts = comm.gather(MPI.Get_processor_name())
    if comm.rank == 0:
        result["hosts"] = sorted(set(hosts or []))
        if network is not None:
            result["network"] = network
        result["versions"] = collect_versions()
        write_json(directory / RESULT, result)
        files.conclude(directory / CHECKPOINT, keep=int(config.checkpoint.final and result["status"] == DONE))


def check_size_and_pin(config: RunConfig, comm: MPI.Comm, ranks: int) -> None:
    """See that `comm` has so many ranks, and give each its cores. All of them call this.

    Raises:
        UsageError: it has not.
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
    """What network.json of this attempt says, on rank 0; None on others, or where nothing is to be measured."""
    if not config.network.measured:
        return None
    from gradsweep.files import read_json, write_json
    from gradsweep.run_directory import EMULATION, NETWORK
    from trainers.network import links

    folder = find_attempt_directory(directory)
    network = links.of_run(comm, config.network, read_json(folder / EMULATION))
    if network is not None:
        write_json(folder / NETWORK, network)
    return network


def find_attempt_directory(directory: Path) -> Path:
    """Where the launcher looks for what became of this attempt."""
    from gradsweep.run_directory import ATTEMPT_VARIABLE

    return Path(os.environ.get(ATTEMPT_VARIABLE) or directory)


def collect_versions() -> dict[str, str]:
    """What result.json says about the programs that computed a run."""
    from importlib import metadata

    import torch
    from mpi4py import MPI

    found = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch.__version__,
        "mpi": MPI.Get_library_version().split(",")[0].strip("\0 \n"),
    }
    for package in ("numpy", "numba", "mpi4py"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    for name, version in (("cuda", torch.version.cuda), ("hip", torch.version.hip)):
        if version is not None:
            found[name] = version
    return found


def guess_rank() -> int:
    """This rank's number in the MPI world, as far as is known before MPI is."""
    variables = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
    return int(next((os.environ[name] for name in variables if name in os.environ), "0"))


def report_failure(directory: Path, error: BaseException, rank: int) -> None:
    """Print what went wrong and leave the reason where the launcher looks for it."""
    from gradsweep.errors import UsageError
    from gradsweep.files import now, write_json
    from gradsweep.run_directory import FAILURE
    from trainers.training.failure_cause import find_cause

    if isinstance(error, UsageError):
        reason = str(error)
        print(reason, file=sys.stderr)
    else:
        reason = f"rank {rank}: {type(error).__name__}: {error}"
        traceback.print_exception(error)
    folder = find_attempt_directory(directory)
    with contextlib.suppress(OSError):  # a full disk must not hide what is on stderr
        report = {"rank": rank, "reason": reason, "cause": find_cause(error), "time": now()}
        write_json(folder / FAILURE.format(rank=rank), report)


def wait_for_mpirun(error: BaseException) -> None:
    """Wait a little where an error says only that a connection to another rank broke (exchange.transport=torch).

    That rank is gone: it has told why, or mpirun is about to say what killed it, and ends this one meanwhile.
    """
    if isinstance(error, RuntimeError) and any(words in str(error) for words in BROKEN):
        time.sleep(GRACE_S)


def exit_rank(status: int) -> NoReturn:
    """End this rank: with a status other than 0 all the others too, which may wait for it in a collective.

    The interpreter is not taken down object by object, which with torch loaded costs half a second of CPU.
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
    """Do a rank's `work`, whose last argument, of those in `words`, is the directory of the run; never returns."""
    stopping.listen()  # first of all: a signal that nobody listens to would end this rank
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
