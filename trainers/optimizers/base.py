"""The interface of an optimizer: from the gradients in the flat buffer to new parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from compressors import unit_state
from trainers.config.groups import get_name
from trainers.gradients.flat import Flat, Unit


def find_tensors(flat: Flat) -> list[tuple[slice, int]]:
    """Return the slice of the flat buffers and the number of dimensions of every tensor of the model."""
    tensors, offset = [], 0
    for _, parameter in flat.named:
        tensors.append((slice(offset, offset + parameter.numel()), parameter.dim()))
        offset += parameter.numel()
    return tensors


def find_decaying(flat: Flat, one_dimensional: bool) -> list[slice]:
    """Return the slices of the flat buffers that have weight decay, with neighbouring tensors joined.

    Without `one_dimensional`, biases and the scales of normalisation layers have no weight decay.
    """
    slices: list[slice] = []
    for tensor, dimensions in find_tensors(flat):
        if dimensions <= 1 and not one_dimensional:
            continue
        if slices and slices[-1].stop == tensor.start:
            slices[-1] = slice(slices[-1].start, tensor.stop)
        else:
            slices.append(tensor)
    return slices


class Optimizer(ABC):
    """Updates the parameters `flat.values` by the gradients `flat.gradients`.

    `kept` is its state: flat tensors and counts by name. `config` is a dataclass of trainers.options.optimizers.
    `momentum` and `weight_decay` have the config's values until a schedule changes them by `adjust`.
    """

    buffers: ClassVar[tuple[str, ...]] = ()
    """Names of tensors in `kept` that are as long as the parameters, and 0 at first."""

    def __init__(self, flat: Flat, config: Any) -> None:
        self.flat, self.config = flat, config
        self.momentum: float = getattr(config, "momentum", 0.0)
        self.weight_decay: float = config.weight_decay
        self.kept = {name: torch.zeros_like(flat.values) for name in self.buffers}
        self._decaying = find_decaying(flat, getattr(config, "decay_1d", True))

    def adjust(self, *, momentum: float | None = None, weight_decay: float | None = None) -> None:
        """Set values for the next step; a schedule that has such values calls this before every step."""
        if momentum is not None:
            self.momentum = momentum
        if weight_decay is not None:
            self.weight_decay = weight_decay

    def prepare(self, unit: Unit) -> None:
        """Replace a unit's local gradient in place by the tensor to exchange; most optimizers exchange the gradient.

        Every worker calls this before it submits the unit to the exchange.
        """
        return None

    @abstractmethod
    def step(self, lr: float) -> None:
        """Update the parameters in place from the exchanged gradients, which may be overwritten."""

    def _get_part(self, name: str, unit: Unit) -> torch.Tensor:
        """Return the part of a buffer in `kept` that belongs to a unit, in the unit's shape."""
        start = unit.gradient.storage_offset() - self.flat.gradients.storage_offset()
        return self.kept[name][start : start + unit.gradient.numel()].view_as(unit.gradient)

    def _decay_into(self, direction: torch.Tensor) -> None:
        """Add weight decay to the direction in which the parameters will move."""
        if self.weight_decay:
            for tensor in self._decaying:
                direction[tensor].add_(self.flat.values[tensor], alpha=self.weight_decay)

    def _shrink(self, lr: float, values: torch.Tensor | None = None) -> None:
        """Apply decoupled weight decay (Loshchilov and Hutter, ICLR 2019) to `values`; None: to the parameters."""
        if self.weight_decay:
            for tensor in self._decaying:
                (self.flat.values if values is None else values)[tensor].mul_(1 - lr * self.weight_decay)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state that lasts from step to step."""
        return {name: tensor.clone() for name, tensor in self.kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: it is not the state of this optimizer on these parameters; nothing has been changed.
        """
        unit_state.require_alike(get_name(self.config), state, self.kept)
        for name, tensor in self.kept.items():
            tensor.copy_(state[name])
