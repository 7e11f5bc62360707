"""Sizes of messages: how payloads are aligned in them, what a collective sends, and where MPI stops counting."""

from __future__ import annotations

ALIGNMENT = 4  # bytes: a payload starts where a kernel may read a float32
LARGEST_COUNT = 2**31 - 1  # of the items of one MPI message
LARGEST_SIZE = 2**32 - 1  # of one payload, in bytes: sizes travel as uint32
PART_BYTES = 2**20
"""A part of a message is posted when it may have become this long. What that is must not depend on what payloads turn
out to need, which differs between workers: bounds count."""
SEGMENT_BYTES = 2**21
"""The network adds at most this much at a time: what goes round in a ring then stays in the caches of the processors,
which makes sums of tens of MiB two to three times as fast (docs/design/benchmarks.md)."""


class MessageTooLarge(ValueError):
    """More than MPI can count, or than sizes of four bytes can say."""


def check_count(count: int, limit: int, what: str) -> int:
    """`count`, where it is not above `limit`.

    Raises:
        MessageTooLarge: it is; in one line.
    """
    if count > limit:
        raise MessageTooLarge(
            f"{count} {what}: valid is up to {limit}, by a smaller model or a compressor that sends less"
        )
    return count


def align(size: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def ring_bytes(count: int, itemsize: int, workers: int) -> float:
    """What a worker sends in an allreduce of `count` elements that goes round in a ring (Patarasuk and Yuan, 2009)."""
    return 2 * (workers - 1) / workers * count * itemsize


def allreduce_bytes(count: int, itemsize: int, workers: int) -> float:
    """What a worker sends, on average, in an allreduce of `count` elements.

    By MPI: a ring, but Open MPI takes recursive doubling where there are fewer elements than workers: one message
    a round, and two for each worker beyond a power of two.
    """
    if count >= workers:
        return ring_bytes(count, itemsize, workers)
    rounds = workers.bit_length() - 1
    beyond = workers - 2**rounds
    return (2**rounds * rounds + 2 * beyond) / workers * count * itemsize
