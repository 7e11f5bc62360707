"""Decentralised algorithms by their options."""

from __future__ import annotations

from trainers.algorithms.base import Parts
from trainers.algorithms.choco import Choco
from trainers.algorithms.copied import DCD, ECD
from trainers.algorithms.deep_squeeze import DeepSqueeze
from trainers.algorithms.dpsgd import DPSGD
from trainers.algorithms.gossiping import Gossiping
from trainers.algorithms.sgp import SGP
from trainers.options import algorithms as options


def decentralised(config: options.Decentralised, parts: Parts) -> Gossiping:
    """The algorithm that `config` describes; the exchange of `parts` is a Gossip. All workers call this."""
    if isinstance(config, options.DPSGD):
        return DPSGD(config, parts)
    if isinstance(config, options.Choco):
        return Choco(config, parts)
    if isinstance(config, options.DeepSqueeze):
        return DeepSqueeze(config, parts)
    if isinstance(config, options.DCD):
        return DCD(parts)
    if isinstance(config, options.ECD):
        return ECD(parts)
    if isinstance(config, options.SGP):
        return SGP(parts)
    raise TypeError(f"no algorithm is built from {config!r}")
