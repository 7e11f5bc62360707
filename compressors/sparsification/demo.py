"""DeMo: the largest coefficients of the discrete cosine transform of every block."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

from compressors.base import CorruptPayload, Law, compute_packed_size, count_elements
from compressors.kernels import backend, buffers
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import positions
from compressors.sparsification.blocks import cosines, grids
from compressors.sparsification.chunk_topk import Chunked
from compressors.sparsification.sparsifier import begin
from gradsweep.options.parameters import InvalidParameter, boolean, integer


@dataclasses.dataclass(frozen=True)
class DeMo(Chunked):
    """Keep the `k` largest coefficients of every block's orthonormal DCT-II, on both axes (Peng et al., "DeMo").

    Blocks, positions and payload are those of `Chunked`, with the coefficients for the elements; a vector has one axis.
    The receiver transforms what it has got back. A transform that is orthonormal leaves the law of the selection as it
    is. The momentum of the paper, delta <- beta delta + eta g, is memory=scaled_residual with memory.decay=beta; its
    step x <- x - eta sign(D) is optimizer=signum with momentum 0. D is the transform of the mean of coefficients; the
    authors' code takes it over those who sent a coefficient, mean=senders.

    `signs`, DisTrO's one-bit form: only the signs of the kept coefficients travel, and receivers take +-1 for them. The
    sender's memory lets go of the exact coefficients (`remove_sent`). Coefficients of zero are not sent. Its payload:
        8 bytes       the header of `positions`; its `extra` is 1 if the tensor holds NaN or Inf, then k = 0
        index part    positions; only if all k of every block are sent they may be packed
        signs         a bit for each coefficient, 1 for minus, from the least significant bit on

    A NaN or Inf makes its whole block NaN, of which k coefficients travel: its block is NaN at the receiver; with
    `signs` everything is. The products of matrices are torch's, so devices agree up to rounding only.
    """

    name: ClassVar[str] = "demo"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"distro": {"signs": True, "k": 4}}
    paper: ClassVar[str] = "Peng et al., DeMo, 2024"
    sparse: ClassVar[bool] = False

    k: int = integer(32, low=1, high=2**14)
    signs: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.signs and self.values != "fp32":
            raise InvalidParameter("values", self.values, "fp32 with signs=true, which sends no values")

    @property
    def scale_free(self) -> bool:  # type: ignore[override]
        """Whether the receiver knows no sizes, because only signs are sent."""
        return self.signs

    @property
    def knows_rest(self) -> bool:  # type: ignore[override]
        """Whether the sender takes its exact coefficients for sent, as DisTrO does."""
        return self.signs

    def law(self, shape: Sequence[int]) -> Law:
        return Law() if self.signs else super().law(shape)

    def selection_law_of(self, shape: Sequence[int]) -> Law:
        if self.signs:
            return Law()
        law = super().selection_law_of(shape)
        return law if law.omega is None else Law(omega=0.0, delta=1.0)  # not exact: both transforms round

    def payload_bound(self, shape: Sequence[int]) -> int:
        if not self.signs:
            return super().payload_bound(shape)
        n, kept = count_elements(shape), self.count_kept_of(shape)
        option = "delta" if self.indices == "packed" else self.indices
        index = max(positions.bound(option, n, kept), positions.compute_packed(self.blocks(shape)))
        return positions.HEADER + index + compute_packed_size(kept, 1)

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return None if self.signs and count_elements(shape) else super().payload_size(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        places, values = self._select_coefficients(buffers.as_float32(x), self.divide(x.shape))
        if self.signs:
            return self._pack_signs(places, values, x.shape, out)
        return self.pack(places, values, x.numel(), key, out, blocks=self.blocks(x.shape))

    @staticmethod
    def _select_coefficients(x: torch.Tensor, parts: Sequence[grids.Grid]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places of the largest coefficients of all blocks, and their values."""
        places, values, compute = [], [], cosines.Transform()
        for piece in cosines.cut(parts, x.device):
            coefficients = compute(x[piece.start : piece.stop], piece)
            inside = dataclasses.replace(piece, start=0)
            kept = grids.select(coefficients, [inside])
            values.append(coefficients.index_select(0, grids.locate(kept, [inside])))
            places.append(kept + piece.start)
        if not places:
            return torch.empty(0, dtype=torch.int64, device=x.device), x.new_empty(0)
        return torch.cat(places), torch.cat(values)

    def _pack_signs(
        self, places: torch.Tensor, values: torch.Tensor, shape: Sequence[int], out: torch.Tensor | None
    ) -> torch.Tensor:
        kernels, count = backend.load("sparse", places.device), count_elements(shape)
        broken = not bool(values.isfinite().all())
        sent = torch.zeros_like(values, dtype=torch.bool) if broken else values != 0
        blocks = self.blocks(shape) if bool(sent.all()) else []
        places, values = places[sent], values[sent]
        option = "delta" if self.indices == "packed" and not blocks else self.indices
        plan = positions.plan(kernels, places, count, option, None, blocks)
        start = positions.HEADER + plan.size
        payload = buffers.prepare(out, start + compute_packed_size(len(places), 1), places.device)
        begin(kernels, places, plan, int(broken), payload, blocks)
        kernels.write_packed((values < 0).long(), 2, 1, payload[start:])
        return buffers.deliver(payload, out)

    def unpack_at(
        self, payload: torch.Tensor, shape: Sequence[int], device: torch.device, key: Key
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode a payload of a tensor of `shape`; return the positions of its coefficients, and their values.

        With `signs`, values are +-1; a NaN without dimensions stands for all if the tensor was not finite.

        Raises:
            CorruptPayload: `compress` cannot have written it.
        """
        if not self.signs:
            return super().unpack_at(payload, shape, device, key)
        payload, kernels = buffers.receive(payload, device), backend.load("sparse", device)
        n = count_elements(shape)
        size_signs = functools.partial(compute_packed_size, width=1)
        plan, places, extra = positions.read(kernels, payload, n, self.blocks(shape), size_signs)
        rest = payload[positions.HEADER + plan.size :]
        count = plan.count
        padding = bool(count % 8 and len(rest) and rest[-1] >> count % 8)
        if count > self.count_kept_of(shape) or len(rest) != compute_packed_size(count, 1) or padding or extra > 1:
            raise CorruptPayload(f"no signs of {count} coefficients")
        if extra and count:
            raise CorruptPayload(f"NaN, and {count} coefficients")
        places = torch.arange(n, device=device) if places is None else places
        if extra:
            return places, torch.full((), torch.nan, device=device)
        bits = (rest[:, None] >> torch.arange(8, dtype=torch.uint8, device=device) & 1).flatten()[:count]
        return grids.locate(places, self.divide(shape)), 1.0 - 2.0 * bits.float()

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        kept, values = self.unpack_at(payload, out.shape, out.device, key)
        with buffers.accumulator(out) as total:
            if values.dim() == 0:
                total += values
                return
            self._add_cosines(kept, values, self.divide(out.shape), weight, total)

    @staticmethod
    def _add_cosines(
        kept: torch.Tensor, values: torch.Tensor, parts: Sequence[grids.Grid], weight: float, total: torch.Tensor
    ) -> None:
        """Add weight times what has these coefficients at `kept`, positions in the order of blocks, to `total`."""
        pieces, compute = cosines.cut(parts, total.device), cosines.Transform(inverse=True)
        if not pieces:
            return
        ends = torch.tensor([piece.stop for piece in pieces], device=total.device)
        counts = torch.bucketize(kept, ends, right=True).bincount(minlength=len(pieces)).tolist()
        room = total.new_empty(max(piece.stop - piece.start for piece in pieces))
        for piece, inside, some in zip(pieces, kept.split(counts), values.split(counts), strict=True):
            coefficients = room[: piece.stop - piece.start].zero_()
            # a payload that a GPU refuses only at the end of the step may have positions of other pieces
            coefficients[(inside - piece.start).clamp_(0, len(coefficients) - 1)] = some
            total[piece.start : piece.stop].add_(compute(coefficients, piece), alpha=weight)

    def average(self, payloads: Sequence[torch.Tensor], out: torch.Tensor, key: Key) -> None:
        coefficients = torch.zeros(out.numel(), device=out.device)
        self.average_kept((self.unpack_at(one, out.shape, out.device, key) for one in payloads), coefficients)
        out.detach().copy_(cosines.transform(coefficients, self.divide(out.shape), inverse=True).view(out.shape))

    def remove_sent(self, payload: torch.Tensor, out: torch.Tensor, key: Key) -> None:
        if not self.signs:
            super().remove_sent(payload, out, key)
            return
        kept, values = self.unpack_at(payload, out.shape, out.device, key)
        with buffers.accumulator(out) as total:
            if values.dim() == 0:
                total += values
                return
            parts = self.divide(out.shape)
            exact = cosines.transform(buffers.as_float32(out), parts)
            self._add_cosines(kept, exact[kept], parts, -1.0, total)
