"""How the elements of a unit are cut into buckets, and how long payloads of buckets are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compressors.base import element_count, packed_size
from compressors.parameters import integer

if TYPE_CHECKING:
    import torch


def option(default: int | None) -> Any:
    """A dataclass field for the elements in a bucket; null: the unit is one."""
    return integer(default, low=1, high=2**31 - 1, optional=True)


def length(shape: Sequence[int], bucket_size: int | None) -> int:
    """Elements in a full bucket of a unit of `shape`; without a size the unit is one bucket."""
    count = max(1, element_count(shape))
    return count if bucket_size is None else min(count, bucket_size)


def payload_size(shape: Sequence[int], bucket_size: int | None, head: int, width: int) -> int:
    """Bytes of a payload that spends `head` bytes on every bucket, and `width` bits on every element of
    it, the codes of a bucket starting at a whole byte. The last bucket may be shorter."""
    size = length(shape, bucket_size)
    full, rest = divmod(element_count(shape), size)
    return full * (head + packed_size(size, width)) + (head + packed_size(rest, width) if rest else 0)


def is_padded(payload: torch.Tensor, shape: Sequence[int], bucket_size: int | None, head: int, width: int) -> bool:
    """Whether all bits that fill up the last byte of a bucket's codes are zero, as they are written, in a payload of
    `payload_size`: first the heads of all buckets, then their codes."""
    size = length(shape, bucket_size)
    full, rest = divmod(element_count(shape), size)
    position = head * (full + (rest > 0))
    for number, codes in ((full, size), (int(rest > 0), rest)):
        bits = codes * width
        used = bits % 8
        stop = position + number * packed_size(codes, width)
        if number and used:
            last = payload[position:stop].view(number, -1)[:, -1]
            if bool((last >> used).any()):
                return False
        position = stop
    return True
