"""Gradients as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from compressors.base import Compressor, Key, Law, element_count

if TYPE_CHECKING:
    import torch


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

    def law(self, shape: Sequence[int]) -> Law:
        return Law(unbiased=True, omega=0.0, delta=1.0)

    def payload_bound(self, shape: Sequence[int]) -> int:
        return 4 * element_count(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        from compressors.kernels import buffers

        buffers.check_floating(x)
        payload = buffers.outgoing(out, self.payload_bound(x.shape), x.device)
        buffers.write_floats(x, payload)
        return payload

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        from compressors.kernels import buffers

        payload = buffers.incoming(payload, self.payload_bound(out.shape))
        out.detach().add_(buffers.read_floats(payload).view(out.shape), alpha=weight)
