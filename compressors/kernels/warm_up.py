"""Load and compile the kernels of a compressor before its first tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from compressors.base import Compressor, count_elements
from compressors.kernels import backend
from compressors.lazy import torch
from compressors.random_key import Key

WARM_UP_SHAPES = ((64, 48),)


def load_kernels(compressor: Compressor, device: torch.device | str = "cpu") -> None:
    """Import the kernel modules of a compressor on `device`; compute nothing and start no thread."""
    compressor.load_modules()
    for module in compressor.kernel_modules():
        backend.load(module, device)


def warm_up(
    compressor: Compressor, device: torch.device | str = "cpu", shapes: Sequence[Sequence[int]] = WARM_UP_SHAPES
) -> None:
    """Load or compile a compressor's kernels for tensors of these shapes, so that the first step takes no longer than
    others.

    On the CPU importing them is enough. Elsewhere kernels are compiled when they are first started with certain sizes,
    so a copy without state encodes and decodes a tensor of each shape.
    """
    compressor.warm_up_libraries(device)
    load_kernels(compressor, device)
    if torch.device(device).type == "cpu":
        return
    for shape in dict.fromkeys(map(tuple, shapes)):
        copy, key = dataclasses.replace(compressor), Key(0, 0, 1, 0)
        copy.join(1)
        x = torch.linspace(-1.0, 1.0, count_elements(shape), device=device).view(shape)
        if copy.needs_agreement(key):
            copy.agree(key, copy.statistics(x, key))
        copy.decompress(copy.compress(x, key), x, key)
