"""Upper quantiles of the distributions that SIDCo fits to magnitudes, in closed form.

Each function takes moments of a sample of non-negative numbers, and returns the value that a part `share` of the fitted
distribution exceeds. Gradients have heavy tails, and only the moments are known: this is an initial estimate, not a
test of the fit. If all numbers of a sample are equal, every quantile is their mean.
"""

from __future__ import annotations

import math
import statistics


def fit_exponential(mean: float, share: float) -> float:
    """Return mean * log(1 / share), the quantile of |x| for a Laplace distribution (Abdelmoniem et al., MLSys 2021,
    Corollary 1.1)."""
    return mean * -math.log(share)


def fit_gamma(mean: float, mean_of_logs: float, share: float) -> float:
    """Return the quantile of |x| for a double gamma distribution (Corollary 1.2), never below zero.

    With s = log(mean) - mean(log) the shape is a = (3 - s + sqrt((s - 3)^2 + 24 s)) / (12 s), the scale mean / a,
    and the quantile -scale * (log(share) + log Gamma(a)). That is the upper end of the distribution for shapes up
    to one, which is what gradients have; for larger ones, where it fails, it is the approximation of Wilson and
    Hilferty (1931), mean * (1 - 1 / (9 a) + z / (3 sqrt(a)))^3 with the normal quantile z.
    """
    s = math.log(mean) - mean_of_logs
    if s < 1e-12:
        return mean
    shape = (3.0 - s + math.sqrt((s - 3.0) ** 2 + 24.0 * s)) / (12.0 * s)
    if shape <= 1.0:
        return max(0.0, -mean / shape * (math.log(share) + math.lgamma(shape)))
    z = -statistics.NormalDist().inv_cdf(share)
    return mean * max(0.0, 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))) ** 3


def fit_generalised_pareto(mean: float, mean_of_squares: float, share: float) -> float:
    """Return the quantile of |x| for a double generalised Pareto distribution, by two moments (Corollary 1.3).

    With the variance v the shape is a = (1 - mean^2 / v) / 2, the scale b = mean (mean^2 / v + 1) / 2, and the
    quantile b / a * (share^-a - 1): for a = 0, an exponential distribution, b * log(1 / share).
    """
    variance = mean_of_squares - mean * mean
    if variance <= 1e-12 * mean_of_squares:
        return mean
    ratio = mean * mean / variance
    shape, scale, stretch = 0.5 * (1.0 - ratio), 0.5 * mean * (ratio + 1.0), -math.log(share)
    return scale * stretch if abs(shape) < 1e-12 else scale * math.expm1(shape * stretch) / shape
