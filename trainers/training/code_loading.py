"""Loads the code of a run before any part of the run is built, timed or measured."""

from __future__ import annotations

import importlib

from compressors.kernels import backend, warm_up
from trainers.config.run_config import RunConfig
from trainers.models import FAMILIES


def load_code(config: RunConfig) -> None:
    """Import the module of the run's model, and the CPU kernels of every compressor that the run may use.

    Computes nothing and starts no thread.

    Raises:
        InvalidParameter: the kernels are not installed, or do not work on the CPU.
    """
    if (family := FAMILIES.get(type(config.model))) is not None:  # else it is a plug-in's
        importlib.import_module(f"trainers.models.{family}")
    with backend.use(config.kernels):
        for compressor in config.policy.list_possible(config.compressor):
            warm_up.load_kernels(compressor)
    backend.used.clear()  # from here on, kernels are recorded as those of the run
