"""What a config asks of the machine that it runs on: found out before anything starts, without loading torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep.run_directory import UsageError, bad_value
from trainers.options.networks import Emulated

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig

TRACKERS: Mapping[str, str] = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""The package that each tracker needs, by the tracker's name, which is also that of the extra that installs it."""

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows Subsystem for Linux


def is_gpu(value: Any) -> bool:
    """It can be the number of a GPU."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def has_gpu_driver() -> bool:
    """There may be a GPU: without the driver's device there is none for certain."""
    return any(Path(device).exists() for device in _DRIVERS)


def has_compiler() -> bool:
    """There is a C++ compiler where torch.compile looks for one."""
    return any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++") if name)


def torch_has_gpus() -> bool:
    """Whether the installed torch was built for GPUs; True where that cannot be seen from its files."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return True
    libraries = Path(found.origin).parent / "lib"
    for_gpus = any((libraries / f"libtorch_{kind}.so").exists() for kind in ("cuda", "hip"))
    return for_gpus or not (libraries / "libtorch_cpu.so").exists()


def check(run: RunConfig) -> None:
    """Refuse what this machine cannot do, as far as that can be known here.

    Raises:
        UsageError: names the option and what would work.
    """
    _check_device(run)
    if run.compile and run.batch_norm == "synchronised":
        raise UsageError(
            "compile=true with batch_norm=synchronised: no compiler looks into MPI; valid is compile=false, or "
            "batch_norm=averaged or local"
        )
    on_cpu = run.device == "cpu" or (run.device == "auto" and not has_gpu_driver())
    if run.compile and on_cpu and not has_compiler():
        raise bad_value("compile", "true", "false without a C++ compiler; torch.compile looks for $CXX, g++ or clang++")
    for name in run.trackers:
        if importlib.util.find_spec(TRACKERS[name]) is None:
            raise UsageError(
                f"trackers={name}: the package {TRACKERS[name]} is not installed; valid after "
                f"`pip install 'gradsweep[{name}]'`"
            )
        if run.trackers.count(name) > 1:
            raise bad_value("trackers", f"[{','.join(run.trackers)}]", "each of them once")


def _check_device(run: RunConfig) -> None:
    for key, given in (("gpus", list(run.gpus)), ("gpus_per_node", run.gpus_per_node)):
        if given and run.device == "cpu":
            raise UsageError(f"{key}={given} with device=cpu: valid is device=cuda or auto")
    if run.gpus and run.gpus_per_node is not None:
        raise UsageError(f"gpus={list(run.gpus)} with gpus_per_node={run.gpus_per_node}: valid is one of them")
    if run.gpus and len(run.gpus) < run.workers:
        raise bad_value("gpus", list(run.gpus), f"at least as many numbers as workers={run.workers}, one for each rank")
    if run.device == "cuda" and not has_gpu_driver():
        raise bad_value("device", "cuda", "cpu or auto on this machine, which has no driver of a GPU")
    torch_transport = getattr(run.exchange, "transport", "mpi") == "torch"
    if run.device == "cuda" and torch_transport and not torch_has_gpus():
        raise bad_value("exchange.transport", "torch", "mpi with device=cuda where torch was built without NCCL")
    if torch_transport and isinstance(run.network, Emulated) and run.device != "cpu" and has_gpu_driver():
        raise UsageError(
            f"exchange.transport=torch with an emulated network and device={run.device}: NCCL may go from GPU to "
            f"GPU of this machine, past the emulated links; valid is exchange.transport=mpi, or device=cpu"
        )
    if run.kernels == "triton" and run.device != "cuda":
        raise bad_value(
            "kernels", run.kernels, "auto, numba or torch where training is on the CPU, or with device=cuda"
        )
    if run.kernels == "numba" and run.device == "cuda":
        raise bad_value("kernels", run.kernels, "auto, triton or torch where training is on a GPU, or with device=cpu")
