"""Encode the positions of a tensor's kept elements in as few bytes as possible: the index part of sparse payloads.

The positions of `count` kept elements among n are ascending integers. Five codings:

    int32    count little-endian unsigned 32-bit numbers; not where n > 2^32
    delta    Golomb-Rice codes with parameter r of the gaps (the first position; then the positions that lie
             between two neighbours): gap >> r as so many 0 bits and a 1, then the r low bits of the gap.
             Bits fill bytes from the least significant on; the last byte is filled up with zeros
    bitmap   n bits, position i is bit i mod 8 of byte i div 8; the last byte is filled up with zeros
    dense    nothing: n values follow, with zeros for what was not kept
    packed   only where equally many elements are kept of every block of a known size: their numbers in the block,
             ceil(log2(size)) bits each, as a stream of bits for all blocks of one size; nothing for blocks of which
             everything is kept

The bits of Golomb-Rice codes as a function of r are convex (from r to r + 1 they change by count minus the
sum of ceil((gap >> r) / 2), which only grows), so the best parameter is found exactly by walking downhill:
r is the smallest one that needs the fewest bits.

A sparse payload starts with a header of HEADER bytes: a little-endian 64-bit number with the coding in its
lowest 3 bits (the order above), r in the next 5, `count` in the next 48 and `extra`, which the coding of
the values may use, in the last 8.

Nothing here loads torch; tensors are worked on by the kernels `sparse`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType

from compressors.base import CorruptPayload
from compressors.lazy import torch
from compressors.sparsification.blocks.grids import Blocks

HEADER = 8
OPTIONS = ("auto", "int32", "delta", "bitmap")
"""What configs can ask for. `auto` takes the smallest; the others are kept to, except that nothing is
written where all elements are kept, and that `int32` becomes `delta` where n > 2^32."""

_INT32, _DELTA, _BITMAP, _DENSE, _PACKED = range(5)
_LARGEST_PARAMETER = 31
_COUNT_BITS = 48


def compute_packed(blocks: Sequence[Blocks]) -> int:
    """Return the number of bytes of the positions of all kept elements, packed."""
    return sum(some.size for some in blocks)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The coding of the positions in one payload."""

    coding: int
    parameter: int
    count: int
    """Kept elements."""
    size: int
    """Bytes of the index part."""

    @property
    def is_dense(self) -> bool:
        """Whether the payload has no positions, but the values of all elements."""
        return self.coding == _DENSE

    def header(self, extra: int) -> bytes:
        """Return the first HEADER bytes of the payload."""
        number = self.coding | self.parameter << 3 | self.count << 8 | extra << (8 + _COUNT_BITS)
        return number.to_bytes(HEADER, "little")


