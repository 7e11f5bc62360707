"""Measure laws: compare draws of Q(x) with a method's promises.

All tests share one level: the probability that a method which keeps all its promises fails anywhere. Each of the
`tests` comparisons gets an equal part of it (Bonferroni).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import torch

from compressors.base import Compressor, Law
from compressors.commands import single_worker
from compressors.commands.sample_tensors import SAMPLES, gaussian
from compressors.random_key import Key

SHAPES = ((300,), (24, 40))
DIRECTIONS = 40
_ROUNDING = 1e-6  # of float32, relative to ||x||: the laws hold up to it
_HITS = 50  # a mean of draws counts as normal from about this number of rare events on


@dataclasses.dataclass(frozen=True)
class Level:
    """The level of significance, `error` over all `tests`, at which a deviation counts as a violation."""

    error: float
    tests: int

    @property
    def z(self) -> float:
        """The two-sided normal quantile, in standard errors, at which each of the `tests` is judged."""
        return NormalDist().inv_cdf(1 - self.error / self.tests / 2)

    @property
    def surprise(self) -> float:
        """The bound on -ln of the probability of a chance result, at which each of the `tests` is judged."""
        return -math.log(self.error / self.tests)


def count_comparisons(methods: int) -> int:
    """Return the number of tests for this many methods: the directions, omega and delta, for each input."""
    return methods * len(SHAPES) * len(SAMPLES) * (DIRECTIONS + 2)


@dataclasses.dataclass(frozen=True)
class Draws:
    """Many draws of Q(x) for one x."""

    values: str
    x: torch.Tensor  # (n,) float64
    q: torch.Tensor  # (draws, n) float64
    law: Law

    @property
    def name(self) -> str:
        """The name of the input, for messages."""
        return f"{self.values}, n = {len(self.x)}"

    @property
    def energy(self) -> float:
        """||x||^2."""
        return float(self.x.square().sum())

    def compute_errors(self) -> torch.Tensor:
        """Return ||Q(x) - x||^2 / ||x||^2 of every draw."""
        return (self.q - self.x).square().sum(1) / self.energy


def draw(compressor: Compressor, shape: Sequence[int], values: str, count: int) -> Draws:
    """Return `count` draws of Q for an input, each by a compressor without state."""
    x = SAMPLES[values](shape)
    q = torch.stack(
        [single_worker.quantise(compressor, x, Key(0, 0, step, 0)).view(-1).double() for step in range(1, count + 1)]
    )
    return Draws(values, x.reshape(-1).double(), q, compressor.law(shape))


def measure_bias(draws: Draws, level: Level) -> tuple[float, bool]:
    """Test E[Q(x)] = x along random directions; return the largest |z| found, and whether it is a violation.

    A direction d has random signs, on all elements or on a tenth of them, and the test compares the mean of <d, Q(x)>
    with <d, x>. A direction in which rare events decide is not judged by its z, which would not be normal. If Q is off
    and does not vary in a direction, that is a violation if omega makes so many equal draws too unlikely.
    """
    directions = gaussian((len(draws.x), DIRECTIONS), 4).double().sign()
    directions[:, DIRECTIONS // 2 :] *= gaussian((len(draws.x), DIRECTIONS // 2), 5).abs() > 1.645
    samples, expected = draws.q @ directions, draws.x @ directions
    count = len(samples)
    scale = math.sqrt(draws.energy) * directions.norm(dim=0)
    off = (samples.mean(0) - expected).abs()
    centred = samples - samples.mean(0)
    variance = centred.square().mean(0)
    is_constant = variance.sqrt() <= _ROUNDING * scale
    kurtosis = centred.pow(4).mean(0) / variance.square()
    is_judged = ~is_constant & (kurtosis <= max(3.5, count / _HITS))
    t = (off - _ROUNDING * scale).clamp(min=0) / (variance / (count - 1)).sqrt()
    z = _convert_to_normal(t, count - 1)[is_judged]
    largest = float(z.max()) if len(z) else 0.0
    return largest, largest > level.z or _is_stuck(off, scale, is_constant, draws, level)


def _convert_to_normal(t: torch.Tensor, freedom: int) -> torch.Tensor:
    """Return the normal quantile with the same tail probability as a Student t (Wallace, Ann. Math. Statist. 1959)."""
    return (8 * freedom + 1) / (8 * freedom + 3) * (freedom * (t.square() / freedom).log1p()).sqrt()


def _is_stuck(off: torch.Tensor, scale: torch.Tensor, is_constant: torch.Tensor, draws: Draws, level: Level) -> bool:
    """Tell whether all draws have the same value in a direction, and this value is too far from that of x to be chance.

    If Q has this value with probability 1 - p and is unbiased, its variance is at least off^2 (1 - p) / p. So
    p >= off^2 / (off^2 + omega ||x||^2 ||d||^2), and that many equal draws have the probability (1 - p)^draws.
    """
    wrong = is_constant & (off > 10 * _ROUNDING * scale)
    omega = draws.law.omega
    if omega is None:  # nothing is known of rare events; they play no part where all elements are alike
        return draws.values == "normal" and bool(wrong.any())
    p = off.square() / (off.square() + omega * scale.square())
    return bool((-len(draws.q) * torch.log1p(-p.clamp(max=1 - 1e-12)))[wrong].gt(level.surprise).any())


def measure_excess(draws: Draws, constant: float, level: Level, is_random: bool) -> tuple[float, bool]:
    """Return the mean of ||Q(x) - x||^2 / ||x||^2, and whether it exceeds `constant` by more than chance explains.

    A single element can dominate x and be kept so rarely that it is in none of the draws. An error between 0 and
    ||x||^2 with the mean `constant` has at most the variance of a coin (Bhatia and Davis, 2000).
    """
    errors = draws.compute_errors()
    mean = float(errors.mean())
    spread = float(errors.std())
    if is_random and constant < 1:
        spread = max(spread, math.sqrt(constant * (1 - constant)))
    by_chance = level.z * spread / math.sqrt(len(errors))
    return mean, mean > constant + by_chance + 10 * _ROUNDING
