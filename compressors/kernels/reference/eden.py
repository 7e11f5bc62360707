"""Quantisation after a random rotation, in plain torch; `compressors.quantisation.eden.EDEN` documents the payload."""

from __future__ import annotations

import math

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.hadamard_blocks import count_blocks
from compressors.kernels.normal_levels import BORDERS, MAGNITUDES, VALUES
from compressors.kernels.reference.hadamard import rotate, rotate_back, sections
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.scales import LARGEST, are_scales, norms, sums


def _select_heads(payload: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return the scales of these neighbouring blocks, a view of `payload`."""
    return payload[8 + 4 * int(numbers[0]) : 12 + 4 * int(numbers[-1])]


def encode(x: torch.Tensor, key: int, bits: int, block: int, unbiased: bool, payload: torch.Tensor) -> None:
    """Write the payload of `x`, (n,) float32 with n > 0, into `payload`, which has exactly the right length."""
    payload[:8] = torch.tensor([key >> 8 * byte & 255 for byte in range(8)], dtype=torch.uint8)
    borders, magnitudes = (torch.tensor(table[bits], device=x.device) for table in (BORDERS, MAGNITUDES))
    for numbers, part, codes in sections(payload, x, block, bits, 8 + 4 * count_blocks(len(x), block)):
        norm = norms(part, True)
        y = rotate(part, norm, key, numbers)
        rank = torch.bucketize(y.abs(), borders)
        level = magnitudes[rank].double()
        product = sums(y.abs().double() * level)
        if unbiased:
            scale = norm.double() / torch.where(product > 0, product, 1.0)
        else:
            scale = norm.double() * product / (y.shape[1] * sums(level.square()))
        scale = torch.where(norm.isnan(), math.nan, scale.clamp(max=LARGEST).float())
        write_floats(scale, _select_heads(payload, numbers))
        half = 1 << (bits - 1)
        codes.copy_(pack(torch.where(y.signbit(), half - 1 - rank, half + rank), bits))


def decode_add(payload: torch.Tensor, bits: int, block: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32, n > 0; return False if `encode` cannot have
    written it."""
    key = int.from_bytes(bytes(payload[:8].tolist()), "little")
    values = torch.tensor(VALUES[bits], device=out.device)
    for numbers, part, codes in sections(payload, out, block, bits, 8 + 4 * count_blocks(len(out), block)):
        scale = read_floats(_select_heads(payload, numbers))
        if not are_scales(scale):
            return False
        y = rotate_back(values[unpack(codes, codes.shape[1] * 8 // bits, bits)], key, numbers)
        part += (scale.double() * weight).float()[:, None] * y[:, : part.shape[1]]
    return True
