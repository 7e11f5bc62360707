"""Quantisation after a random rotation, in plain torch; `compressors.quantisation.eden.EDEN` documents the payload."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.normal_levels import BORDERS, MAGNITUDES, VALUES
from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import LARGEST, are_scales, norms, sums

LEAST = 16
"""Elements of a block at least, with zeros behind the last ones of a unit."""


def pad(count: int) -> int:
    """Return the length of a block of `count` elements, a power of two."""
    return max(LEAST, 1 << (count - 1).bit_length())


def _sections(
    payload: torch.Tensor, x: torch.Tensor, block: int, bits: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield the blocks of `x` as `rows` does, with views of their scales and of their codes (b, bytes)."""
    position = 8 + 4 * -(-len(x) // block)
    for numbers, part in rows(x, block):
        length = pad(part.shape[1]) * bits // 8
        codes = payload[position : position + len(part) * length].view(len(part), length)
        position += codes.numel()
        yield numbers, part, payload[8 + 4 * int(numbers[0]) : 12 + 4 * int(numbers[-1])], codes


def _are_minus(key: int, numbers: torch.Tensor, length: int) -> torch.Tensor:
    """Return the elements (b, length) whose signs change: bit i mod 32 of draw i div 32 of a block's stream."""
    coins = draws(key, numbers, -(-length // 32))
    bits = (coins[:, :, None] >> torch.arange(32, device=coins.device)) & 1
    return bits.flatten(1)[:, :length].bool()


def _add_pairs(y: torch.Tensor, stride: int) -> torch.Tensor:
    """Replace elements that are `stride` apart by their sum and difference, in blocks of 2 stride elements."""
    pairs = y.unflatten(1, (-1, 2, stride))
    low, high = pairs[:, :, 0], pairs[:, :, 1]
    return torch.stack([low + high, low - high], 2).flatten(1)


def _strides(length: int) -> list[int]:
    """Return the strides of the transform, in its order: from half the length down to 8, and then 1, 2 and 4."""
    return [*(1 << place for place in range(length.bit_length() - 2, 2, -1)), 1, 2, 4]


def encode(x: torch.Tensor, key: int, bits: int, block: int, unbiased: bool, payload: torch.Tensor) -> None:
    """Write the payload of `x`, (n,) float32 with n > 0, into `payload`, which has exactly the right length."""
    payload[:8] = torch.tensor([key >> 8 * byte & 255 for byte in range(8)], dtype=torch.uint8)
    borders, magnitudes = (torch.tensor(table[bits], device=x.device) for table in (BORDERS, MAGNITUDES))
    for numbers, part, head, codes in _sections(payload, x, block, bits):
        norm, length = norms(part, True), pad(part.shape[1])
        y = part / torch.where(norm > 0, norm, 1.0)[:, None]
        y = torch.where(norm.isnan()[:, None], 0.0, y)
        y = torch.nn.functional.pad(y, (0, length - part.shape[1]))
        y = torch.where(_are_minus(key, numbers, length), -y, y)
        for stride in _strides(length):
            y = _add_pairs(y, stride)
        y = y.unflatten(1, (-1, 8)).transpose(1, 2).flatten(1)
        rank = torch.bucketize(y.abs(), borders)
        level = magnitudes[rank].double()
        product = sums(y.abs().double() * level)
        if unbiased:
            scale = norm.double() / torch.where(product > 0, product, 1.0)
        else:
            scale = norm.double() * product / (length * sums(level.square()))
        write_floats(torch.where(norm.isnan(), math.nan, scale.clamp(max=LARGEST).float()), head)
        half = 1 << (bits - 1)
        codes.copy_(pack(torch.where(y.signbit(), half - 1 - rank, half + rank), bits))


def decode_add(payload: torch.Tensor, bits: int, block: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32, n > 0; return False if `encode` cannot have
    written it."""
    key = int.from_bytes(bytes(payload[:8].tolist()), "little")
    values = torch.tensor(VALUES[bits], device=out.device)
    for numbers, part, head, codes in _sections(payload, out, block, bits):
        scale, length = read_floats(head), pad(part.shape[1])
        if not are_scales(scale):
            return False
        y = values[unpack(codes, length, bits)].unflatten(1, (8, -1)).transpose(1, 2).flatten(1)
        for stride in reversed(_strides(length)):
            y = _add_pairs(y, stride)
        y = torch.where(_are_minus(key, numbers, length), -y, y)[:, : part.shape[1]]
        part += (scale.double() * weight).float()[:, None] * y
    return True
