"""Cut tensors into blocks: the chunks of which a sparsifier keeps the largest elements each."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from compressors.base import compute_packed_size, count_elements
from compressors.kernels import backend
from compressors.lazy import torch

CUTS = ("divisors", "flat")
"""divisors   blocks of the matrix of shape[0] rows, or of one row for a vector; the sides of blocks are the largest
           divisors of its sides up to `block`
flat       runs of block^2 neighbours in memory, the last one shorter"""


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Blocks of equal size that follow each other, of each of which equally many elements are kept."""

    number: int
    elements: int
    """Elements of a block."""
    kept: int
    """Kept elements of a block."""

    @property
    def width(self) -> int:
        """The number of bits of a kept element's number in its block; 0 if everything is kept."""
        return (self.elements - 1).bit_length() if self.kept < self.elements else 0

    @property
    def size(self) -> int:
        """The number of bytes of the packed positions."""
        return compute_packed_size(self.number * self.kept, self.width)


@dataclasses.dataclass(frozen=True)
class Grid:
    """A matrix in a flat tensor, cut into blocks of height x width, of each of which `kept` elements are kept."""

    start: int
    rows: int
    columns: int
    height: int
    width: int
    kept: int

    @property
    def stop(self) -> int:
        """The position behind its last element."""
        return self.start + self.rows * self.columns

    @property
    def elements(self) -> int:
        """The number of elements of a block."""
        return self.height * self.width

    @property
    def blocks(self) -> Blocks:
        """The blocks as the coding of positions takes them."""
        return Blocks(self.rows * self.columns // self.elements, self.elements, self.kept)


@functools.lru_cache(maxsize=4096)  # asked for several times for every unit of a step
def find_divisor(side: int, most: int) -> int:
    """Return the largest divisor of `side` that is at most `most`."""
    return next(divisor for divisor in range(min(side, most), 0, -1) if side % divisor == 0)


def cut(shape: Sequence[int], block: int, k: int, how: str = "divisors") -> tuple[Grid, ...]:
    """Return the grids, one behind the other, that a tensor of `shape` is cut into, by one of CUTS."""
    return _cut(tuple(shape), block, k, how)


@functools.lru_cache(maxsize=4096)
def _cut(shape: tuple[int, ...], block: int, k: int, how: str) -> tuple[Grid, ...]:
    count = count_elements(shape)
    if not count:
        return ()
    if how == "flat":
        area = block * block
        full, rest = divmod(count, area)
        runs = [Grid(0, full, area, 1, area, min(k, area))] if full else []
        return (*runs, Grid(full * area, 1, rest, 1, rest, min(k, rest))) if rest else tuple(runs)
    rows = shape[0] if len(shape) > 1 else 1
    columns = math.prod(shape[1:]) if len(shape) > 1 else count
    height, width = find_divisor(rows, block), find_divisor(columns, block)
    return (Grid(0, rows, columns, height, width, min(k, height * width)),)


def split(grids: Sequence[Grid], elements: int) -> list[Grid]:
    """Return the grids cut into grids of whole blocks with about so many elements each, one behind the other."""
    found = []
    for grid in grids:
        if grid.height > 1:
            rows = max(1, elements // (grid.height * grid.columns)) * grid.height
            sizes = [(min(rows, grid.rows - first), grid.columns) for first in range(0, grid.rows, rows)]
        else:
            area = grid.rows * grid.columns
            wide = max(1, elements // grid.width) * grid.width
            sizes = [(1, min(wide, area - first)) for first in range(0, area, wide)]
        start = grid.start
        for size in sizes:
            found.append(dataclasses.replace(grid, start=start, rows=size[0], columns=size[1]))
            start = found[-1].stop
    return found


def select(x: torch.Tensor, grids: Sequence[Grid]) -> torch.Tensor:
    """Return the places of the largest magnitudes of every block of `x` (n,): ascending int64.

    A place is the number of an element where the blocks follow each other.
    """
    kernels = backend.load("chunks", x.device)
    found = []
    for grid in grids:
        if grid.kept == grid.elements:
            kept = torch.arange(grid.stop - grid.start, device=x.device)
        else:
            kept = kernels.select(x[grid.start : grid.stop], grid.columns, grid.height, grid.width, grid.kept)
        found.append(kept + grid.start if grid.start else kept)
    if len(found) == 1:
        return found[0]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64, device=x.device)


def locate(places: torch.Tensor, grids: Sequence[Grid]) -> torch.Tensor:
    """Return the positions in the tensor of the elements at ascending `places`."""
    if all(grid.height == 1 for grid in grids):
        return places
    kernels = backend.load("chunks", places.device)
    (grid,) = grids
    found: torch.Tensor = kernels.locate(places, grid.columns, grid.height, grid.width)
    return found
