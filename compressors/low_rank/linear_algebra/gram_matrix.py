"""Compute Gram matrices by halves: only the lower triangle."""

from __future__ import annotations

from compressors.lazy import torch

_LEAF = 32


def row_length(count: int) -> int:
    """Return the distance between the rows of a (count, count) float32 matrix: an odd number of cache lines.

    With a power of two, all rows compete for a few places in the cache.
    """
    return 16 * (-(-count // 16) | 1)


def gram(a: torch.Tensor) -> torch.Tensor:
    """Return a @ a.T for `a` (m, n); on the CPU only the lower triangle, with zeros above the diagonal blocks.

    Only the blocks on and below the diagonal are multiplied, half the work of a full product. The rows lie
    `row_length` apart, so that the matrix can be made tridiagonal in place.
    """
    rows = a.shape[0]
    out = a.new_zeros(rows, row_length(rows))[:, :rows]
    _gram_into(a, out)
    return out


def _gram_into(a: torch.Tensor, out: torch.Tensor) -> None:
    rows = a.shape[0]
    if rows <= _LEAF or a.device.type != "cpu":  # on a GPU a launch costs more than half of a product
        torch.mm(a, a.T, out=out)
        return
    half = rows // 2
    _gram_into(a[:half], out[:half, :half])
    _gram_into(a[half:], out[half:, half:])
    torch.mm(a[half:], a[:half].T, out=out[half:, :half])
