"""Compressors as they are usually written: the formulas of the papers as eager torch operations, on the CPU.

Usual means: one operation after the other, each with a result of its own, as in the public collections of
compressors; what was sparse is decoded into a dense tensor first, which is then added to the mean. The comparison
is fair in what travels: the payload has as many bits per element as ours (codes are packed where ours are), and
nothing is computed twice. `Eager.encode` makes the payload of `x`; `Eager.decode` adds what it says to `out`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch


@dataclasses.dataclass
class Eager:
    """One method at work on one flat gradient."""

    x: torch.Tensor
    out: torch.Tensor
    write: Callable[[torch.Tensor], tuple[Any, ...]]
    read: Callable[..., object]
    payload: tuple[Any, ...] = ()

    def encode(self) -> None:
        self.payload = self.write(self.x)

    def decode(self) -> None:
        self.read(self.out, *self.payload)


def pack(codes: torch.Tensor, width: int) -> torch.Tensor:
    """uint8 codes of 1, 2 or 4 bits, several to a byte."""
    many = 8 // width
    groups = torch.nn.functional.pad(codes, (0, -len(codes) % many)).view(-1, many)
    packed = groups[:, 0].clone()
    for place in range(1, many):
        packed |= groups[:, place] << place * width
    return packed


def unpack(packed: torch.Tensor, width: int, count: int) -> torch.Tensor:
    """The inverse of `pack`."""
    parts = [(packed >> place * width) & ((1 << width) - 1) for place in range(8 // width)]
    return torch.stack(parts, 1).view(-1)[:count]


def _rows(x: torch.Tensor, bucket: int) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, -len(x) % bucket)).view(-1, bucket)


# Quantisers


def write_qsgd(x: torch.Tensor, levels: int = 7, bucket: int = 512) -> tuple[Any, ...]:
    """Stochastic rounding to levels of a bucket's largest magnitude."""
    rows = _rows(x, bucket)
    norms = rows.abs().amax(1, keepdim=True)
    exact = rows.abs() / norms.clamp_min(1e-30) * levels
    level = exact.floor()
    level += torch.rand_like(exact) < exact - level
    return pack((rows.sign() * level + levels).to(torch.uint8).view(-1), 4), norms


def read_qsgd(out: torch.Tensor, codes: torch.Tensor, norms: torch.Tensor, levels: int = 7, bucket: int = 512) -> None:
    rows = (unpack(codes, 4, 2 * len(codes)).float() - levels).view(-1, bucket) * (norms / levels)
    out += rows.view(-1)[: len(out)]


def write_terngrad(x: torch.Tensor, clip: float = 2.5) -> tuple[Any, ...]:
    """Clipped at 2.5 standard deviations, then -1, 0 or 1 times the largest magnitude."""
    bound = clip * x.std()
    clipped = x.clamp(-bound, bound)
    scale = clipped.abs().max()
    kept = torch.rand_like(x) * scale < clipped.abs()
    return pack((clipped.sign() * kept + 1).to(torch.uint8), 2), scale


