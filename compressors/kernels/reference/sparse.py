"""The index part of sparse payloads in plain torch; `compressors.sparsification.positions` documents the codings."""

from __future__ import annotations

import torch

from compressors.kernels.reference.primitives.packing import pack, unpack

_SHIFTS = (0, 8, 16, 24)
_PARAMETERS = 32


def _gaps(indices: torch.Tensor) -> torch.Tensor:
    return indices.diff(prepend=indices.new_full((1,), -1)) - 1


def _unpack_bits(payload: torch.Tensor) -> torch.Tensor:
    """Return the bits of `payload`, one a byte."""
    return ((payload[:, None] >> torch.arange(8, dtype=torch.uint8, device=payload.device)) & 1).flatten()


def rice(indices: torch.Tensor) -> tuple[int, int]:
    """Return the best Golomb-Rice parameter for ascending `indices` (k,) int64, and the number of bits of the codes."""
    gaps = _gaps(indices)
    bits = [len(gaps) * (1 + r) + int((gaps >> r).sum()) for r in range(_PARAMETERS)]
    return min(range(_PARAMETERS), key=bits.__getitem__), min(bits)


def write_int32(indices: torch.Tensor, payload: torch.Tensor) -> None:
    payload.copy_((indices[:, None] >> torch.tensor(_SHIFTS, device=indices.device)).to(torch.uint8).flatten())


def read_int32(payload: torch.Tensor, n: int) -> torch.Tensor | None:
    """Return the positions; None if they do not ascend or are not below `n`."""
    shifts = torch.tensor(_SHIFTS, device=payload.device)
    return _check((payload.view(-1, 4).long() << shifts).sum(1), n)


def _check(indices: torch.Tensor, n: int) -> torch.Tensor | None:
    good = not len(indices) or bool((indices.diff() > 0).all() and indices[0] >= 0 and indices[-1] < n)
    return indices if good else None


def write_bitmap(indices: torch.Tensor, payload: torch.Tensor) -> None:
    payload.zero_()
    bits = (1 << (indices & 7)).to(torch.uint8)
    payload.index_add_(0, indices >> 3, bits)  # every bit once: a sum is an or


def read_bitmap(payload: torch.Tensor, n: int, count: int) -> torch.Tensor | None:
    """Return the positions of the set bits; None unless `count` bits are set, all among the first `n`."""
    indices = _unpack_bits(payload).nonzero().flatten()
    return _check(indices, n) if len(indices) == count else None


def write_delta(indices: torch.Tensor, parameter: int, payload: torch.Tensor) -> None:
    gaps = _gaps(indices)
    quotients = gaps >> parameter
    ends = (quotients + 1 + parameter).cumsum(0)
    bits = torch.zeros(8 * len(payload), dtype=torch.long, device=payload.device)
    bits[ends - parameter - 1] = 1
    for bit in range(parameter):
        bits[ends - parameter + bit] = (gaps >> bit) & 1
    payload.copy_((bits.view(-1, 8) << torch.arange(8, device=bits.device)).sum(1).to(torch.uint8))


def read_delta(
    payload: torch.Tensor, n: int, count: int, parameter: int, is_whole: bool = False
) -> tuple[torch.Tensor | None, int]:
    """Return `count` positions and the number of bytes read; None if `payload` does not hold them.

    It does not hold them either if the last byte is not padded with zeros or, with `is_whole`, if bytes follow. The
    start of a code depends on all codes before it. Behind a code whose unary part ends with some set bit, the next
    code's ends with the first set bit from 1 + parameter bits later on. All of these bits are found by doubling: next,
    next of next, and so on.
    """
    bits = _unpack_bits(payload)
    ones = bits.nonzero().flatten()
    step = torch.cat([torch.searchsorted(ones, ones + (1 + parameter)), ones.new_tensor([len(ones)])])
    found = ones.new_zeros(1)
    while len(found) < count:
        found = torch.cat([found, step[found]])
        step = step[step]
    found = found[:count]
    if count and int(found[-1]) == len(ones):
        return None, 0
    ends = ones[found] + (1 + parameter)
    end = int(ends[-1]) if count else 0
    length = -(-end // 8)
    if length > len(payload) or (is_whole and length < len(payload)) or bool(bits[end : 8 * length].any()):
        return None, 0
    starts = torch.cat([ends.new_zeros(1), ends])[:count]
    gaps = (ends - starts - (1 + parameter)) << parameter
    for bit in range(parameter):
        gaps += bits[ends - (parameter - bit)].long() << bit
    # A corrupt payload can be long enough for sums beyond 64 bits only where it has 2^32 bits.
    return _check((gaps + 1).cumsum(0) - 1, n), length


def add_at(indices: torch.Tensor, values: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    """Compute out[indices] += weight * values, for distinct indices, int32 or int64."""
    out[indices] = out[indices] + values * weight


def write_packed(indices: torch.Tensor, elements: int, width: int, payload: torch.Tensor) -> None:
    """Write the numbers of ascending `indices` in their blocks of `elements` elements, with `width` bits each."""
    payload.copy_(pack(indices % elements, width))


def read_packed(payload: torch.Tensor, number: int, elements: int, kept: int, width: int) -> torch.Tensor | None:
    """Return `kept` positions of each of `number` blocks, ascending; None if they cannot come from `write_packed`."""
    codes = unpack(payload, number * kept, width).view(number, kept)
    padding = number * kept * width % 8
    bad = (codes >= elements).any() or (codes.diff(dim=1) <= 0).any() or bool(padding and payload[-1] >> padding)
    if bad:
        return None
    return (codes + torch.arange(number, device=payload.device)[:, None] * elements).flatten()
