"""QSGD in plain torch; `compressors.quantisation.qsgd_terngrad_onebit.QSGD` documents the payload."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.quotients import divide
from compressors.kernels.reference.primitives.buckets import lane_sums, rows, sections
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import LARGEST, are_scales, norms, round_stochastically


def encode(
    x: torch.Tensor, key: int, levels: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length."""
    quantised = quantise(x, key, levels, bucket, euclidean)
    for (norm, steps), (_, _, head, codes) in zip(quantised, sections(payload, x, bucket, 4, width), strict=True):
        write_floats(norm, head)
        codes.copy_(pack(steps + levels, width))


def quantise(
    x: torch.Tensor, key: int, levels: int, bucket: int, euclidean: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the norms of some buckets (b,), and their elements as signed levels (b, length) int64."""
    for numbers, part in rows(x, bucket):
        norm = _norm(part, euclidean)
        yield norm, _round(part, norm, levels, draws(key, numbers, part.shape[1]))


def _norm(part: torch.Tensor, euclidean: bool) -> torch.Tensor:
    """Return the norms of the rows as `scales.norms` does, but summed in the order of `lane_sums`."""
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
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    for _, part, head, codes in sections(payload, out, bucket, 4, width):
        norm = read_floats(head)
        if not are_scales(norm):
            return False
        steps = unpack(codes, part.shape[1], width) - levels
        if (steps > levels).any():
            return False
        part += (norm.double() * weight).float()[:, None] * divide(steps.float(), levels)
    return True
