"""The frame of methods that code every element on its own: a kernel pair writes and reads the payload."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from compressors import buckets
from compressors.base import Compressor, CorruptPayload, Key

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Elementwise(Compressor):
    """A payload of a size that the shape alone decides, written and read by the kernels `kernel`.

    Subclasses give `payload_bound` and two calls into a kernel module, which have all tensors in the form
    that kernels want: the elements as 1-D contiguous float32, the payload with exactly its length.
    """

    kernel: ClassVar[str]
    """Module of `compressors.kernels.cpu`, `.cuda` and `.reference`."""

    @abstractmethod
    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        """Write the payload of `x`, (n,) float32."""

    @abstractmethod
    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float) -> str:
        """out += weight * Q(x), (n,) float32. Returns what is wrong with the payload, or ""."""

    def layout(self, shape: Sequence[int]) -> tuple[int | None, int, int] | None:
        """Where a payload is that of `buckets.payload_size`: the size of a bucket, the bytes of its head and the bits
        of a code. What fills up the codes of a bucket to whole bytes has to be zero then."""
        return None

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        from compressors.kernels import backend, buffers

        values = buffers.as_float32(x)
        payload = buffers.outgoing(out, self.payload_bound(x.shape), x.device)
        self.encode(backend.load(self.kernel, x.device), values, key, payload)
        return buffers.delivered(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        from compressors.kernels import backend, buffers

        payload = buffers.incoming(payload, out.device, self.payload_bound(out.shape))
        layout = self.layout(out.shape)
        if layout and not buckets.is_padded(payload, out.shape, *layout):
            raise CorruptPayload("bits behind the codes of a bucket are not zero")
        with buffers.accumulator(out) as total:
            wrong = self.decode_add(backend.load(self.kernel, out.device), payload, total, key, weight)
            if wrong:
                raise CorruptPayload(wrong)

    def kernel_modules(self) -> tuple[str, ...]:
        return (self.kernel,)