def _bound_delta(n: int, count: int, parameter: int) -> int:
    """Return the maximum number of bytes of the delta codes of `count` of n elements: gaps add up to n - count."""
    return -(-(count * (1 + parameter) + ((n - count) >> parameter)) // 8)


def bound(option: str, n: int, most: int, blocks: Sequence[Blocks] = ()) -> int:
    """Return the maximum number of bytes for the positions of at most `most` of n elements with the coding `option`.

    With `blocks`, the positions may be packed.
    """
    if most == 0 and option in ("auto", "int32"):
        return 0
    delta = min(_bound_delta(n, most, parameter) for parameter in range(_LARGEST_PARAMETER + 1))
    sizes = {"bitmap": -(-n // 8), "delta": delta}
    # Every size only grows with the count, so that of `most` bounds them all.
    sizes["int32"] = 4 * most if n <= 2**32 else sizes["delta"]
    if blocks:
        sizes["packed"] = compute_packed(blocks)
    return min(sizes.values()) if option == "auto" else sizes[option]


def size(option: str, n: int, count: int, blocks: Sequence[Blocks] = ()) -> int | None:
    """Return the number of bytes for the positions of `count` of n elements; None if it depends on the positions."""
    if count == n:
        return 0
    if option == "bitmap":
        return -(-n // 8)
    if option == "packed":
        return compute_packed(blocks)
    return 4 * count if option == "int32" and n <= 2**32 else None


def plan(
    kernels: ModuleType,
    indices: torch.Tensor,
    n: int,
    option: str,
    value_bytes: int | None,
    blocks: Sequence[Blocks] = (),
) -> Plan:
    """Choose the coding of `indices` (ascending int64).

    `value_bytes` is the size of a value if any number of values can follow, also all n of them; None
    if only the kept ones can. With `blocks`, which `indices` are of, they can be packed.
    """
    count = len(indices)
    if count == n:
        return Plan(_DENSE, 0, count, 0)
    sizes: list[tuple[int, int, int]] = []  # size, coding, parameter: of equal sizes the first coding wins
    if option in ("auto", "int32") and n <= 2**32:
        sizes.append((4 * count, _INT32, 0))
    if option in ("auto", "delta") or (option == "int32" and not sizes):
        parameter, bits = kernels.rice(indices)
        sizes.append((-(-bits // 8), _DELTA, parameter))
    if option in ("auto", "bitmap"):
        sizes.append((-(-n // 8), _BITMAP, 0))
    if option in ("auto", "packed") and blocks:
        sizes.append((compute_packed(blocks), _PACKED, 0))
    if option == "auto" and value_bytes is not None:
        sizes.append(((n - count) * value_bytes, _DENSE, 0))
    best, coding, parameter = min(sizes)
    return Plan(coding, parameter, count, 0 if coding == _DENSE else best)


def write(
    kernels: ModuleType, indices: torch.Tensor, chosen: Plan, payload: torch.Tensor, blocks: Sequence[Blocks] = ()
) -> None:
    """Write the positions into `payload`, which has exactly the right length."""
    if chosen.coding == _INT32:
        kernels.write_int32(indices, payload)
    elif chosen.coding == _DELTA:
        kernels.write_delta(indices, chosen.parameter, payload)
    elif chosen.coding == _BITMAP:
        kernels.write_bitmap(indices, payload)
    elif chosen.coding == _PACKED:
        first = byte = element = 0
        for some in blocks:
            kept = indices[first : first + some.number * some.kept]
            if some.width:
                kernels.write_packed(kept - element, some.elements, some.width, payload[byte : byte + some.size])
            first, byte, element = first + len(kept), byte + some.size, element + some.number * some.elements


def _read_packed(kernels: ModuleType, payload: torch.Tensor, blocks: Sequence[Blocks]) -> torch.Tensor | None:
    found, byte, element = [], 0, 0
    for some in blocks:
        if some.width:
            part = payload[byte : byte + some.size]
            kept = kernels.read_packed(part, some.number, some.elements, some.kept, some.width)
        else:
            kept = torch.arange(some.number * some.elements, device=payload.device)
        if kept is None:
            return None
        found.append(kept + element if element else kept)
        byte, element = byte + some.size, element + some.number * some.elements
    return found[0] if len(found) == 1 else torch.cat(found)


def read(
    kernels: ModuleType,
    payload: torch.Tensor,
    n: int,
    blocks: Sequence[Blocks] = (),
    size_values: Callable[[int], int | None] = lambda count: None,
) -> tuple[Plan, torch.Tensor | None, int]:
    """Read the beginning of `payload`; return the plan, the positions (int64; None for a dense payload), and `extra`.

    `size_values` returns the number of bytes behind the positions of so many elements, or None if it varies. If it is
    known, a GPU need not be waited for to know where delta codes end.

    Raises:
        CorruptPayload: `write` cannot have written it for n elements.
    """
    if len(payload) < HEADER:
        raise CorruptPayload(f"a sparse payload starts with {HEADER} bytes, this one has {len(payload)}")
    number = int.from_bytes(bytes(payload[:HEADER].tolist()), "little")
    coding, parameter, extra = number & 7, number >> 3 & 31, number >> (8 + _COUNT_BITS)
    count = number >> 8 & ((1 << _COUNT_BITS) - 1)
    rest = payload[HEADER:]
    if coding > (_PACKED if blocks else _DENSE) or (parameter and coding != _DELTA) or count > n:
        raise CorruptPayload(f"coding {coding}, parameter {parameter}, {count} kept of {n}: no header of a payload")
    if coding == _DENSE:
        return Plan(coding, 0, count, 0), None, extra
    if coding == _BITMAP:
        length = -(-n // 8)
        indices = kernels.read_bitmap(rest[:length], n, count) if len(rest) >= length else None
    elif coding == _PACKED:
        length = compute_packed(blocks)
        matches = count == sum(some.number * some.kept for some in blocks) and len(rest) >= length
        indices = _read_packed(kernels, rest[:length], blocks) if matches else None
    elif coding == _INT32:
        length = 4 * count
        indices = kernels.read_int32(rest[:length], n) if len(rest) >= length else None
    else:
        most, behind = _bound_delta(n, count, parameter), size_values(count)
        length = most if behind is None else len(rest) - behind
        part = rest[: max(0, length)]
        fits = length <= most and count <= 8 * len(part)
        indices, length = kernels.read_delta(part, n, count, parameter, behind is not None) if fits else (None, 0)
    if indices is None:
        raise CorruptPayload(f"no {count} ascending positions below {n}")
    return Plan(coding, parameter, count, length), indices, extra
