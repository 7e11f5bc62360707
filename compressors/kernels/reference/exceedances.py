"""Statistics to which SIDCo fits distributions, in one pass each, in an order of operations that all kernels keep.

Sums are those of `sums`. A sum of logarithms would depend on the library's logarithm. So magnitudes are split into m *
2^e with m in [1, 2), exponents are added as integers, and mantissas are multiplied in this order: the elements of a
chunk of CHUNK in LANES lanes, from left to right (products stay below 2^256); the mantissas of the lanes, one half by
the other until one is left (below 2^16); the products of the chunks by the same rule again.
"""

from __future__ import annotations

import torch

from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.sums import CHUNK, LANES, total

_MAGNITUDE = 0x7FFFFFFF
_FRACTION = (1 << 52) - 1
_ONE = 1023 << 52


def moments_above(x: torch.Tensor, threshold: int, location: float) -> tuple[int, float, float]:
    """Count the magnitudes of `x` (n,) float32, all finite, from `threshold` on, and sum their excesses and squares.

    `threshold` are the bits of the smallest float32 that is not below `location`; an excess is |x| - location.
    """
    above = (x.view(torch.int32) & _MAGNITUDE) >= threshold
    excess = (x.double().abs() - location).clamp(min=0.0)
    return int(above.sum()), float(total(excess)), float(total(excess * excess))


def logarithms(x: torch.Tensor) -> tuple[int, int, float]:
    """Count the elements of `x` (n,) float32, all finite, that are not zero, and multiply their magnitudes.

    Return the count, and the product 2^e * m, with m in [1, 2), as e and m.
    """
    values = x.double().abs()
    count, exponent = int((values.view(torch.int64) != 0).sum()), 0
    while len(values):
        added, mantissas = _split(values)
        exponent += int(added.sum())
        if len(values) == 1:
            return count, exponent, float(mantissas[0])
        parts = [_products(part) for _, part in rows(mantissas, CHUNK)]
        exponent += sum(int(added) for added, _ in parts)
        values = torch.cat([product for _, product in parts])
    return 0, 0, 1.0


def _split(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return exponents and mantissas of non-negative float64; a zero is treated as 1."""
    bits = values.view(torch.int64)
    bits = torch.where(bits == 0, _ONE, bits)
    return (bits >> 52) - 1023, ((bits & _FRACTION) | _ONE).view(torch.float64)


def _products(mantissas: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply the rows of `mantissas` (b, n); return the sum of all exponents split off, and the products (b,)."""
    mantissas = torch.nn.functional.pad(mantissas, (0, -mantissas.shape[1] % LANES), value=1.0)
    product = mantissas.new_ones(len(mantissas), LANES)
    for chunk in mantissas.split(LANES, dim=1):
        product *= chunk
    exponents, product = _split(product)
    while product.shape[1] > 1:
        half = product.shape[1] // 2
        product = product[:, :half] * product[:, half:]
    return exponents.sum(), product[:, 0]
