"""The randomised Hadamard transform in plain torch: y = H D x, with random signs D, of every block of a tensor.

H is the Hadamard matrix of +1 and -1. The last block of a tensor is padded with zeros to a power of two. Signs are a
function of a key and the number of the block. Element i of a transformed block of P elements has place
(i mod 8) P / 8 + i div 8.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from compressors.kernels.hadamard_blocks import pad
from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import norms


def sections(
    payload: torch.Tensor, x: torch.Tensor, block: int, width: int, position: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield the blocks of `x` as `rows` does, with a view (b, bytes) of their codes, of `width` bits, in `payload`.

    The codes of all blocks begin at byte `position`.
    """
    for numbers, part in rows(x, block):
        length = pad(part.shape[1]) * width // 8
        yield numbers, part, payload[position : position + len(part) * length].view(len(part), length)
        position += len(part) * length


def compute_norms(x: torch.Tensor, block: int) -> torch.Tensor:
    """Return the l2 norms of the blocks of `x` (n,), n > 0, at most the largest float32: (blocks,) float32.

    NaN for a block that holds NaN or Inf.
    """
    return torch.cat([norms(part, True) for _, part in rows(x, block)])


def rotate(part: torch.Tensor, norm: torch.Tensor, key: int, numbers: torch.Tensor) -> torch.Tensor:
    """Return H D x / `norm` of the blocks `part` (b, n), numbered `numbers` (b,): (b, pad(n)) float32.

    A block is not divided by a norm of zero, and is zero if its norm is NaN.
    """
    length = pad(part.shape[1])
    y = part / torch.where(norm > 0, norm, 1.0)[:, None]
    y = torch.where(norm.isnan()[:, None], 0.0, y)
    y = torch.nn.functional.pad(y, (0, length - part.shape[1]))
    y = torch.where(_are_minus(key, numbers, length), -y, y)
    for stride in _strides(length):
        y = _add_pairs(y, stride)
    return y.unflatten(1, (-1, 8)).transpose(1, 2).flatten(1)


def rotate_back(y: torch.Tensor, key: int, numbers: torch.Tensor) -> torch.Tensor:
    """Return D H y of transformed blocks `y` (b, P), which is P times their inverse: (b, P) float32."""
    length = y.shape[1]
    y = y.unflatten(1, (8, -1)).transpose(1, 2).flatten(1)
    for stride in reversed(_strides(length)):
        y = _add_pairs(y, stride)
    return torch.where(_are_minus(key, numbers, length), -y, y)


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
