"""Check before the start, without loading torch, whether this machine can run a config."""

from __future__ import annotations

import importlib.util

from gradsweep.errors import UsageError, bad_value
from gradsweep.hardware import has_compiler, has_gpu_driver, torch_has_gpus
from trainers.config.run_config import RunConfig
from trainers.options.networks import Emulated
from trainers.options.sections import TRACKERS
from trainers.rules.rule import Condition, Rule, given, has, read, refuse

_ON_CPU = has("device", "cpu")

RULES = (
    Rule(
        Condition("compile=true", lambda run: run.compile),
        has("batch_norm", "synchronised"),
        "torch.compile cannot compile calls of MPI",
        "compile=false, or batch_norm=averaged or local",
    ),
    Rule(Condition("gpus", lambda run: bool(run.gpus), "{gpus=}"), _ON_CPU, "", "device=cuda or auto"),
    Rule(given("gpus_per_node"), _ON_CPU, "", "device=cuda or auto"),
    Rule(Condition("gpus", lambda run: bool(run.gpus), "{gpus=}"), given("gpus_per_node"), "", "one of them"),
    Rule(
        has("exchange.transport", "torch"),
        Condition(
            "an emulated network on a machine with a GPU",
            lambda run: isinstance(run.network, Emulated) and run.device != "cpu" and has_gpu_driver(),
            "an emulated network and {device=}",
        ),
        "NCCL may go from GPU to GPU of this machine, past the emulated links",
        "exchange.transport=mpi, or device=cpu",
    ),
)


def check(run: RunConfig) -> None:
    """Refuse configs that this machine cannot run, as far as that is known before the start.

    Raises:
        UsageError: names the option and what would work.
    """
    refuse(run, RULES)
    check_device(run)
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


def check_device(run: RunConfig) -> None:
    """Refuse GPUs and kernels that this machine lacks or that do not fit the device.

    Raises:
        UsageError: names the option and what would work.
    """
    if run.gpus and len(run.gpus) < run.workers:
        raise bad_value("gpus", list(run.gpus), f"at least as many numbers as workers={run.workers}, one for each rank")
    if run.device == "cuda" and not has_gpu_driver():
        raise bad_value("device", "cuda", "cpu or auto on this machine, which has no driver of a GPU")
    if run.device == "cuda" and read(run, "exchange.transport") == "torch" and not torch_has_gpus():
        raise bad_value("exchange.transport", "torch", "mpi with device=cuda where torch was built without NCCL")
    if run.kernels == "triton" and run.device != "cuda":
        raise bad_value(
            "kernels", run.kernels, "auto, numba or torch where training is on the CPU, or with device=cuda"
        )
    if run.kernels == "numba" and run.device == "cuda":
        raise bad_value("kernels", run.kernels, "auto, triton or torch where training is on a GPU, or with device=cpu")
