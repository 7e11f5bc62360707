"""The blocks of a randomised Hadamard transform, in plain Python: loads neither torch nor numpy."""

from __future__ import annotations

from typing import Any

from gradsweep.options.parameters import InvalidParameter, integer

LEAST, LONGEST = 16, 4096
"""Elements of a block, at least and at most. The longest fit into the first-level cache of a processor."""


def option() -> Any:
    """Return a dataclass field for the number of elements in a block."""
    return integer(LONGEST, low=LEAST, high=LONGEST)


def check(block_size: int) -> None:
    """Raise InvalidParameter if a number in the range of `option` is no power of two."""
    if block_size & (block_size - 1):
        raise InvalidParameter("block_size", block_size, f"a power of two from {LEAST} to {LONGEST}")


def pad(count: int) -> int:
    """Return the length of a block of `count` elements with the zeros behind them: a power of two, at least LEAST."""
    length = LEAST
    while length < count:
        length <<= 1
    return length


def count_padded(count: int, block: int) -> int:
    """Return the number of elements of all blocks of a unit of `count` elements, with the zeros behind the last one."""
    full, rest = divmod(count, block)
    return full * block + (pad(rest) if rest else 0)


def count_blocks(count: int, block: int) -> int:
    """Return the number of blocks of a unit of `count` elements."""
    return -(-count // block)
