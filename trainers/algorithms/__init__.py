"""Algorithms by name, one file each: from the workers' gradients to new parameters."""

from __future__ import annotations

from typing import Any

from trainers.algorithms.base import Algorithm, AlgorithmSetup
from trainers.options import algorithms as options


def build(config: Any, setup: AlgorithmSetup, *, asynchronous: bool = False) -> Algorithm:
    """Build the algorithm that `config` describes; with `asynchronous`, the server takes the steps of algorithm=sgd."""
    if asynchronous and isinstance(config, options.Synchronous):
        from trainers.algorithms.asynchronous import Asynchronous

        return Asynchronous(setup)
    if isinstance(config, options.Synchronous):
        from trainers.algorithms.synchronous import Synchronous

        return Synchronous(setup)
    if isinstance(config, options.LocalSGD):
        from trainers.algorithms.local_sgd import LocalSGD

        return LocalSGD(config, setup)
    if isinstance(config, options.Decentralised):
        from trainers.algorithms.decentralised import build_decentralised

        return build_decentralised(config, setup)
    raise TypeError(f"no algorithm is built from {config!r}")
