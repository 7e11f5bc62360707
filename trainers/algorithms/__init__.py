"""Algorithms by name, one file each: from the workers' gradients to new parameters."""

from __future__ import annotations

import importlib
from typing import Any

from trainers.algorithms.base import Algorithm, AlgorithmSetup
from trainers.options import algorithms as options
from trainers.options.optimizers import ZeroOneAdam

METHODS: dict[type, str] = {
    options.Synchronous: "synchronous.Synchronous",
    options.LocalSGD: "local_sgd.LocalSGD",
    options.DPSGD: "dpsgd.DPSGD",
    options.Choco: "choco.Choco",
    options.DeepSqueeze: "deep_squeeze.DeepSqueeze",
    options.DCD: "dcd_ecd_psgd.DCD",
    options.ECD: "dcd_ecd_psgd.ECD",
    options.SGP: "sgp.SGP",
    options.NoLoCo: "noloco.NoLoCo",
}
"""Module and class of an algorithm, by its options."""


def build(config: Any, setup: AlgorithmSetup, *, asynchronous: bool = False) -> Algorithm:
    """Build the algorithm that `config` describes; with `asynchronous`, the server does the steps of algorithm=sgd.

    With optimizer=zero_one_adam, the rounds of algorithm=sgd are those that 0/1 Adam plans. All workers call this. For
    decentralised algorithms, the exchange of `setup` is a Gossip.
    """
    method = METHODS[type(config)]
    if isinstance(config, options.Synchronous) and asynchronous:
        method = "asynchronous.Asynchronous"
    elif isinstance(config, options.Synchronous) and isinstance(setup.optimizer.config, ZeroOneAdam):
        method = "zero_one_adam.ZeroOneAdam"
    module, name = method.split(".")
    algorithm: Algorithm = getattr(importlib.import_module(f"trainers.algorithms.{module}"), name)(config, setup)
    return algorithm
