"""The interface of an optimizer: from the gradients in the flat buffer to new parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from compressors import states
from trainers.flat import Flat, Unit


class Optimizer(ABC):
    """Updates `flat.values` from `flat.gradients`; remembers flat tensors by name, each as long as the parameters."""

    name: ClassVar[str]

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.kept: dict[str, torch.Tensor] = {}

    def prepare(self, unit: Unit) -> None:
        """Replace the local gradient of a unit by what is to be exchanged, in place; for most that is the gradient.

        Called on every worker before the unit is submitted to the exchange.
        """
        return None

    @abstractmethod
    def step(self, lr: float) -> None:
        """Update the parameters in place from the exchanged gradients, which may be changed on the way."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of what is remembered from step to step."""
        return {name: tensor.clone() for name, tensor in self.kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Raises:
            ValueError: it is not the state of this optimizer on these parameters; nothing has been changed.
        """
        states.require_alike(self.name, state, self.kept)
        for name, tensor in self.kept.items():
            tensor.copy_(state[name])
