"""The interface of an optimizer: from the gradients in the flat buffer to new parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from compressors import unit_state
from trainers.gradients.flat import Flat, Unit


def find_tensors(flat: Flat) -> list[tuple[slice, int]]:
    """Where in the flat buffers every tensor of the model is, and how many dimensions it has."""
    found, offset = [], 0
    for _, parameter in flat.named:
        found.append((slice(offset, offset + parameter.numel()), parameter.dim()))
        offset += parameter.numel()
    return found


def find_decaying(flat: Flat, one_dimensional: bool) -> list[slice]:
    """The parts of the flat buffers that have weight decay; neighbours are one part.

    Without `one_dimensional`, biases and the factors of normalisation have none.
    """
    parts: list[slice] = []
    for place, dimensions in find_tensors(flat):
        if dimensions <= 1 and not one_dimensional:
            continue
        if parts and parts[-1].stop == place.start:
            parts[-1] = slice(parts[-1].start, place.stop)
        else:
            parts.append(place)
    return parts


class Optimizer(ABC):
    """Updates `flat.values` from `flat.gradients`; remembers tensors by name: flat ones, and counts.

    `config` is one of trainers.options.optimizers. `momentum` and `weight_decay` are the config's until a schedule
    changes them (`adjust`).
    """

    name: ClassVar[str]

    def __init__(self, flat: Flat, config: Any) -> None:
        self.flat, self.config = flat, config
        self.momentum: float = getattr(config, "momentum", 0.0)
        self.weight_decay: float = config.weight_decay
        self.kept: dict[str, torch.Tensor] = {}
        self._decaying = find_decaying(flat, config.decay_1d)

    def adjust(self, *, momentum: float | None = None, weight_decay: float | None = None) -> None:
        """Have other values from the next step on; called before every step that has any, so they are no state."""
        if momentum is not None:
            self.momentum = momentum
        if weight_decay is not None:
            self.weight_decay = weight_decay

    def prepare(self, unit: Unit) -> None:
        """Replace the local gradient of a unit by what is to be exchanged, in place; for most that is the gradient.

        Called on every worker before the unit is submitted to the exchange.
        """
        return None

    @abstractmethod
    def step(self, lr: float) -> None:
        """Update the parameters in place from the exchanged gradients, which may be changed on the way."""

    def _decay_into(self, direction: torch.Tensor) -> None:
        """Add weight decay to what the parameters will move along."""
        if self.weight_decay:
            for part in self._decaying:
                direction[part].add_(self.flat.values[part], alpha=self.weight_decay)

    def _shrink(self, lr: float) -> None:
        """Decoupled weight decay (Loshchilov and Hutter, ICLR 2019)."""
        if self.weight_decay:
            for part in self._decaying:
                self.flat.values[part].mul_(1 - lr * self.weight_decay)

    def state_dict(self) -> dict[str, Any]:
        """A copy of what is remembered from step to step."""
        return {name: tensor.clone() for name, tensor in self.kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Raises:
            ValueError: it is not the state of this optimizer on these parameters; nothing has been changed.
        """
        unit_state.require_alike(self.name, state, self.kept)
        for name, tensor in self.kept.items():
            tensor.copy_(state[name])
