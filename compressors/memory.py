"""What a worker keeps of what it did not send.

An exchange calls, for every unit (layer, bucket or model) and step:

    memory.begin(lr, workers, norm)                  # once a step
    x = memory.compensate(unit, gradient, lossless)
    payload = compressor.compress(x, key, out)
    memory.update(key, x, payload, compressor)
    memory.finish(unit, mean)                        # the mean of what the workers have sent, decoded

Importing this module loads neither torch nor numba.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from compressors import parameters
from compressors.base import Compressor, Key
from compressors.parameters import InvalidParameter, from_mapping, number

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Memory(ABC):
    """State per unit. Subclasses are frozen dataclasses whose fields are the hyper-parameters."""

    name: ClassVar[str]
    """How configs and tables call the memory."""

    def __post_init__(self) -> None:
        parameters.check(self)

    def begin(self, lr: float, workers: int, norm: Callable[[], float]) -> None:
        """Start a step: its learning rate, the number of workers, and how to get the l2 norm of the whole
        gradient of this worker."""
        return None

    @abstractmethod
    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        """What to compress instead of `gradient`; same shape. `lossless` says that it will be sent exactly.

        The result is to be read only, and only until `update`: it may be the gradient itself or the
        memory's own state. `gradient` is not kept: it may be overwritten as soon as this returns.
        """

    @abstractmethod
    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        """Take note of what of `x` (from `compensate` for unit `key.unit`) `payload` did not carry."""

    def finish(self, unit: int, mean: torch.Tensor) -> None:
        """Turn the mean of what the workers have sent into the mean gradient, in place."""
        return None

    def norm(self) -> float:
        """l2 norm of everything withheld, over all units."""
        return 0.0

    def state_dict(self) -> dict[str, Any]:
        """A copy of what is withheld, for a checkpoint. Call it between `update` and `compensate`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if state:
            raise ValueError(f"memory {self.name} keeps no state, but was given the keys {sorted(state)}")


@dataclasses.dataclass(frozen=True)
class NoMemory(Memory):
    """What was not sent is lost."""

    name: ClassVar[str] = "none"

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        return gradient

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        return None


@dataclasses.dataclass(frozen=True)
class Residual(Memory):
    """Error feedback: p = beta * e + gamma * g is sent as Q(p), and e = p - Q(p) is kept.

    Seide et al., "1-bit SGD", Interspeech 2014; Stich et al., "Sparsified SGD with memory", NeurIPS 2018;
    beta and gamma as in GRACE (Xu et al., ICDCS 2021). Makes biased compressors converge. It costs one
    tensor of the size of the unit (float32, or float64 for such gradients): `p` is formed in the place
    of `e`, and the payload is decoded straight into it. A NaN or Inf stays in the memory, and is seen.
    """

    name: ClassVar[str] = "residual"

    beta: float = number(1.0, low=0)
    gamma: float = number(1.0, low=0, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_kept", {})

    @property
    def _residuals(self) -> dict[int, torch.Tensor]:
        kept: dict[int, torch.Tensor] = self.__dict__["_kept"]
        return kept

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        import torch

        gradient = gradient.detach()
        kept = self._residuals.get(unit)
        if kept is None:
            dtype = torch.promote_types(gradient.dtype, torch.float32)
            kept = self._residuals[unit] = torch.zeros(gradient.shape, dtype=dtype, device=gradient.device)
        if kept.shape != gradient.shape:
            raise ValueError(f"unit {unit} has shape {tuple(gradient.shape)}, its residual {tuple(kept.shape)}")
        if self.beta != 1.0:
            kept.mul_(self.beta)
        return kept.add_(gradient, alpha=self.gamma)

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        compressor.decompress_add(payload, self._residuals[key.unit], key, -1.0)

    def norm(self) -> float:
        import torch

        norms = [float(torch.linalg.vector_norm(kept, dtype=torch.float64)) for kept in self._residuals.values()]
        return math.hypot(*norms)

    def state_dict(self) -> dict[str, Any]:
        return {str(unit): kept.clone() for unit, kept in self._residuals.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.clear()
        self._residuals.update({int(unit): kept.clone() for unit, kept in state.items()})


@functools.cache
def registry() -> Mapping[str, type[Memory]]:
    """All memories, by name, in alphabetical order."""
    members = [
        member
        for member in globals().values()
        if inspect.isclass(member) and issubclass(member, Memory) and not inspect.isabstract(member)
    ]
    return {member.name: member for member in sorted(members, key=lambda member: member.name)}


def build(name: str, **values: Any) -> Memory:
    """The memory called `name` with the given hyper-parameters.

    Raises:
        InvalidParameter: the name is not known, a hyper-parameter is not known or out of range.
    """
    if name not in registry():
        raise InvalidParameter("name", name, "one of " + ", ".join(registry()))
    memory: Memory = from_mapping(registry()[name], values)
    return memory
