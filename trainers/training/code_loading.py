"""Loads the code of a run before any part of the run is built, timed or measured."""

from __future__ import annotations

import importlib

from compressors.kernels import backend, warm_up
from gradsweep import targets
from trainers.config.run_config import RunConfig
from trainers.models import FAMILIES
from trainers.options.optimizers import Torch


def load_code(config: RunConfig) -> None:
    """Import the module of the run's model, the user's own code, and the CPU kernels of all compressors of the run.

    Computes nothing and starts no thread.

    Raises:
        InvalidParameter: the kernels are not installed, or do not work on the CPU.
        UsageError: the user's code cannot be imported.
    """
    if (family := FAMILIES.get(type(config.model))) is not None:  # else it is a plug-in's
        importlib.import_module(f"trainers.models.{family}")
    for key in targets.KEYS:
        part, _, option = key.partition(".")
        if target := getattr(getattr(config, part), option, None):
            targets.import_target(key, target)
    if isinstance(config.optimizer, Torch):
        importlib.import_module("torch._dynamo")  # by the first optimizer of torch
    with backend.use(config.kernels):
        for compressor in config.policy.list_possible(config.compressor):
            warm_up.load_kernels(compressor)
        for module in config.memory.kernel_modules():
            backend.load(module, "cpu")
    backend.used.clear()  # from here on, kernels are recorded as those of the run
