"""Chunk-wise top-k: the largest elements of every block of a matrix."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from compressors.base import EXACT, CorruptPayload, Law, count_elements
from compressors.kernels import buffers
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import positions
from compressors.sparsification.blocks import grids
from compressors.sparsification.blocks.grids import Blocks
from compressors.sparsification.sparsifier import Sparsifier
from gradsweep.options.parameters import InvalidParameter, choice, integer


@dataclasses.dataclass(frozen=True)
class Chunked(Sparsifier):
    """A method that keeps the `k` largest elements of every block of a tensor, or of what it makes of the tensor.

    A tensor is the matrix (d0, d1 * ...), and a vector a matrix of one row. Its blocks have h x w elements, h and w the
    largest divisors of its sides that are at most `block`: 64 x 64 where 64 divides both. A side with awkward divisors
    makes thin blocks, of which more is kept: of 50,257 rows h is 29, of 577 (a prime) it is 1, and k = 64 keeps
    everything of a block of 64.

    Where k is at least the elements of a block, all of them are kept. Of equal magnitudes the first in the block are
    kept; NaN is larger than Inf, and Inf larger than all numbers.

    Payload and values: see `Sparsifier`; positions are those in a tensor whose blocks follow each other, row by row of
    the matrix. `packed` positions take ceil(log2(h w)) bits each. `mean` is not among the values: with `onebit` and
    values_options.bucket_size=null kept values are sent as signs and a mean for each sign.
    """

    needs_matrix: ClassVar[bool] = True

    indices: str = choice("auto", *positions.OPTIONS, "packed")
    block: int = integer(64, low=1, high=128)
    k: int = integer(64, low=1, high=2**14)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.block**2:
            raise InvalidParameter("k", self.k, f"at most block^2 = {self.block**2}")
        if self.values == "mean":
            raise InvalidParameter(
                "values", self.values, "onebit with values_options.bucket_size=null, fp32, fp16, ..."
            )

    def divide(self, shape: Sequence[int]) -> tuple[grids.Grid, ...]:
        """Return the grids that a tensor of `shape` is cut into."""
        return grids.cut(shape, self.block, self.k)

    def blocks(self, shape: Sequence[int]) -> list[Blocks]:
        """Return the blocks of a tensor of `shape`, in the order of the grids."""
        return [grid.blocks for grid in self.divide(shape)]

    def count_kept_of(self, shape: Sequence[int]) -> int:
        """Return how many elements of a tensor of `shape` are kept."""
        return sum(some.number * some.kept for some in self.blocks(shape))

    def count_kept(self, n: int) -> int:
        return self.count_kept_of((n,))

    bound_kept = count_kept

    def selection_law(self, n: int) -> Law:
        return self.selection_law_of((n,))

    def selection_law_of(self, shape: Sequence[int]) -> Law:
        # Of each block, as of a tensor by top-k: the kept squares are no smaller on average than all.
        delta = min((grid.kept / grid.elements for grid in self.divide(shape)), default=1.0)
        return EXACT if delta == 1.0 else Law(delta=delta)

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        return grids.select(x, self.divide(x.shape))

    def law(self, shape: Sequence[int]) -> Law:
        kept = self.count_kept_of(shape)
        return self.law_of_values(self.selection_law_of(shape), count_elements(shape), kept, kept)

    def payload_bound(self, shape: Sequence[int]) -> int:
        kept = self.count_kept_of(shape)
        return self.bound_payload(count_elements(shape), kept, kept, self.blocks(shape))

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return self.size_payload(count_elements(shape), self.count_kept_of(shape), self.blocks(shape))

    @abstractmethod
    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        """As in the base class; `pack_blocks` makes the payload."""

    def pack_blocks(self, x: torch.Tensor, shape: Sequence[int], key: Key, out: torch.Tensor | None) -> torch.Tensor:
        """Return the payload of the largest elements of `x` (n,) float32, laid out as a tensor of `shape`."""
        parts = self.divide(shape)
        places = grids.select(x, parts)
        values = x.index_select(0, grids.locate(places, parts))
        return self.pack(places, values, len(x), key, out, blocks=self.blocks(shape))

    def unpack_at(
        self, payload: torch.Tensor, shape: Sequence[int], device: torch.device, key: Key
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode a payload of a tensor of `shape`; return the positions in it, and the values.

        Raises:
            CorruptPayload: `compress` cannot have written it.
        """
        n = count_elements(shape)
        places, values = self.unpack(buffers.receive(payload, device), n, key, self.blocks(shape))
        if places is None:
            places = torch.arange(n, device=device)
        elif len(places) != self.count_kept_of(shape):
            raise CorruptPayload(f"{len(places)} elements are kept instead of {self.count_kept_of(shape)}")
        return grids.locate(places, self.divide(shape)), values

    def find_sent(self, payload: torch.Tensor, count: int, key: Key) -> None:
        """Return None: the number of elements alone does not tell the positions."""
        return None

    def kernel_modules(self) -> tuple[str, ...]:
        return ("chunks", "sparse", *(self.chained.kernel_modules() if self.chained is not None else ()))


@dataclasses.dataclass(frozen=True)
class ChunkTopK(Chunked):
    """Keep the `k` elements of every block with the largest magnitudes, as SparseLoCo does; see `Chunked`.

    With cut=flat, blocks are runs of block^2 elements in memory, the last one shorter, whatever the shape.
    """

    name: ClassVar[str] = "chunk_topk"
    aliases: ClassVar[tuple[str, ...]] = ("sparseloco",)
    paper: ClassVar[str] = "Sarfi et al., SparseLoCo, 2025"

    cut: str = choice("divisors", *grids.CUTS)

    @property
    def needs_matrix(self) -> bool:  # type: ignore[override]
        """With cut=flat the shape does not matter."""
        return self.cut == "divisors"

    def divide(self, shape: Sequence[int]) -> tuple[grids.Grid, ...]:
        return grids.cut(shape, self.block, self.k, self.cut)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        return self.pack_blocks(buffers.as_float32(x), x.shape, key, out)
