"""The steps of an exchange for a single worker, without a network."""

from __future__ import annotations

import dataclasses

from compressors.base import Compressor
from compressors.lazy import torch
from compressors.random_key import Key


def copy_without_state(compressor: Compressor) -> Compressor:
    """Return a compressor of the same method and options, with empty state and for one worker."""
    copy = dataclasses.replace(compressor)
    copy.join(1)
    return copy


def encode(compressor: Compressor, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the payload of `x`; if the workers have to agree on statistics, this worker uses its own."""
    if compressor.needs_agreement(key):
        compressor.agree(key, compressor.statistics(x, key))
    return compressor.compress(x, key, out)


def quantise(compressor: Compressor, x: torch.Tensor, key: Key) -> torch.Tensor:
    """Return Q(x), computed by a copy of the compressor without state."""
    one = copy_without_state(compressor)
    return one.decompress(encode(one, x, key), x, key)
