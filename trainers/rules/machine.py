"""What a config asks of the machine that it runs on: found out before anything starts, without loading torch."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from gradsweep.errors import UsageError, bad_value
from trainers.devices.hardware import has_compiler, has_gpu_driver, torch_has_gpus
from trainers.options.machine import TRACKERS
from trainers.options.networks import Emulated

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig


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
