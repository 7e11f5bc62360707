"""Elias' recursive code of positive integers ("omega"; Elias, IEEE Transactions on Information Theory, 1975).

The code of 1 is the bit 0. The code of a larger N is the code of (bits of N) - 1 without its last bit,
the bits of N with the most significant one first, and the bit 0:

    1  0        2  10 0        4  10 100 0        16  10 100 10000 0

So a code consists of groups, followed by the bit 0. Each group starts with a 1, and its value determines the
length of the next group.
"""

from __future__ import annotations


def code(value: int) -> str:
    """Return the code of `value` as a string of bits, in the order in which they are sent."""
    bits = "0"
    while value > 1:
        group = f"{value:b}"
        bits = group + bits
        value = len(group) - 1
    return bits


def length(value: int) -> int:
    """Return the number of bits of the code of `value`; it never decreases as `value` grows."""
    return len(code(value))


def symbols(bits: int) -> list[int]:
    """Return a table of short codes, indexed by the next `bits` bits of a stream, whose first bit is the lowest.

    A symbol is the code of a gap, a sign and the code of a level. The entry for bits that begin with a whole symbol is
    level << 10 | gap << 5 | sign << 4 | length, which is below 2^15 for up to 15 bits; else it is 0.
    """
    short = {number: code(number) for number in range(1, 32)}
    table = [0] * 2**bits
    for gap, first in short.items():
        for level, second in short.items():
            length = len(first) + 1 + len(second)
            for sign in range(2 if length <= bits else 0):
                begin = int(f"{first}{sign}{second}"[::-1], 2)
                for place in range(begin, 2**bits, 2**length):
                    table[place] = level << 10 | gap << 5 | sign << 4 | length
    return table
