"""Algorithms by name, one file each: from the workers' gradients to new parameters."""

from __future__ import annotations

import importlib
from typing import Any

from trainers.algorithms.base import Algorithm, AlgorithmSetup
from trainers.options import algorithms as options

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

    All workers call this. For decentralised algorithms, the exchange of `setup` is a Gossip.
    """
    is_served = asynchronous and isinstance(config, options.Synchronous)
    module, name = ("asynchronous.Asynchronous" if is_served else METHODS[type(config)]).split(".")
    algorithm: Algorithm = getattr(importlib.import_module(f"trainers.algorithms.{module}"), name)(config, setup)
    return algorithm
