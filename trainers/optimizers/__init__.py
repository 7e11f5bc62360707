"""Optimizers by name, one file each, on the flat buffers.

Only optimizer=torch uses torch's own optimizer classes (`torch_optimizer`): the first `torch.optim.Optimizer` of a
process imports torch._dynamo, which takes as much CPU time as importing torch itself. (The functions of torch.optim,
such as `sgd`, do not import it.) The updates are the same up to rounding, and tests compare them.
"""

from __future__ import annotations

import importlib
from typing import Any

from trainers.gradients.flat import Flat
from trainers.optimizers import groups
from trainers.optimizers.base import Optimizer
from trainers.options import optimizers as options

METHODS: dict[type, str] = {
    options.SGD: "sgd.SGD",
    options.DGCSGD: "dgc_sgd.DGCSGD",
    options.Signum: "signum.Signum",
    options.Adam: "adam.Adam",
    options.LARS: "lars.LARS",
    options.OneBitAdam: "onebit_adam.OneBitAdam",
    options.ZeroOneAdam: "zero_one_adam.ZeroOneAdam",
    options.LAMB: "lamb.LAMB",
    options.OneBitLAMB: "onebit_lamb.OneBitLAMB",
    options.Lion: "lion.Lion",
    options.DistributedLion: "distributed_lion.DistributedLion",
    options.Muon: "muon.Muon",
    options.Dion: "dion.Dion",
    options.Torch: "torch_optimizer.TorchOptimizer",
}
"""Module and class of an optimizer, by its options."""


def build(config: Any, flat: Flat) -> Optimizer:
    """Build the optimizer that `config` describes, for the parameters in `flat`.

    Raises:
        UsageError: an entry of `optimizer.groups` finds no tensor, or an optimizer cannot update its tensors.
    """
    groups.check(config, flat.kinds)
    return groups.Groups(flat, config, _build) if config.groups else _build(config, flat)


def _build(config: Any, flat: Flat) -> Optimizer:
    module, name = METHODS[type(config)].split(".")
    optimizer: Optimizer = getattr(importlib.import_module(f"trainers.optimizers.{module}"), name)(flat, config)
    return optimizer
