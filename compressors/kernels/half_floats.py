"""Write half floats that fit any range of values: all are multiplied by one power of two before rounding.

Torch operations suffice on every device: the vectors are short, and a product with a power of two in float64 is exact,
so that all devices give the same bits. Work is done in pieces, since float64 take four times the memory of what is
sent.
"""

from __future__ import annotations

from compressors.base import CorruptPayload
from compressors.kernels import buffers
from compressors.lazy import torch

_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000
_LARGEST = 3.4028234663852886e38


def write(values: torch.Tensor, payload: torch.Tensor) -> int:
    """Write `values` (k,) float32 as half floats of v * 2^(141 - E) into `payload` of 2k bytes; return E in [1, 254].

    E is the exponent field of the largest finite magnitude, which comes to lie in [2^14, 2^15).
    """
    parts = list(buffers.split(values))
    exponent = max(1, max(_largest_finite(part) for part in parts) >> 23)
    for part, sent in zip(parts, buffers.split(payload, 2), strict=True):
        scaled = (part.double() * 2.0 ** (141 - exponent)).half()
        sent.copy_(torch.where(scaled.isnan(), torch.nan, scaled).view(torch.uint8))
    return exponent


def _largest_finite(values: torch.Tensor) -> int:
    """Return the bits of the largest finite magnitude; 0 if there is none."""
    magnitudes = values.view(torch.int32) & _MAGNITUDE
    return int(torch.where(magnitudes < _INFINITY, magnitudes, 0).amax()) if len(values) else 0


def read(payload: torch.Tensor, exponent: int) -> torch.Tensor:
    """Return the values that `write` has written. Values rounded up beyond float32 become the largest float32.

    Raises:
        CorruptPayload: no encoder writes this exponent.
    """
    if not 1 <= exponent <= 254:
        raise CorruptPayload(f"the exponent of half floats is 1 to 254, not {exponent}")
    values = torch.empty(len(payload) // 2, device=payload.device)
    for sent, part in zip(buffers.split(payload, 2), buffers.split(values), strict=True):
        halves = sent.clone().view(torch.float16)
        wide = halves.double() * 2.0 ** (exponent - 141)
        part.copy_(torch.where(halves.isinf(), wide, wide.clamp(-_LARGEST, _LARGEST)))
    return values
