"""The interface of a compressor: a tensor becomes bytes and the bytes become a tensor.

A compressor knows no network, no model and no file. Whoever calls it (an exchange) owns the
buffers: `compress` can write straight into an outgoing message, `decompress_add` accumulates
straight into the mean gradient.

Importing this module, or any module that defines a compressor, loads neither torch nor numba,
so that configs can be checked at once; kernels are imported when the first tensor arrives.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from compressors import parameters

if TYPE_CHECKING:
    import torch

_MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """One step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


@dataclasses.dataclass(frozen=True)
class Key:
    """Names one random stream: every draw is a function of the key and a counter, of nothing else.

    So a resumed run and a re-run draw the same numbers, and the global torch RNG is never touched.
    """

    seed: int
    worker: int
    step: int
    unit: int

    def bits(self) -> int:
        """The key as 64 well-mixed bits: what a kernel's generator is started from."""
        state = 0
        for part in (self.seed, self.worker, self.step, self.unit):
            state = splitmix64(state ^ (part & _MASK))
        return state


class CorruptPayload(ValueError):
    """A payload cannot be what `compress` wrote for a tensor of this shape."""


@dataclasses.dataclass(frozen=True)
class Compressor(ABC):
    """Q: a tensor to a payload and back.

    Subclasses are frozen dataclasses whose fields are the hyper-parameters; a value out of range
    raises `parameters.InvalidParameter` with the range when the compressor is constructed.
    Tensors may have any shape (also zero elements) and any floating dtype, contiguous or not.
    NaN and Inf are never silently turned into numbers: they are carried through to the receiver
    or raise, and each class says which.
    """

    name: ClassVar[str]
    """How configs and tables call the method: the name used in the literature."""
    unbiased: ClassVar[bool] = False
    """E[Q(x)] = x for every x (a method whose options decide this overrides it with a property)."""
    summable: ClassVar[bool] = False
    """Payloads of several workers may be added as float32 vectors by the network itself."""
    needs_matrix: ClassVar[bool] = False
    """Works on the shape of a layer; units that are flat runs of memory make no sense to it."""

    def __post_init__(self) -> None:
        parameters.check(self)

    @abstractmethod
    def payload_bound(self, shape: Sequence[int]) -> int:
        """The most bytes that a tensor of `shape` can need."""

    def payload_size(self, shape: Sequence[int]) -> int | None:
        """The bytes of a tensor of `shape`, where they do not depend on its values; else None."""
        return self.payload_bound(shape)

    @abstractmethod
    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        """Encode `x`; return the payload, a 1-D uint8 tensor.

        With `out` (1-D uint8, at least `payload_bound(x.shape)` long) the payload is written to its
        beginning and a view of that part is returned. `x` is not changed. The same `x` and `key`
        give the same bytes, whatever the number of threads.
        """

    @abstractmethod
    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, weight: float = 1.0) -> None:
        """out += weight * Q(x), in place, for the `x` of shape `out.shape` that gave `payload`.

        Raises:
            CorruptPayload: the payload's length or content cannot belong to that shape. `out` may
                then hold a part of the sum, but nothing outside of it has been written.
        """

    def decompress(self, payload: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Q(x) as a new tensor with the shape and dtype of `like`."""
        import torch

        out = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
        self.decompress_add(payload, out, 1.0)
        return out

    def warm_up(self) -> None:
        """Load or compile kernels now, so that the first step is not slower than the others."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """What the compressor remembers from step to step; keyed by unit. Empty for most."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if state:
            raise ValueError(f"{self.name} keeps no state, but was given the keys {sorted(state)}")


def element_count(shape: Sequence[int]) -> int:
    """Number of elements of a tensor of `shape`."""
    return math.prod(shape)


def packed_size(count: int, width: int) -> int:
    """Bytes of `count` codes of `width` bits each, packed without gaps."""
    return (count * width + 7) // 8
