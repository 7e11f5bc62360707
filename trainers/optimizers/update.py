"""Build the parts of an update that workers and servers share: units, compressors, optimizer and clipping."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compressors.kernels import backend
from compressors.policy.policy import Policy, Selector
from gradsweep.errors import bad_value
from gradsweep.options.parameters import InvalidParameter
from trainers import optimizers
from trainers.config.run_config import RunConfig
from trainers.gradients.clipping import Clipping
from trainers.gradients.flat import Flat, Unit
from trainers.gradients.units import cut_units
from trainers.optimizers.base import Optimizer
from trainers.optimizers.groups import assign
from trainers.options.optimizers import Dion


class UpdateSetup(NamedTuple):
    """The units of a model, their compressors, the optimizer and the clipping, on a worker or a server."""

    units: Sequence[Unit]
    selector: Selector
    optimizer: Optimizer
    clipping: Clipping


def build_update_setup(config: RunConfig, flat: Flat) -> UpdateSetup:
    """Build units, selector, optimizer and clipping for a model's flat buffers, and load all kernels.

    Raises:
        UsageError: a pattern of the policy finds no unit, or an entry of `optimizer.groups` no tensor.
    """
    units = cut_units(config, flat)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    try:
        selector = Selector(complete_policy(config, flat), config.compressor, described, config.workers)
    except InvalidParameter as error:  # names of tensors are known only now
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error
    with hide_package("scipy"):  # numba would load scipy's BLAS, which no kernel calls, in 0.25 s of CPU time
        selector.warm_up(flat.gradients.device)
        for module in config.memory.kernel_modules():
            backend.load(module, flat.gradients.device)
        optimizer = optimizers.build(config.optimizer, flat)
        clipping = Clipping(config.clip, flat.gradients)
    return UpdateSetup(units, selector, optimizer, clipping)


def complete_policy(config: RunConfig, flat: Flat) -> Policy:
    """Return the policy of a run; with optimizer=dion, gradients of tensors with another optimizer are sent dense."""
    if not isinstance(config.optimizer, Dion):
        return config.policy
    chosen = assign(config.optimizer.build_groups(), flat.kinds)
    others = [re.escape(name) for name, group in zip(flat.kinds, chosen, strict=True) if group is not None]
    dense = {"match": f"^({'|'.join(others)})$", "compressor": {"name": "none"}}
    return dataclasses.replace(config.policy, patterns=[dense] if others else [])


@contextlib.contextmanager
def hide_package(package: str) -> Iterator[None]:
    """Make imports of an optional package fail within the block, unless it is already loaded."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
