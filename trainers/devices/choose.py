"""Choose the device of a rank: the CPU, or one of its node's GPUs, which it may share with other ranks."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import torch

from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import GPUS_VARIABLE
from trainers.config.run_config import RunConfig
from trainers.devices.stopwatch import Stopwatch
from trainers.mpi import staging
from trainers.options.networks import Emulated

if TYPE_CHECKING:
    from mpi4py import MPI


def choose_gpu(config: RunConfig, rank: int, node_rank: int, visible: int) -> int:
    """Return the number of the GPU for a rank.

    The option `gpus` lists the GPU of each rank, as `world` of ChocoSGD's launcher does; entries beyond the last rank
    are ignored, as there. Without it, the ranks of a node use its GPUs in turn; emulated hosts count as one node.

    Args:
        rank: number of this rank among all ranks.
        node_rank: its number among the ranks on the same node.
        visible: number of GPUs that torch sees on this node.

    Raises:
        UsageError: there is no GPU of that number.
    """
    if config.gpus:
        number = config.gpus[rank]
        if number >= visible:
            raise bad_value("gpus", list(config.gpus), f"numbers below {visible}, the GPUs that torch sees here")
        return number
    per_node = visible if config.gpus_per_node is None else config.gpus_per_node
    if per_node > visible:
        raise bad_value("gpus_per_node", per_node, f"an integer from 1 to {visible}, the GPUs that torch sees here")
    return (rank if isinstance(config.network, Emulated) else node_rank) % per_node


def list_own_gpus(visible: int) -> list[int]:
    """Return the numbers of the GPUs that this run may use: all that torch sees, or its share in a packed world
    (trainers/packed/worker.py)."""
    given = [int(number) for number in os.environ.get(GPUS_VARIABLE, "").split(",") if number]
    return given or list(range(visible))


def may_use_gpu(config: RunConfig) -> bool:
    """Tell whether this rank may use a GPU."""
    return config.device != "cpu" and torch.cuda.is_available()


def choose(config: RunConfig, comm: MPI.Comm) -> torch.device:
    """Return the device for this rank, and make it the current device. All ranks call this together.

    Raises:
        UsageError: the config asks for a GPU that is not there, or the ranks would train on different kinds of device.
    """
    if config.device == "cpu":
        return torch.device("cpu")
    available = torch.cuda.is_available()
    hosts = comm.allgather((available, socket.gethostname()))
    without = sorted({host for has_gpu, host in hosts if not has_gpu})
    if without and any(has_gpu for has_gpu, _ in hosts):
        valid = f"cpu, since torch sees a GPU in some of the ranks only, and none in those of {', '.join(without)}"
        raise bad_value("device", config.device, valid)
    if not available:
        if config.device == "cuda":
            is_cpu_build = torch.version.cuda is None and torch.version.hip is None
            why = "was built without CUDA" if is_cpu_build else "sees no GPU"
            raise UsageError(f"device=cuda: this torch ({torch.__version__}) {why}; valid is cpu or auto")
        return torch.device("cpu")
    if config.kernels == "numba":
        raise bad_value("kernels", "numba", "auto, triton or torch where training is on a GPU, or with device=cpu")
    return _use_gpu(config, comm)


def _use_gpu(config: RunConfig, comm: MPI.Comm) -> torch.device:
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    own = list_own_gpus(torch.cuda.device_count())
    device = torch.device("cuda", own[choose_gpu(config, comm.rank, node.rank, len(own))])
    node.Free()
    torch.cuda.set_device(device)
    staging.use(device, direct=staging.can_read_gpus())
    return device


def create_stopwatch(device: torch.device) -> Stopwatch:
    """Return a stopwatch that measures work on `device`, even if calls return before the work is done."""
    if device.type != "cuda":
        return Stopwatch()
    from trainers.devices.gpu_stopwatch import EventStopwatch

    return EventStopwatch()


def describe(device: torch.device) -> dict[str, Any]:
    """Return result.json's record of a device."""
    if device.type != "cuda":
        return {"device": device.type}
    return {
        "device": "cuda",
        "gpu": torch.cuda.get_device_name(device),
        "messages": "sent from the GPU" if staging.is_direct() else "staged through main memory",
    }
