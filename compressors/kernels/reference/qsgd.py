"""QSGD in plain torch; `compressors.quantisation.qsgd_terngrad_onebit.QSGD` documents the payload."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.quotients import divide
from compressors.kernels.reference.primitives.buckets import lane_sums, rows
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import LARGEST, are_scales, norms, round_stochastically


def encode(
    x: torch.Tensor, key: int, levels: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly its length."""
    count, position = 0, 4 * -(-len(x) // bucket)
    for norm, steps in quantise(x, key, levels, bucket, euclidean):
        write_floats(norm, payload[4 * count : 4 * (count + len(norm))])
        count += len(norm)
        codes = pack(steps + levels, width)
        payload[position : position + codes.numel()] = codes.flatten()
        position += codes.numel()


def quantise(
    x: torch.Tensor, key: int, levels: int, bucket: int, euclidean: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the norms of buckets (b,) and their elements as signed levels (b, length) int64."""
    for numbers, part in rows(x, bucket):
        norm = _norm(part, euclidean)
        yield norm, _round(part, norm, levels, draws(key, numbers, part.shape[1]))


def _norm(part: torch.Tensor, euclidean: bool) -> torch.Tensor:
    """Return as `scales.norms`, but for the order of the sum."""
    norm = norms(part, False)
    if not euclidean:
        return norm
    return torch.where(norm.isnan(), norm, lane_sums(part.double().square()).clamp(max=LARGEST**2).sqrt().float())


def _round(part: torch.Tensor, norm: torch.Tensor, levels: int, random: torch.Tensor) -> torch.Tensor:
    divisor = torch.where(norm > 0, norm, 1.0)[:, None]
    exact = torch.where(norm.isnan()[:, None], 0.0, part.abs() / divisor * levels)
    # not by part < 0: a denormal may count as zero in a comparison, and has a sign bit all the same
    return torch.where(part.signbit(), -1, 1) * round_stochastically(exact, random)


def decode_add(payload: torch.Tensor, levels: int, width: int, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Compute out += weight * Q(x), for `out` (n,) float32. Return False where no `encode` wrote the content."""
    position = 4 * -(-len(out) // bucket)
    for numbers, part in rows(out, bucket):
        norm = read_floats(payload[4 * int(numbers[0]) : 4 * int(numbers[-1]) + 4])
        if not are_scales(norm):
            return False
        length = -(-part.shape[1] * width // 8)
        codes = payload[position : position + len(part) * length].view(len(part), length)
        position += codes.numel()
        steps = unpack(codes, part.shape[1], width) - levels
        if (steps > levels).any():
            return False
        part += (norm.double() * weight).float()[:, None] * divide(steps.float(), levels)
    return True
