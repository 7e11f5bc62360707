"""A step of a memory without an exchange, and a compressor whose result is known by hand."""

from __future__ import annotations

from typing import ClassVar

import torch

from compressors import Compressor, Key
from compressors.conformance.cases import make_key
from compressors.memories.base import Memory
from compressors.quantisation.floats import NoCompression

SHAPE = (24, 40)


def step(
    kept: Memory, compressor: Compressor, gradient: torch.Tensor, number: int, unit: int = 0, lr: float | None = None
) -> torch.Tensor:
    """What one step of an exchange sends for `gradient`: Q(x) as the receiver sees it."""
    if lr is not None:
        kept.begin(lr, 1, lambda: float(gradient.norm()))
    x = kept.compensate(unit, gradient)
    one = make_key(number, unit=unit)
    payload = compressor.compress(x, one)
    sent = compressor.decompress(payload, x, one).clone()
    kept.update(one, x, payload, compressor)
    kept.finish(unit, sent.clone())
    return sent


class Largest(NoCompression):
    """The k largest elements, in a dense payload."""

    lossless: ClassVar[bool] = False
    k: ClassVar[int] = 3

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        flat = x.reshape(-1)
        kept = torch.zeros_like(flat)
        index = flat.abs().topk(min(self.k, len(flat))).indices
        kept[index] = flat[index]
        return super().compress(kept, key, out)
