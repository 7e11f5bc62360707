"""Divide the elements of a unit into buckets, and compute the sizes of payloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compressors import flags
from compressors.base import compute_packed_size, count_elements
from compressors.lazy import torch
from gradsweep.options.parameters import integer


def option(default: int | None) -> Any:
    """Return a dataclass field for the number of elements in a bucket; if it is null, a whole unit is one bucket."""
    return integer(default, low=1, high=2**31 - 1, optional=True)


def length(shape: Sequence[int], bucket_size: int | None) -> int:
    """Return the number of elements in a full bucket of a unit of `shape`; without a size the unit is one bucket."""
    count = max(1, count_elements(shape))
    return count if bucket_size is None else min(count, bucket_size)


def payload_size(shape: Sequence[int], bucket_size: int | None, head: int, width: int) -> int:
    """Return the size in bytes of a payload with `head` bytes for every bucket and `width` bits for every element.

    The codes of each bucket start at a whole byte. The last bucket may be shorter.
    """
    size = length(shape, bucket_size)
    full, rest = divmod(count_elements(shape), size)
    return full * (head + compute_packed_size(size, width)) + (head + compute_packed_size(rest, width) if rest else 0)


def find_padding(
    shape: Sequence[int], bucket_size: int | None, head: int, width: int
) -> list[tuple[int, int, int, int]]:
    """Return the positions of the padding bits after the codes of buckets, in a payload of `payload_size` bytes.

    Each entry has the first and the last byte of the codes, the number of buckets with such codes, and the number of
    used bits in each last byte.
    """
    size = length(shape, bucket_size)
    full, rest = divmod(count_elements(shape), size)
    position = head * (full + (rest > 0))
    found = []
    for number, codes in ((full, size), (int(rest > 0), rest)):
        bits = codes * width
        stop = position + number * compute_packed_size(codes, width)
        if number and bits % 8:
            found.append((position, stop, number, bits % 8))
        position = stop
    return found


def is_padded(payload: Any, places: Iterable[tuple[int, int, int, int]]) -> bool:
    """Tell whether all padding bits (`find_padding`) of a payload, a tensor or an array of uint8, are zero; on a GPU,
    as far as flags are read (compressors/flags.py).
    """
    bits = ((payload[start:stop].reshape(number, -1)[:, -1] >> used).any() for start, stop, number, used in places)
    if not isinstance(payload, torch.Tensor) or payload.device.type == "cpu":
        return not any(bool(any_bit) for any_bit in bits)
    flag = None
    for any_bit in bits:
        flag = flags.make(payload.device) if flag is None else flag
        flag |= any_bit
    return flag is None or not flags.is_refused(flag)
