"""Divide a flat tensor into buckets: rows of equal length, and a shorter last one.

Kernels in plain torch work on the full buckets as a matrix, and on the last one as a matrix with one row.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch


def rows(x: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the buckets of `x` (n,): their numbers (b,) int64 and the buckets as a view (b, length) of `x`."""
    full = len(x) // size
    if full:
        yield torch.arange(full, device=x.device), x[: full * size].view(full, size)
    if len(x) % size:
        yield torch.tensor([full], device=x.device), x[full * size :].view(1, -1)


def sections(
    payload: torch.Tensor, x: torch.Tensor, bucket: int, head: int, width: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield the buckets of `x` as `rows` does, with views of `payload`: their heads, and their codes (b, bytes) uint8.

    The heads of all buckets, `head` bytes each, come first; the codes of a bucket, `width` bits each, begin at a byte.
    """
    position = head * -(-len(x) // bucket)
    for numbers, part in rows(x, bucket):
        length = -(-part.shape[1] * width // 8)
        codes = payload[position : position + len(part) * length].view(len(part), length)
        position += codes.numel()
        yield numbers, part, payload[head * int(numbers[0]) : head * int(numbers[-1]) + head], codes


def lane_sums(values: torch.Tensor, lanes: int = 8) -> torch.Tensor:
    """Return sums of the rows of `values` (b, n) in float64, in the order that is part of every payload's definition.

    Element i goes to lane i mod `lanes` (a power of two), each lane is summed from left to right, and one half of the
    lanes is added to the other until one is left.
    """
    values = torch.nn.functional.pad(values.double(), (0, -values.shape[1] % lanes))
    total = values.new_zeros(len(values), lanes)
    for chunk in values.split(lanes, dim=1):  # one after the other: the order of the additions matters
        total += chunk
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    return total[:, 0]
