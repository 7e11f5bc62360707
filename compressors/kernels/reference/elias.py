"""QSGD's levels as streams of Elias codes in plain torch; `compressors.quantisation.qsgd_terngrad_onebit.QSGD`
documents the payload.

Streams are written and read as tensors with an element for every bit. To read them, the symbol that would begin at each
bit is decoded, with its end. Then the bits at which symbols really begin are found by following the ends, twice as far
in every round.
"""

from __future__ import annotations

import math

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.quotients import divide
from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.qsgd import quantise
from compressors.kernels.reference.scales import are_scales

_LONGEST_GROUP = 32
_GROUPS = 6  # of the code of the largest number below 2^_LONGEST_GROUP, with room


def encode(
    x: torch.Tensor, key: int, levels: int, bucket: int, field: int, euclidean: bool, payload: torch.Tensor
) -> int:
    """Write the payload of `x`, (n,) float32, to the beginning of `payload`; returns its length."""
    norms, steps = [x.new_zeros(0)], [torch.zeros(0, dtype=torch.int64, device=x.device)]
    for norm, part in quantise(x, key, levels, bucket, euclidean):
        norms.append(norm)
        steps.append(part.flatten())
    step = torch.cat(steps)
    buckets = -(-len(x) // bucket)
    streams, sizes = _streams(step, bucket, buckets)
    tables = (4 + field) * buckets
    write_floats(torch.cat(norms), payload[: 4 * buckets])
    payload[4 * buckets : tables] = pack(sizes[:, None], 8 * field).flatten()
    payload[tables : tables + len(streams)] = streams
    return tables + len(streams)


def _streams(step: torch.Tensor, bucket: int, buckets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the streams of all buckets one after the other, uint8, and the number of bytes of each."""
    index = step.nonzero().flatten()
    number = index // bucket
    before = torch.cat([index.new_full((1,), -1), index[:-1]])
    before = torch.maximum(before, number * bucket - 1)[: len(index)]
    gap, gap_length = _omega(index - before)
    level, level_length = _omega(step[index].abs())
    code = torch.stack([gap, level << 1 | (step[index] < 0)], 1).flatten()
    length = torch.stack([gap_length, level_length + 1], 1).flatten()
    used = torch.zeros(buckets, dtype=torch.int64, device=step.device)
    used.scatter_add_(0, number, gap_length + level_length + 1)
    sizes = (used + 7) // 8
    # Where each code begins: behind all codes before it, and the padding of all buckets before its own.
    padding = (8 * sizes - used).cumsum(0) - (8 * sizes - used)
    begin = length.cumsum(0) - length + padding[number].repeat_interleave(2)
    item = torch.arange(len(code), device=step.device).repeat_interleave(length)
    place = torch.arange(len(item), device=step.device) - (length.cumsum(0) - length)[item]
    bits = torch.ones(8 * int(sizes.sum()), dtype=torch.int64, device=step.device)
    bits[begin[item] + place] = (code[item] >> place) & 1
    return pack(bits, 1), sizes


def _omega(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the Elias omega codes of all numbers, their first bits lowest, and their lengths."""
    code, length = torch.zeros_like(value), torch.ones_like(value)
    for _ in range(_GROUPS):
        more = value > 1
        bits = (value[:, None] >> torch.arange(_LONGEST_GROUP, device=value.device) > 0).sum(1)
        mirrored = torch.zeros_like(value)
        for place in range(_LONGEST_GROUP):
            mirrored = torch.where(bits > place, mirrored << 1 | (value >> place & 1), mirrored)
        code = torch.where(more, code << bits | mirrored, code)
        length = torch.where(more, length + bits, length)
        value = torch.where(more, bits - 1, value)
    return code, length


def decode_add(payload: torch.Tensor, levels: int, bucket: int, field: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    buckets = -(-len(out) // bucket)
    tables = (4 + field) * buckets
    if len(payload) < tables:
        return False
    norm = read_floats(payload[: 4 * buckets])
    sizes = unpack(payload[4 * buckets : tables].view(buckets, field), 1, 8 * field).flatten()
    streams = payload[tables:]
    fits = bool((sizes <= len(streams)).all()) and int(sizes.sum()) == len(streams)
    if not are_scales(norm) or not fits or sizes[norm.isnan()].any():
        return False
    found = _symbols(unpack(streams, 8 * len(streams), 1), 8 * sizes)
    if found is None:
        return False
    number, gap, level = found
    place = gap.cumsum(0)
    first = torch.searchsorted(number, number)
    place = place - (place - gap)[first] - 1  # in the bucket
    index = number * bucket + place
    if ((place >= bucket) | (index >= len(out)) | (level.abs() > levels)).any():
        return False
    factor = (norm.double() * weight).float()
    for numbers, part in rows(out, bucket):
        part[norm[numbers].isnan()] = math.nan
    out[index] += factor[number] * divide(level.float(), levels)
    return True


def _symbols(bits: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return bucket, gap and level of every symbol in streams of these lengths; None if no encoder can have written
    one.
    """
    total = len(bits)
    ends = lengths.cumsum(0)
    number = torch.arange(len(lengths), device=bits.device).repeat_interleave(lengths)
    end = ends[number]
    at = torch.arange(total, device=bits.device)
    padded = torch.nn.functional.pad(bits, (0, 2 * 64 + 2 * _LONGEST_GROUP), value=1)
    gap, after = _read_omega(padded, at)
    sign = padded[after]
    level, after = _read_omega(padded, after + 1)
    # What is left is padding where it is less than a byte of ones.
    zeros = torch.where(bits == 0, at, -1).cummax(0).values if total else at
    padding = (end - at < 8) & (zeros[end - 1] < at)
    readable = (gap > 0) & (level > 0) & (after <= end) & ~padding
    # Bit `total` stands for the end of all streams. Behind the end of a stream the next one begins.
    jump = torch.cat([torch.where(readable, after, total), at.new_full((1,), total)])
    begins = torch.zeros(total + 1, dtype=torch.bool, device=bits.device)
    begins[(ends - lengths)[lengths > 0]] = True
    for _ in range(total.bit_length()):
        begins[jump[begins.nonzero().flatten()]] = True
        jump = jump[jump]
    begins = begins[:-1]
    if (begins & ~readable & ~padding).any():
        return None
    begins &= readable
    return number[begins], gap[begins], torch.where(sign == 1, -level, level)[begins]


def _read_omega(bits: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers whose codes begin at bits `at`, and the ends of the codes; 0 for an invalid code.

    Numbers are below 2^_LONGEST_GROUP. `bits` must extend far enough after the last of `at`.
    """
    last = len(bits) - 1
    value, done, bad = torch.ones_like(at), torch.zeros_like(at, dtype=torch.bool), torch.zeros_like(at).bool()
    for _ in range(_GROUPS + 1):
        done |= bits[at.clamp(max=last)] == 0
        length = torch.where(done | bad, 0, value + 1)
        bad |= length > _LONGEST_GROUP
        group = torch.zeros_like(at)
        for place in range(_LONGEST_GROUP):
            group = torch.where(place < length, group << 1 | bits[(at + place).clamp(max=last)], group)
        value = torch.where(done | bad, value, group)
        at = torch.where(done | bad, at, at + length)
    return torch.where(done & ~bad, value, 0), (at + 1).clamp(max=last)
