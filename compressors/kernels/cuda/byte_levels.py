"""Decode bytes that stand for levels in Triton; `reference.byte_levels` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import decode_tiles, tile
from compressors.kernels.cuda.scales import add_to, factor_of, read_codes, read_scales


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight", "top"])
def _decode_add(
    payload,
    out,
    wrong,
    count,
    bucket,
    across,
    header,
    weight,
    levels,
    top,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    scale, bad = read_scales(payload, number, real)
    code = read_codes(payload, number, inside, exists, across, header, count, bucket, WIDTH, WORDS)
    add_to(out, index, exists, factor_of(scale, weight)[:, None] * tl.load(levels + code))
    above = tl.max(tl.max(((code & 127) > top).to(tl.int32), axis=1), axis=0)
    tl.store(wrong, 1, mask=(bad > 0) | (above > 0))


def decode_add(
    payload: torch.Tensor, levels: torch.Tensor, top: int, bucket: int, weight: float, out: torch.Tensor
) -> bool:
    return decode_tiles(_decode_add, payload, bucket, weight, out, levels, top, WIDTH=8)