def read_terngrad(out: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> None:
    out += (unpack(codes, 2, len(out)).float() - 1) * scale


def write_natural(x: torch.Tensor) -> tuple[Any, ...]:
    """A sign and the exponent, one higher with the probability that the mantissa says: 8 bits, the exponent from
    -110 to 16, less is zero."""
    bits = x.view(torch.int32)
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    exponent = exponent + (torch.randint_like(bits, 1 << 23) < mantissa)
    codes = (exponent - 16).clamp(0, 127)
    return (torch.where(x < 0, codes + 128, codes).to(torch.uint8),)


def read_natural(out: torch.Tensor, codes: torch.Tensor) -> None:
    exponent = (codes & 127).int()
    sizes = torch.where(exponent > 0, ((exponent + 16) << 23).view(torch.float32), 0.0)
    out += torch.where(codes > 127, -sizes, sizes)


def write_int8(x: torch.Tensor, bucket: int = 512) -> tuple[Any, ...]:
    """Rounded to 256 levels from the least to the largest element of a bucket."""
    rows = _rows(x, bucket)
    low, high = torch.aminmax(rows, dim=1, keepdim=True)
    step = (high - low) / 255
    return ((rows - low) / step.clamp_min(1e-30)).round().to(torch.uint8), low, step


def read_int8(out: torch.Tensor, codes: torch.Tensor, low: torch.Tensor, step: torch.Tensor) -> None:
    out += (codes.float() * step + low).view(-1)[: len(out)]


def write_onebit(x: torch.Tensor, bucket: int = 2048) -> tuple[Any, ...]:
    """Which elements of a bucket are negative, their mean and that of the others."""
    rows = _rows(x, bucket)
    negative = rows < 0
    count = negative.sum(1, keepdim=True)
    below = (rows * negative).sum(1, keepdim=True)
    above = rows.sum(1, keepdim=True) - below
    sizes = torch.full_like(count, bucket)
    sizes[-1] = len(x) - bucket * (len(rows) - 1)
    means = above / (sizes - count).clamp_min(1), below / count.clamp_min(1)
    return pack(negative.to(torch.uint8).view(-1), 1), *means


def read_onebit(
    out: torch.Tensor, codes: torch.Tensor, above: torch.Tensor, below: torch.Tensor, bucket: int = 2048
) -> None:
    negative = unpack(codes, 1, 8 * len(codes)).bool().view(-1, bucket)
    out += torch.where(negative, below, above).view(-1)[: len(out)]


# Signs


def write_sign(x: torch.Tensor) -> tuple[Any, ...]:
    """Which elements are not negative."""
    return (pack((x >= 0).to(torch.uint8), 1),)


def read_sign(out: torch.Tensor, codes: torch.Tensor) -> None:
    out += unpack(codes, 1, len(out)).float() * 2 - 1


def write_sign_norm(x: torch.Tensor) -> tuple[Any, ...]:
    """The same with the mean magnitude."""
    return pack((x >= 0).to(torch.uint8), 1), x.abs().mean()


def read_sign_norm(out: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> None:
    out += (unpack(codes, 1, len(out)).float() * 2 - 1) * scale


# Sparsifiers: int32 indices and float32 values


def _at(x: torch.Tensor, indices: torch.Tensor) -> tuple[Any, ...]:
    return indices.to(torch.int32), x[indices]


def read_sparse(out: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    out += torch.zeros_like(out).index_copy(0, indices.long(), values)


def write_topk(x: torch.Tensor, ratio: float = 0.01) -> tuple[Any, ...]:
    """The largest magnitudes, by torch.topk."""
    return _at(x, torch.topk(x.abs(), math.ceil(ratio * len(x)), sorted=False).indices)


def write_randomk(x: torch.Tensor, ratio: float = 0.01) -> tuple[Any, ...]:
    """The first of a random permutation, so that none comes twice; the seed is shared, so only values travel."""
    indices = torch.randperm(len(x))[: math.ceil(ratio * len(x))]
    return indices, x[indices]


def write_thresholdv(x: torch.Tensor, threshold: float = 1e-3) -> tuple[Any, ...]:
    """All magnitudes from a threshold on."""
    return _at(x, (x.abs() >= threshold).nonzero().view(-1))


def write_adaptive_threshold(x: torch.Tensor) -> tuple[Any, ...]:
    """All that are at least half as large as the largest."""
    sizes = x.abs()
    return _at(x, (2 * sizes >= sizes.max()).nonzero().view(-1))


def write_dgc(
    x: torch.Tensor, ratio: float = 0.001, sample_ratio: float = 0.01, upper: float = 1.3, lower: float = 0.8
) -> tuple[Any, ...]:
    """A threshold from a strided sample, moved until about the right number is kept; too many are thinned exactly."""
    wanted = math.ceil(ratio * len(x))
    stride = round(1 / sample_ratio)
    sample = x[int(torch.randint(stride, ())) :: stride].abs()
    threshold = torch.topk(sample, max(1, math.ceil(ratio * len(sample))), sorted=False).values.min()
    mask = x.abs() >= threshold
    indices = mask.nonzero().view(-1)
    for _ in range(10):
        if len(indices) > upper * wanted:
            indices = indices[torch.topk(x[indices].abs(), wanted, sorted=False).indices]
        elif len(indices) < lower * wanted:
            threshold = threshold * lower
            mask = x.abs() >= threshold
            indices = mask.nonzero().view(-1)
        else:
            break
    return _at(x, indices)


FLAT: dict[str, tuple[Callable[[torch.Tensor], tuple[Any, ...]], Callable[..., object]]] = {
    "qsgd": (write_qsgd, read_qsgd),
    "terngrad": (write_terngrad, read_terngrad),
    "natural": (write_natural, read_natural),
    "int8": (write_int8, read_int8),
    "onebit": (write_onebit, read_onebit),
    "sign": (write_sign, read_sign),
    "sign_norm": (write_sign_norm, read_sign_norm),
    "topk": (write_topk, read_sparse),
    "dgc": (write_dgc, read_sparse),
    "thresholdv": (write_thresholdv, read_sparse),
    "adaptive_threshold": (write_adaptive_threshold, read_sparse),
    "randomk": (write_randomk, read_sparse),
}
"""By method: what writes the payload of a flat tensor and what reads it."""


# Layers


class LayerSVD:
    """ATOMO's spectral sparsification with torch.linalg.svd of every layer, `rank` atoms in expectation."""

    def __init__(self, layers: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], rank: int = 3) -> None:
        self.matrices = [layer.view(layer.shape[0], -1) for layer in layers]
        self.outs = [out.view(out.shape[0], -1) for out in outs]
        self.rank = rank
        self.atoms: list[tuple[torch.Tensor, torch.Tensor]] = []

    def encode(self) -> None:
        self.atoms = []
        for matrix in self.matrices:
            left, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
            p = (self.rank * sigma / sigma.sum()).clamp_max(1)
            kept = torch.rand_like(p) < p
            self.atoms.append((left[:, kept] * (sigma / p)[kept], right[kept]))

    def decode(self) -> None:
        for out, (left, right) in zip(self.outs, self.atoms, strict=True):
            out.addmm_(left, right)


class LayerPowerSGD:
    """The arithmetic of torch's PowerSGD hook for DistributedDataParallel with a warm start, without
    communication and error feedback: matrices one by one, Q orthogonalised too, Gram-Schmidt by columns."""

    def __init__(self, layers: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], rank: int = 2) -> None:
        matrices = [layer.view(1, layer.shape[0], -1) for layer in layers]
        self.pairs = list(zip(matrices, outs, strict=True))
        self.ps = [torch.empty(1, matrix.shape[1], rank) for matrix in matrices]
        self.qs = [torch.randn(1, matrix.shape[2], rank) for matrix in matrices]

    def encode(self) -> None:
        for (matrix, _), p, q in zip(self.pairs, self.ps, self.qs, strict=True):
            orthogonalise(q)
            torch.bmm(matrix, q, out=p)
        for (matrix, _), p, q in zip(self.pairs, self.ps, self.qs, strict=True):
            orthogonalise(p)
            torch.bmm(matrix.transpose(1, 2), p, out=q)

    def decode(self) -> None:
        for (matrix, out), p, q in zip(self.pairs, self.ps, self.qs, strict=True):
            torch.bmm(p, q.transpose(1, 2), out=out.view(matrix.shape))


def orthogonalise(matrices: torch.Tensor) -> None:
    """Gram-Schmidt on the columns of (1, rows, rank), in place."""
    for place in range(matrices.shape[2]):
        column = matrices[:, :, place : place + 1]
        column /= torch.linalg.vector_norm(column)
        rest = matrices[:, :, place + 1 :]
        if rest.shape[2]:
            rest -= (column * rest).sum(1, keepdim=True) * column
