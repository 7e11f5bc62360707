"""`kernels.cpu.primitives.packing` in Triton: codes of 1 to 16 bits as a stream of bits.

Eight codes of `width` bits are `width` whole bytes. To pack, such a group becomes two words of four codes
each, whose bytes are computed independently of each other. To unpack, every code is cut out of the one to
three bytes that it lies in. Payloads may start anywhere, so they are read and written byte by byte. Where codes fill
aligned words of 32 bits (`fill_words`), these are read and written instead, by a third of the instructions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.buffers import is_aligned
from compressors.kernels.cuda.primitives.launch import launch

_GROUPS = 128


def fill_words(payload: torch.Tensor, width: int, *sizes: int) -> bool:
    """Tell whether codes of `width` bits fill whole words of 32 bits of an aligned payload, `sizes` codes at a time."""
    return 32 % width == 0 and is_aligned(payload) and not any(size * width % 32 for size in sizes)


@triton.jit
def word_pointer(payload) -> tl.tensor:
    """Return a pointer to the 32-bit words of an aligned payload."""
    return payload.to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def pack_words(codes, WIDTH: tl.constexpr) -> tl.tensor:
    """Pack (words, 32 // WIDTH) int32 below 2^WIDTH into words (words,) int32."""
    return tl.sum(codes << (WIDTH * tl.arange(0, 32 // WIDTH))[None, :], axis=1)


@triton.jit
def unpack_words(words, WIDTH: tl.constexpr) -> tl.tensor:
    """Return the codes of WIDTH bits in words (n,) int32, in order, as (n * 32 // WIDTH,) int32."""
    codes = (words[:, None] >> (WIDTH * tl.arange(0, 32 // WIDTH))[None, :]) & ((1 << WIDTH) - 1)
    return tl.reshape(codes, (words.shape[0] * (32 // WIDTH),))


@triton.jit
def pack(codes, WIDTH: tl.constexpr) -> tl.tensor:
    """Pack (groups, 8) int32 below 2^WIDTH into (groups, n) uint8, of which the first WIDTH columns are used.

    n is the smallest power of two that is at least WIDTH.
    """
    groups: tl.constexpr = codes.shape[0]
    columns: tl.constexpr = 16 if WIDTH > 8 else 8 if WIDTH > 4 else 4 if WIDTH > 2 else WIDTH
    fields = tl.reshape(codes.to(tl.uint64), (groups, 2, 4)) << (WIDTH * tl.arange(0, 4)[None, None, :]).to(tl.uint64)
    words = tl.sum(fields, axis=2)
    half = tl.arange(0, 2)[None, :]
    low = tl.sum(tl.where(half == 0, words, 0), axis=1)[:, None]
    high = tl.sum(tl.where(half == 0, 0, words), axis=1)[:, None]
    begin = 8 * tl.arange(0, columns)[None, :]
    behind = 4 * WIDTH - begin  # where the second word begins, seen from this byte
    own = tl.where(behind > 0, low >> tl.minimum(begin, 63).to(tl.uint64), 0)
    left = high << tl.minimum(tl.maximum(behind, 0), 63).to(tl.uint64)
    right = high >> tl.minimum(tl.maximum(-behind, 0), 63).to(tl.uint64)
    return ((own | tl.where(behind > 0, left, right)) & 0xFF).to(tl.uint8)


@triton.jit
def pack_at(payload, codes, begin, end, WIDTH: tl.constexpr) -> None:
    """Write `codes` (groups, 8), group g from byte `begin[g]` (int64) on, but no byte from `end[g]` on."""
    packed = pack(codes, WIDTH)
    column = tl.arange(0, packed.shape[1])[None, :]
    place = begin[:, None] + column
    tl.store(payload + place, packed, mask=(column < WIDTH) & (place < end[:, None]))


@triton.jit
def unpack_at(payload, begin, index, mask, WIDTH: tl.constexpr) -> tl.tensor:
    """Return code number `index` (int64) of the codes that start at byte `begin` (int64), as int32; 0 outside `mask`.

    Shapes are arbitrary. No byte is read after the one with the code's last bit.
    """
    bit = index * WIDTH
    place = payload + begin + (bit >> 3)
    shift = (bit & 7).to(tl.int32)
    code = tl.load(place, mask=mask, other=0).to(tl.int32)
    if 8 % WIDTH:
        code |= tl.load(place + 1, mask=mask & (shift + WIDTH > 8), other=0).to(tl.int32) << 8
    if WIDTH > 9:
        code |= tl.load(place + 2, mask=mask & (shift + WIDTH > 16), other=0).to(tl.int32) << 16
    return (code >> shift) & ((1 << WIDTH) - 1)


@triton.jit
def store_words(payload, index, bits, mask) -> None:
    """Write `bits` (n,) int32 into `payload`, as little-endian 32-bit words with the indices `index` (n,) int64."""
    byte = tl.arange(0, 4)[None, :]
    value = (bits[:, None] >> (8 * byte)) & 0xFF
    tl.store(payload + 4 * index[:, None] + byte, value.to(tl.uint8), mask=mask[:, None] & (byte < 4))


@triton.jit
def load_words(payload, index, mask) -> tl.tensor:
    """Return the little-endian 32-bit words with these indices in `payload`, as int32; 0 for indices outside `mask`."""
    place = payload + 4 * index
    bits = tl.load(place, mask=mask, other=0).to(tl.int32)
    bits |= tl.load(place + 1, mask=mask, other=0).to(tl.int32) << 8
    bits |= tl.load(place + 2, mask=mask, other=0).to(tl.int32) << 16
    return bits | (tl.load(place + 3, mask=mask, other=0).to(tl.int32) << 24)


@triton.jit(do_not_specialize=["count", "size"])
def _pack(codes, payload, count, size, WIDTH: tl.constexpr, GROUPS: tl.constexpr) -> None:
    count = count.to(tl.int64)
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    index = 8 * group[:, None] + tl.arange(0, 8)[None, :]
    code = tl.load(codes + index, mask=index < count, other=0)
    pack_at(payload, code, group * WIDTH, tl.zeros((GROUPS,), tl.int64) + size, WIDTH)


@triton.jit(do_not_specialize=["count"])
def _unpack(payload, codes, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr) -> None:
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(codes + index, unpack_at(payload, 0, index, index < count, WIDTH), mask=index < count)


def pack_codes(codes: torch.Tensor, width: int) -> torch.Tensor:
    """Pack (n,) int32 below 2^width into bytes, and return these."""
    payload = torch.empty((len(codes) * width + 7) // 8, dtype=torch.uint8, device=codes.device)
    programs = -(-len(codes) // (8 * _GROUPS))
    launch(_pack, programs, codes, payload, len(codes), len(payload), WIDTH=width, GROUPS=_GROUPS)
    return payload


def unpack_codes(payload: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """Return the (count,) int32 that `pack_codes` has packed."""
    codes = torch.empty(count, dtype=torch.int32, device=payload.device)
    launch(_unpack, -(-count // 1024), payload, codes, count, WIDTH=width, BLOCK=1024)
    return codes
