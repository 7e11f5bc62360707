"""Select the largest elements of every block of a matrix, in plain torch.

A matrix (rows, columns) is cut into blocks of height x width, which divide its sides. Its blocks are numbered row by
row, and the elements of a block likewise: place = number of the block * height * width + number in the block.
Magnitudes are compared as in `reference.selection`.
"""

from __future__ import annotations

import torch

_MAGNITUDE = 0x7FFFFFFF


def select(x: torch.Tensor, columns: int, height: int, width: int, k: int) -> torch.Tensor:
    """Return the places of the `k` largest magnitudes of every block of `x` (rows * columns,), ascending int64.

    Of equal ones the first are taken. `k` is at most the number of elements of a block.
    """
    sizes = (x.view(torch.int32) & _MAGNITUDE).view(-1, height, columns // width, width)
    blocks = sizes.transpose(1, 2).reshape(-1, height * width)
    found = blocks.sort(dim=1, descending=True, stable=True).indices[:, :k].sort(dim=1).values
    return (found + torch.arange(len(blocks), device=x.device)[:, None] * (height * width)).flatten()


def locate(places: torch.Tensor, columns: int, height: int, width: int) -> torch.Tensor:
    """Return the positions in the flattened matrix of elements that are given by their places: (m,) int64."""
    block, inside = places // (height * width), places % (height * width)
    across = columns // width
    row = block // across * height + inside // width
    return row * columns + block % across * width + inside % width
