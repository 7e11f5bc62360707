"""DeMo: the largest coefficients of the discrete cosine transform of every block."""

from __future__ import annotations

import dataclasses
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
        coefficients = cosines.transform(buffers.as_float32(x), self.divide(x.shape))
        pack = self._pack_signs if self.signs else self.pack_blocks
        return pack(coefficients, x.shape, key, out)

    def _pack_signs(self, x: torch.Tensor, shape: Sequence[int], key: Key, out: torch.Tensor | None) -> torch.Tensor:
        parts, kernels = self.divide(shape), backend.load("sparse", x.device)
        places = grids.select(x, parts)
        values = x.index_select(0, grids.locate(places, parts))
        broken = not bool(values.isfinite().all())
        sent = torch.zeros_like(values, dtype=torch.bool) if broken else values != 0
        blocks = self.blocks(shape) if bool(sent.all()) else []
        places, values = places[sent], values[sent]
        option = "delta" if self.indices == "packed" and not blocks else self.indices
        plan = positions.plan(kernels, places, len(x), option, None, blocks)
        start = positions.HEADER + plan.size
        payload = buffers.prepare(out, start + compute_packed_size(len(places), 1), x.device)
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
        plan, places, extra = positions.read(kernels, payload, n, self.blocks(shape))
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
            coefficients = torch.zeros_like(total)
            coefficients[kept] = values
            total.add_(cosines.transform(coefficients, self.divide(out.shape), inverse=True), alpha=weight)

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
            exact, coefficients = cosines.transform(buffers.as_float32(out), parts), torch.zeros_like(total)
            coefficients[kept] = exact[kept]
            total.sub_(cosines.transform(coefficients, parts, inverse=True))
