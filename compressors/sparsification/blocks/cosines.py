"""The orthonormal DCT-II of every block of a matrix, on both axes, as matrix products.

Products are torch's on every device, on one thread: their sums have the order of a library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from compressors.kernels import threads
from compressors.lazy import torch
from compressors.sparsification.blocks.grids import Grid

_PIECE = 1 << 15
"""Elements that are transformed at once, on the CPU: they stay in the cache between both products."""


@functools.lru_cache(maxsize=256)
def build_basis(size: int, device: torch.device) -> torch.Tensor:
    """Return the matrix of the orthonormal DCT-II, a row for each frequency: (size, size) float32."""
    angles = [[math.pi * ((2 * i + 1) * k % (4 * size)) / (2 * size) for i in range(size)] for k in range(size)]
    scales = [math.sqrt((1.0 if k == 0 else 2.0) / size) for k in range(size)]
    rows = [[scale * math.cos(angle) for angle in row] for scale, row in zip(scales, angles, strict=True)]
    return torch.tensor(rows, dtype=torch.float64).float().to(device)


def transform(x: torch.Tensor, grids: Sequence[Grid], *, inverse: bool = False) -> torch.Tensor:
    """Return the DCT-II of every block of `x` (n,) float32, or with `inverse` what it is the DCT-II of."""
    out = torch.empty_like(x)
    with threads.single_thread(), torch.no_grad():
        for grid in grids:
            _transform(x[grid.start : grid.stop], grid, inverse, out[grid.start : grid.stop])
    return out


def _transform(x: torch.Tensor, grid: Grid, inverse: bool, out: torch.Tensor) -> None:
    down, across = build_basis(grid.height, x.device), build_basis(grid.width, x.device)
    # Forward D_h X D_w^T, backward D_h^T X D_w.
    left = down.t() if inverse else down
    right = across if inverse else across.t()
    shape = (-1, grid.height, grid.columns) if grid.height > 1 else (-1, 1, grid.width)
    source, target = x.view(shape), out.view(shape)
    step = max(1, _PIECE // (shape[1] * shape[2])) if x.device.type == "cpu" else len(source)
    for first in range(0, len(source), step):
        # Into new memory: a library's sums depend on the alignment of what it reads.
        part = source[first : first + step].clone()
        rows = torch.mm(part.view(-1, grid.width), right).view(part.shape)
        target[first : first + step] = torch.matmul(left, rows) if grid.height > 1 else rows
