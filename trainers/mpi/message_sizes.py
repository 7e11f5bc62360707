"""Sizes of messages: alignment of payloads, bytes that a collective sends, and the limits of MPI's counts."""

from __future__ import annotations

from trainers.options.exchanges import RABENSEIFNER, RING

ALIGNMENT = 4  # bytes: a payload starts where a kernel may read a float32
LARGEST_COUNT = 2**31 - 1  # items of one MPI message
LARGEST_SIZE = 2**32 - 1  # bytes of one payload: sizes travel as uint32
PART_BYTES = 2**20
"""A part of a message is posted when the bounds of its payloads reach this many bytes, with up to GROWING_FROM workers.
Bounds count, not the sizes of the payloads, because these differ between workers."""
SEGMENT_BYTES = 2**21
"""Bytes that one allreduce sums at most, with up to GROWING_FROM workers. Data of this size stay in the processors'
caches while they go round the ring, which makes sums of tens of MiB two to three times as fast
(docs/design/benchmarks.md)."""
GROWING_FROM = 32
"""Workers above which parts and segments grow in proportion to the workers. A ring of W sends 2 (W - 1) messages of
1 / W of a segment, so it sends 64 KiB a message from here on. With segments of 2 MiB, a ring of 1,024 would send
messages of 2 KiB, and their latency would be most of the time (docs/design/benchmarks.md)."""


def part_bytes(workers: int, part_mib: float | None = None) -> int:
    """Return the size of a part of a message in bytes: units with payloads of so many bytes are sent together.

    Args:
        part_mib: the size from the config in MiB; None: it depends on the number of workers.
    """
    if part_mib is not None:
        return max(align(round(part_mib * 2**20)), ALIGNMENT)
    return PART_BYTES * max(workers, GROWING_FROM) // GROWING_FROM


def segment_bytes(workers: int, part_mib: float | None = None) -> int:
    """Return the largest number of bytes that one allreduce sums; with `part_mib`, it is twice a part of a message."""
    if part_mib is not None:
        return 2 * part_bytes(workers, part_mib)
    return SEGMENT_BYTES * max(workers, GROWING_FROM) // GROWING_FROM


class MessageTooLarge(ValueError):
    """The message has more items than MPI can count, or a payload more bytes than a uint32 can hold."""


def check_count(count: int, what: str, limit: int | None = None) -> int:
    """Check that a message's count is within the limit, and return the count.

    Raises:
        MessageTooLarge: `count` is above `limit`, by default LARGEST_COUNT.
    """
    limit = LARGEST_COUNT if limit is None else limit
    if count > limit:
        raise MessageTooLarge(
            f"{count} {what}: valid is up to {limit}, by a smaller model or a compressor that sends less"
        )
    return count


def align(size: int) -> int:
    """Round a size up to a multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def count_words(size: int, message: str = "a message") -> int:
    """Return how many words of ALIGNMENT bytes, in which MPI counts messages, `size` bytes are.

    Raises:
        MessageTooLarge: there are more than MPI can count.
    """
    return check_count(size // ALIGNMENT, f"words of {ALIGNMENT} bytes in {message}")


def ring_bytes(count: int, itemsize: int, workers: int) -> float:
    """Return the bytes that a worker sends in a ring allreduce of `count` elements (Patarasuk and Yuan, 2009)."""
    return 2 * (workers - 1) / workers * count * itemsize


def allreduce_bytes(count: int, itemsize: int, workers: int, algorithm: str | None = None) -> float:
    """Return the bytes that a worker sends, on average, in Open MPI's allreduce of `count` elements.

    Recursive doubling sends one message a round, and two more for each worker beyond a power of two. A ring with fewer
    elements than workers becomes recursive doubling. Rabenseifner's algorithm (Rabenseifner, 2004) halves and doubles
    the vector; each worker beyond a power of two adds a message of the whole vector and three of half of it. With fewer
    elements than the power of two, every worker instead sends its vector to the first, which answers.

    Args:
        algorithm: one of ALLREDUCES; None: a ring.
    """
    rounds = workers.bit_length() - 1
    beyond = workers - 2**rounds
    if algorithm == RABENSEIFNER:
        if count < 2**rounds:
            return 2 * (workers - 1) / workers * count * itemsize
        return (2 * (2**rounds - 1) * count + beyond * (3 * count - count // 2)) / workers * itemsize
    if algorithm in (None, RING) and count >= workers:
        return ring_bytes(count, itemsize, workers)
    return (2**rounds * rounds + 2 * beyond) / workers * count * itemsize
