"""THC in plain torch; `compressors.quantisation.thc.THC` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.hadamard_blocks import count_blocks
from compressors.kernels.reference.hadamard import compute_norms as compute_norms
from compressors.kernels.reference.hadamard import rotate, rotate_back, sections
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.thc_tables import Coding

RESOLUTION = 2.0**30
"""A number is rounded up if 30 random bits are below its distance from the lower level, in these units."""


def _begin(count: int, block: int, coding: Coding) -> int:
    """Return the byte of the payload where the codes begin."""
    return 4 * count_blocks(count, block) if coding.head else 0


def encode(
    x: torch.Tensor, norms: torch.Tensor, key: int, rotation: int, block: int, coding: Coding, payload: torch.Tensor
) -> None:
    """Write the codes of `x`, (n,) float32 with n > 0, into `payload`, which has exactly the right length.

    Args:
        norms: by which the blocks are divided: (blocks,) float32.
        key: of the random numbers for rounding.
        rotation: of those for the signs.
    """
    lows, slopes = (torch.tensor(table, device=x.device) for table in (coding.lows, coding.slopes))
    lower, upper = (torch.tensor(table, device=x.device) for table in (coding.lower, coding.upper))
    for numbers, part, codes in sections(payload, x, block, coding.width, _begin(len(x), block, coding)):
        exact = rotate(part, norms[numbers], rotation, numbers) * coding.scale + coding.middle
        exact = torch.where(exact > 0, exact, 0.0).clamp(max=2 * coding.middle)  # NaN is not above 0
        below = exact.long()
        threshold = ((exact - lows[below]) * slopes[below] * RESOLUTION).long()
        up = (draws(key, numbers, exact.shape[1]) >> 2) < threshold
        codes.copy_(pack(torch.where(up, upper[below], lower[below]), coding.width))


def decode_add(
    payload: torch.Tensor,
    norms: torch.Tensor,
    rotation: int,
    block: int,
    coding: Coding,
    weight: float,
    out: torch.Tensor,
) -> None:
    """Add weight * Q(x), decoded from the codes in `payload`, to `out` (n,) float32, n > 0."""
    values = torch.tensor(coding.values, device=out.device)
    for numbers, part, codes in sections(payload, out, block, coding.width, _begin(len(out), block, coding)):
        y = values[unpack(codes, codes.shape[1] * 8 // coding.width, coding.width)]
        factor = (norms[numbers].double() * (weight * coding.step / y.shape[1])).float()
        part += factor[:, None] * rotate_back(y, rotation, numbers)[:, : part.shape[1]]
