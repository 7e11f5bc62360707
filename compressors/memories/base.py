"""The interface of memories, which keep the parts of gradients that were not sent.

An exchange calls, for every unit (layer, bucket or model) and step:

    memory.begin(lr, workers, norm)                  # once a step
    x = memory.compensate(unit, gradient, lossless)
    payload = compressor.compress(x, key, out)
    memory.update(key, x, payload, compressor)
    memory.finish(unit, mean)                        # the mean of what the workers have sent, decoded

    Memory, UnitMemory       the interface, and what most memories share
    REGISTRY                 memories by name
    error_feedback           residual, scaled_residual, loco: what was not sent is sent later
    estimates                ef21, econtrol: the change of an estimate of the gradient is sent
    dgc_momentum             dgc: the same with momentum

Importing these modules loads neither torch nor numba.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from compressors.base import Compressor
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.unit_state import Stateful, Stateless
from gradsweep.options.parameters import Checked


@dataclasses.dataclass(frozen=True)
class Memory(Checked, Stateless, ABC):
    """A worker's state for each unit. Subclasses are frozen dataclasses whose fields are the hyper-parameters."""

    name: ClassVar[str]
    """How configs and tables call the memory."""
    kind: ClassVar[str] = "memory "

    @property
    def needs_norm(self) -> bool:
        """Whether `compensate` needs the norm of the whole gradient, which is known only after backward."""
        return False

    def kernel_modules(self) -> tuple[str, ...]:
        """Return the names of the kernel modules that the memory uses."""
        return ()

    def begin(self, lr: float, workers: int, norm: Callable[[], float]) -> None:
        """Start a step with this learning rate and number of workers; `norm` returns the l2 norm of this worker's
        gradient.
        """
        return None

    @abstractmethod
    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        """Return the tensor to compress in place of `gradient`, in the same shape; with `lossless` it will be sent
        exactly.

        The caller must not write to the result, nor read it after `update`: it may be the gradient itself or the
        memory's own state. `gradient` is not kept: it may be overwritten as soon as this returns.
        """

    @abstractmethod
    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        """Store the part of `x` (from `compensate` for unit `key.unit`) that `payload` does not carry."""

    def finish(self, unit: int, mean: torch.Tensor) -> None:
        """Convert the mean of the sent tensors into the mean gradient, in place."""
        return None

    def norm(self) -> float:
        """Return the l2 norm, over all units, of the parts of gradients that are kept back."""
        return 0.0


@dataclasses.dataclass(frozen=True)
class NoMemory(Memory):
    """Keeps nothing: parts of gradients that were not sent are lost."""

    name: ClassVar[str] = "none"

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        return gradient

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        return None


@dataclasses.dataclass(frozen=True)
class UnitMemory(Memory, Stateful):
    """Keeps a few named tensors for every unit: float64 if the gradient is, else float32.

    A NaN or Inf stays in the memory, and is seen.
    """

    withheld: ClassVar[str]
    """The tensor that holds what was not sent."""

    def tensors(self, unit: int, gradient: torch.Tensor, *names: str) -> list[torch.Tensor]:
        """Return the tensors of a unit with these names, zeros at first.

        Raises:
            ValueError: stored tensors have another shape than the gradient.
        """
        named = self.unit_tensors.setdefault(unit, {})
        for name in names:
            if name not in named:
                dtype = torch.promote_types(gradient.dtype, torch.float32)
                named[name] = torch.zeros(gradient.shape, dtype=dtype, device=gradient.device)
            if named[name].shape != gradient.shape:
                shapes = f"{tuple(gradient.shape)}, its {name} {tuple(named[name].shape)}"
                raise ValueError(f"unit {unit} has shape {shapes}")
        return [named[name] for name in names]

    def norm(self) -> float:
        tensors = [named[self.withheld] for named in self.unit_tensors.values() if self.withheld in named]
        return math.hypot(*(float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors))
