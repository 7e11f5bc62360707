"""The base classes of methods that code every element independently: a pair of kernels writes and reads the payload."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from compressors.base import Compressor, CorruptPayload
from compressors.kernels import backend, buffers
from compressors.lazy import torch
from compressors.message import Decode, Message
from compressors.quantisation import buckets
from compressors.random_key import Key

_NOT_PADDED = "bits behind the codes of a bucket are not zero"


@dataclasses.dataclass(frozen=True)
class Elementwise(Compressor):
    """A method that codes every element independently, with a payload size that depends on the shape only.

    The functions of the module `kernel` write and read the payload. Subclasses define `payload_bound` and two calls of
    these functions, which get tensors in the form that kernels need: the elements as 1-D contiguous float32, the
    payload with exactly its length.
    """

    kernel: ClassVar[str]
    """Module of `compressors.kernels.cpu`, `.cuda` and `.reference`."""
    takes_arrays: ClassVar[bool] = False
    """`decode_add` takes numpy arrays as well, for the kernels of the CPU, and is all that decoding does."""
    flaw: ClassVar[str]
    """The error text for a payload that `decode_add` refuses."""

    @abstractmethod
    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        """Write the payload of `x`, (n,) float32."""

    @abstractmethod
    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have
        written the payload."""

    def layout(self, shape: Sequence[int]) -> tuple[int | None, int, int] | None:
        """Return the bucket size, the bytes of a bucket's head and the bits of a code, if payloads are those of
        `buckets.payload_size`.

        In these payloads the bits that pad the codes of a bucket to whole bytes must be zero.
        """
        return None

    def _find_padding(self, shape: Sequence[int]) -> list[tuple[int, int, int, int]]:
        layout = self.layout(shape)
        return buckets.find_padding(shape, *layout) if layout else []

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        values = buffers.as_float32(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        self.encode(backend.load(self.kernel, x.device), values, key, payload)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_bound(out.shape))
        if not buckets.is_padded(payload, self._find_padding(out.shape)):
            raise CorruptPayload(_NOT_PADDED)
        with buffers.accumulator(out) as total:
            if not self.decode_add(backend.load(self.kernel, out.device), payload, total, weight):
                raise CorruptPayload(self.flaw)

    def build_decoder(self, out: torch.Tensor, *, replace: bool = False) -> Decode:
        on_arrays = self.takes_arrays and backend.select(self.kernel, out.device) == "numba"
        if not (on_arrays and buffers.is_plain(out)):
            return super().build_decoder(out, replace=replace)
        kernels, wanted = backend.load(self.kernel, out.device), self.payload_bound(out.shape)
        places = self._find_padding(out.shape)
        flat = out.detach().view(-1)
        total: Any = flat.numpy()

        def decode(message: Message, start: int, size: int, key: Key, weight: float) -> None:
            if replace:
                flat.zero_()
            payload: Any = message.array[start : start + size]
            buffers.check_size(size, wanted)
            if places and not buckets.is_padded(payload, places):
                raise CorruptPayload(_NOT_PADDED)
            if not self.decode_add(kernels, payload, total, weight):
                raise CorruptPayload(self.flaw)

        return decode

    def kernel_modules(self) -> tuple[str, ...]:
        return (self.kernel,)


class Bucketed(Elementwise):
    """A method whose payload has a head for each bucket of `bucket_size` elements (null: the unit is one bucket), then
    the codes."""

    takes_arrays: ClassVar[bool] = True
    head: ClassVar[int] = 4
    """Bytes of the head of a bucket."""
    width: ClassVar[int] = 8
    """Bits of the code of an element. A method whose options decide this overrides it with a property."""

    bucket_size: int | None

    def length(self, shape: Sequence[int]) -> int:
        """Return the number of elements in a full bucket."""
        return buckets.length(shape, self.bucket_size)

    def payload_bound(self, shape: Sequence[int]) -> int:
        return buckets.payload_size(shape, *self.layout(shape))

    def layout(self, shape: Sequence[int]) -> tuple[int | None, int, int]:
        return self.bucket_size, self.head, self.width

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        return bool(kernels.decode_add(payload, self.length(out.shape), weight, out))


class Levelled(Bucketed):
    """A method with codes k * sign(x) + S from 0 to 2S: level k of `steps` = S levels, relative to the norm of a
    bucket.
    """

    norm: str

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of levels above zero."""

    @property
    def width(self) -> int:  # type: ignore[override]
        """The number of bits of a code: ceil(log2(2S + 1))."""
        return (2 * self.steps).bit_length()

    @property
    def flaw(self) -> str:  # type: ignore[override]
        return f"a norm is negative or infinite, or a code is above {2 * self.steps}"

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, key.mix(), self.steps, self.width, self.length(x.shape), self.norm == "l2", payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        return bool(kernels.decode_add(payload, self.steps, self.width, self.length(out.shape), weight, out))
