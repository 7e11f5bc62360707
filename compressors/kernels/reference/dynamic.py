"""Dynamic tree quantisation in plain torch; `compressors.quantisation.int8.Dynamic8` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import write_floats
from compressors.kernels.dynamic_map import EIGHT_NINTHS, ONE, PARTS, SLOPES, STARTS, VALUES
from compressors.kernels.reference import byte_levels
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.scales import norms


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length."""
    for _, part, head, codes in sections(payload, x, bucket, 4, 8):
        norm = norms(part, False)
        write_floats(norm, head)
        y = part.abs() / torch.where(norm > 0, norm, 1.0)[:, None]
        rank = _ranks(torch.where(norm.isnan()[:, None], 0.0, y))
        minus = part.signbit() & (rank > 0)  # the sign bit: a comparison may take a denormal for zero
        codes.copy_(torch.where(minus, 128 + rank.clamp(max=127), rank))


def _ranks(y: torch.Tensor) -> torch.Tensor:
    """Return the rank of the nearest level for each element of `y`, whose elements are in [0, 1]."""
    starts, slopes, parts = (torch.tensor(values, device=y.device) for values in (STARTS, (0, *SLOPES), (0.5, *PARTS)))
    decade = torch.bucketize(y, starts)
    place = y * slopes[decade] + parts[decade] * EIGHT_NINTHS
    return torch.minimum(place, 2 * parts[decade] - 1).long() + (y > ONE)


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the norms."""
    return byte_levels.decode_add(payload, torch.tensor(VALUES, device=out.device), 127, bucket, weight, out)
