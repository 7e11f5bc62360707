"""The orthonormal DCT-II of every block of a matrix, on both axes, as matrix products.

Products are torch's on every device, on one thread: their sums have the order of a library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from compressors.kernels import threads
from compressors.lazy import torch
from compressors.sparsification.blocks.grids import Grid, split

_PIECE = 1 << 15
"""Elements that are transformed at once, on the CPU: they stay in the cache between both products."""


@functools.lru_cache(maxsize=256)
def build_basis(size: int, device: torch.device) -> torch.Tensor:
    """Return the matrix of the orthonormal DCT-II, a row for each frequency: (size, size) float32."""
    angles = [[math.pi * ((2 * i + 1) * k % (4 * size)) / (2 * size) for i in range(size)] for k in range(size)]
    scales = [math.sqrt((1.0 if k == 0 else 2.0) / size) for k in range(size)]
    rows = [[scale * math.cos(angle) for angle in row] for scale, row in zip(scales, angles, strict=True)]
    return torch.tensor(rows, dtype=torch.float64).float().to(device)


def cut(grids: Sequence[Grid], device: torch.device) -> list[Grid]:
    """Return the pieces that are transformed at once, one behind the other."""
    return split(grids, _PIECE) if device.type == "cpu" else list(grids)


class Transform:
    """The DCT-II of the blocks of pieces; it keeps memory from piece to piece.

    Args:
        inverse: find what a tensor is the DCT-II of.
    """

    def __init__(self, *, inverse: bool = False) -> None:
        self.inverse = inverse
        self._memory = [torch.empty(0)] * 2

    def _take(self, number: int, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        if self._memory[number].numel() < like.numel() or self._memory[number].device != like.device:
            self._memory[number] = torch.empty_like(like)
        return self._memory[number][: like.numel()].view(shape)

    def __call__(self, x: torch.Tensor, piece: Grid) -> torch.Tensor:
        """Return the transform of `x` (n,) float32, laid out as `piece`; the next call overwrites it."""
        down, across = build_basis(piece.height, x.device), build_basis(piece.width, x.device)
        # Forward D_h X D_w^T, backward D_h^T X D_w.
        left = down.t() if self.inverse else down
        right = across if self.inverse else across.t()
        flat = -1, piece.width
        # Copied first: a library's sums depend on the alignment of what it reads.
        source, rows = self._take(0, x, flat), self._take(1, x, flat)
        with threads.single_thread(), torch.no_grad():
            torch.mm(source.copy_(x.view(flat)), right, out=rows)
            if piece.height == 1:
                return rows.view(-1)
            shape = -1, piece.height, piece.columns
            return torch.matmul(left, rows.view(shape), out=source.view(shape)).view(-1)


def transform(x: torch.Tensor, grids: Sequence[Grid], *, inverse: bool = False) -> torch.Tensor:
    """Return the DCT-II of every block of `x` (n,) float32, or with `inverse` what it is the DCT-II of."""
    out, compute = torch.empty_like(x), Transform(inverse=inverse)
    for piece in cut(grids, x.device):
        out[piece.start : piece.stop] = compute(x[piece.start : piece.stop], piece)
    return out
