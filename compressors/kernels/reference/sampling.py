"""Draw elements of a tensor at random."""

from __future__ import annotations

import torch

from compressors.kernels.reference.primitives.streams import draws


def sample(x: torch.Tensor, key: int, count: int) -> torch.Tensor:
    """Return `count` < 2^31 elements of `x` (n,), n > 0, drawn independently and uniformly with replacement.

    Draws 2i and 2i + 1 of stream 0 give a number of 63 bits. Its remainder modulo n, which is uniform to within n /
    2^63, is the position of element i of the sample.
    """
    halves = draws(key, torch.zeros(1, dtype=torch.int64, device=x.device), 2 * count).view(-1, 2)
    return x[((halves[:, 0] << 31) | (halves[:, 1] >> 1)) % len(x)]
