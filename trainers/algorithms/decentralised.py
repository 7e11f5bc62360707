"""Decentralised algorithms by their options."""

from __future__ import annotations

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.choco import Choco
from trainers.algorithms.copied import DCD, ECD
from trainers.algorithms.deep_squeeze import DeepSqueeze
from trainers.algorithms.dpsgd import DPSGD
from trainers.algorithms.gossiping import Gossiping
from trainers.algorithms.sgp import SGP
from trainers.options import algorithms as options


def build_decentralised(config: options.Decentralised, setup: AlgorithmSetup) -> Gossiping:
    """Build the algorithm that `config` describes; the exchange of `setup` is a Gossip. All workers call this."""
    if isinstance(config, options.DPSGD):
        return DPSGD(config, setup)
    if isinstance(config, options.Choco):
        return Choco(config, setup)
    if isinstance(config, options.DeepSqueeze):
        return DeepSqueeze(config, setup)
    if isinstance(config, options.DCD):
        return DCD(setup)
    if isinstance(config, options.ECD):
        return ECD(setup)
    if isinstance(config, options.SGP):
        return SGP(setup)
    raise TypeError(f"no algorithm is built from {config!r}")
