"""Send gradients without quantising them: in 32 or 16 bits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from compressors.base import EXACT, Compressor, Law, count_elements
from compressors.kernels import buffers
from compressors.lazy import torch
from compressors.message import Decode, Message
from compressors.random_key import Key


@dataclasses.dataclass(frozen=True)
class NoCompression(Compressor):
    """Every element as float32: what the other methods are compared with.

    Payload: n little-endian float32, in the order of the elements. So payloads of several workers can be
    added as float32 vectors by the network.

    float16, bfloat16 and float32 travel exactly. float64 is rounded to the nearest float32 on the way
    (relative error up to 2^-24; beyond 3.4e38 the receiver sees Inf): Q(x) = x holds up to that rounding.
    NaN and Inf arrive as they are.
    """

    name: ClassVar[str] = "none"
    paper: ClassVar[str] = "-"
    sum_dtype: ClassVar[str] = "float32"
    lossless: ClassVar[bool] = True
    joins: ClassVar[bool] = True

    def law(self, shape: Sequence[int]) -> Law:
        return EXACT

    def payload_bound(self, shape: Sequence[int]) -> int:
        return 4 * count_elements(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        buffers.check_floating(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        buffers.write_floats(x, payload)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_bound(out.shape))
        out.detach().add_(buffers.read_floats(payload).view(out.shape), alpha=weight)

    def decompress_to(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_bound(out.shape))
        torch.mul(buffers.read_floats(payload).view(out.shape), weight, out=out.detach())

    def build_decoder(self, out: torch.Tensor, *, replace: bool = False) -> Decode:
        plainly = super().build_decoder(out, replace=replace)
        if out.device.type != "cpu" or not buffers.is_plain(out):
            return plainly
        out = out.detach()
        shape, strides, wanted = out.shape, out.stride(), self.payload_bound(out.shape)

        def decode(message: Message, start: int, size: int, key: Key, weight: float) -> None:
            place = message.place(start)
            if place is None or message.floats is None or size != wanted:
                plainly(message, start, size, key, weight)
                return
            values = message.floats.as_strided(shape, strides, place)
            if replace:
                torch.mul(values, weight, out=out)
            else:
                out.add_(values, alpha=weight)

        return decode


_PIECE = 2**18
"""Elements that a processor converts at a time: no copy of the size of the tensor is made."""


@dataclasses.dataclass(frozen=True)
class _Halves(Compressor):
    """A method that rounds every element to the nearest 16-bit number, with ties to even.

    Payload: n little-endian numbers of `sum_dtype`, so that the network can add those of several workers.
    A NaN is written as the positive quiet NaN without further bits.
    """

    sum_dtype: ClassVar[str]
    joins: ClassVar[bool] = True

    def payload_bound(self, shape: Sequence[int]) -> int:
        return 2 * count_elements(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        values = buffers.as_float32(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        in_place = buffers.is_aligned(payload, 2)
        halves = (payload if in_place else torch.empty_like(payload)).view(getattr(torch, self.sum_dtype))
        for first, last in self._pieces(values):
            rounded = halves[first:last].copy_(values[first:last])
            # A sum is the fastest sign of a NaN, but on other devices one has to wait for it.
            if x.device.type != "cpu" or math.isnan(float(values[first:last].sum())):
                rounded.masked_fill_(rounded.isnan(), math.nan)
        if not in_place:
            payload.copy_(halves.view(torch.uint8))
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        halves = self._halves(payload, out)
        with buffers.accumulator(out) as total:
            if total.device.type != "cpu" and math.frexp(weight)[0] == 0.5:  # the product is exact
                total.add_(halves, alpha=weight)
                return
            for first, last in self._pieces(total):
                total[first:last] += halves[first:last].float().mul_(weight)

    def decompress_to(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        if not buffers.is_plain(out):
            return super().decompress_to(payload, out, key, weight)
        halves, total = self._halves(payload, out), out.detach().view(-1)
        for first, last in self._pieces(total):
            total[first:last].copy_(halves[first:last]).mul_(weight)

    def _halves(self, payload: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return the numbers, (n,), in the payload of a tensor like `like`."""
        payload = buffers.receive(payload, like.device, self.payload_bound(like.shape))
        return (payload if buffers.is_aligned(payload, 2) else payload.clone()).view(getattr(torch, self.sum_dtype))

    def _pieces(self, x: torch.Tensor) -> Iterator[tuple[int, int]]:
        size = _PIECE if x.device.type == "cpu" else max(1, x.numel())
        for first in range(0, x.numel(), size):
            yield first, min(first + size, x.numel())


@dataclasses.dataclass(frozen=True)
class Float16(_Halves):
    """IEEE half precision, as Horovod's and DDP's fp16 compression: 11 significant bits, no scale of its own.

    Payload: n little-endian float16; payloads of several workers can be added as float16 vectors.

    Rounding is deterministic and not unbiased. The law is that of elements which are zero or between 6.1e-5 and
    65504. Below, the spacing is 6.0e-8 and 3.0e-8 and less becomes zero: no element errs by more than itself. From
    65520 on an element arrives as Inf, so that an overflow is seen and not clipped: gradients of another size want a
    loss scale. NaN and Inf arrive as they are. float64 is rounded to float32 first.
    """

    name: ClassVar[str] = "fp16"
    paper: ClassVar[str] = "Micikevicius et al., Mixed Precision Training, ICLR 2018"
    sum_dtype: ClassVar[str] = "float16"
    largest: ClassVar[float] = 65504.0
    smallest: ClassVar[float] = 2.0**-14

    def law(self, shape: Sequence[int]) -> Law:
        # In [2^e, 2^(e + 1)) numbers are 2^(e - 10) apart, so an element moves by at most 2^-11 of itself.
        return Law(omega=2.0**-22, delta=1.0 - 2.0**-22)


@dataclasses.dataclass(frozen=True)
class BFloat16(_Halves):
    """bfloat16: float32 with 8 significant bits instead of 24, and the same range.

    Payload: n little-endian bfloat16; payloads of several workers can be added as bfloat16 vectors.

    Rounding is deterministic and not unbiased. The law is that of elements which are zero or between 1.2e-38
    and 3.39e38. Below, in float32's denormals, an element errs by up to 4.6e-41, and never by more than itself;
    from 3.3962e38 on it arrives as Inf. NaN and Inf arrive as they are. float64 is rounded to float32 first.
    """

    name: ClassVar[str] = "bf16"
    paper: ClassVar[str] = "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, arXiv 2019"
    sum_dtype: ClassVar[str] = "bfloat16"
    largest: ClassVar[float] = (2.0 - 2.0**-7) * 2.0**127
    smallest: ClassVar[float] = 2.0**-126

    def law(self, shape: Sequence[int]) -> Law:
        # In [2^e, 2^(e + 1)) numbers are 2^(e - 7) apart, so an element moves by at most 2^-8 of itself.
        return Law(omega=2.0**-16, delta=1.0 - 2.0**-16)
