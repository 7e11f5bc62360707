"""Scales and random numbers of buckets in plain torch."""

from __future__ import annotations

import math

import torch

from compressors.kernels.reference.primitives.buckets import lane_sums
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.sums import CHUNK, LANES

MAGNITUDE, INFINITY, NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC00000
LARGEST = torch.finfo(torch.float32).max
PART = 1 << 30


def sums(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of every row of `values` (b, n), n > 0, in the order of `reference.sums`: (b,) float64."""
    values = values.double()
    while True:
        values = torch.nn.functional.pad(values, (0, -values.shape[1] % CHUNK)).unflatten(1, (-1, CHUNK))
        values = lane_sums(values.flatten(0, 1), LANES).unflatten(0, values.shape[:2])
        if values.shape[1] == 1:
            return values[:, 0]


def norms(part: torch.Tensor, euclidean: bool) -> torch.Tensor:
    """Return the l2 norms or the largest magnitudes of the rows of `part` (b, n): (b,) float32.

    NaN for a row that holds NaN or Inf; a norm beyond float32 becomes the largest float32.
    """
    norm = _euclidean(part) if euclidean else part.abs().amax(1)
    return torch.where(part.isfinite().all(1), norm, math.nan)


def _euclidean(part: torch.Tensor) -> torch.Tensor:
    return sums(part.double().square()).clamp(max=LARGEST**2).sqrt().float()


def round_stochastically(exact: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
    """Return `exact` rounded down, or up if the upper 31 of the 32 bits of `random` are below its fraction;
    int64."""
    below = exact.long()
    return below + ((random >> 1) < ((exact - below) * 2.0**31).long())


def are_scales(scales: torch.Tensor) -> bool:
    """Tell whether an encoder can have written all of these scales: non-negative numbers, or the NaN that is sent."""
    bits = scales.view(torch.int32)
    return not bool((((bits < 0) | (bits >= INFINITY)) & (bits != NAN)).any())


def bucket_draws(key: int, numbers: torch.Tensor, count: int, bucket: int) -> torch.Tensor:
    """Return `count` draws for each of the buckets `numbers`: (b, count); a full bucket has `bucket` elements.

    Element i of bucket b is draw i mod PART of stream b * ceil(bucket / PART) + i div PART.
    """
    parts = -(-bucket // PART)
    found = [
        draws(key, numbers * parts + part, min(PART, count - part * PART)) for part in range(max(1, -(-count // PART)))
    ]
    return found[0] if len(found) == 1 else torch.cat(found, 1)
