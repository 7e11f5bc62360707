"""SIDCo: find a threshold by fitting distributions in stages, each to the elements above the previous threshold."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from compressors.kernels import backend
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import counts, magnitudes, sidco_fits
from compressors.sparsification.sparsifier import RatioSparsifier
from compressors.unit_state import Stateful
from gradsweep.options.parameters import InvalidParameter, choice, integer, number


@dataclasses.dataclass(frozen=True)
class SIDCo(RatioSparsifier, Stateful):
    """About k elements, those above a threshold that a few statistics give (Abdelmoniem et al., "An efficient
    statistical-based gradient compression technique for distributed training systems", MLSys 2021).

    A distribution is fitted to |x|, and its quantile for the share k / n is the threshold. As one distribution
    does not fit body and tail, M stages do it: the first has the share `first_ratio`, each of the others
    (k / n / first_ratio)^(1 / (M - 1)), and fits the excess over the threshold t of the stage before, of the
    elements that reach t: the next threshold is t plus the quantile of that. Where k / n >= `first_ratio` there is
    one stage. `distribution` is what is fitted (see `fits`):

        exponential      in all stages, by the mean
        gpareto          generalised Pareto in all stages, by mean and variance
        gamma_gpareto    gamma in the first stage, by the mean and the mean logarithm of the elements that are not
                         zero, with the share increased accordingly; generalised Pareto in the others

    M starts at `stages`. Every `adapt_every` steps the mean number of elements that were kept is
    compared with k: above (1 + `tolerance`) k, M is reduced by one; below (1 - `tolerance`) k, increased; it
    stays between 1 and `max_stages` (null: log2(n / k), rounded up). null for `adapt_every` leaves M as it is.
    That is the paper's rule, and all of `adapt: paper`. It takes more stages to keep more, which is so where the tail
    is lighter than what is fitted. Where it is heavier, more stages keep less, and the rule stays at one stage with
    several times k. So `adapt: reversing` turns it round, until the next time, where M cannot go the way it says, or
    has gone it and there are still too many elements and more of them, or still too few and fewer.
    State per unit: M, the steps since the last adaptation, and the elements kept in them; with `reversing`, 1 or -1
    for the rule as it is or turned round, and the share of k before M was last changed (0: it was left as it is).

    What is sent is all that reaches the last threshold, or the largest element where none does. k is `ratio` of n by
    the rule `count` (see `counts`); where k = n all are sent.

    Payload and values: see `Sparsifier`. Where there are NaN or Inf nothing can be estimated, and exactly the k
    largest are sent, NaN before Inf before numbers.
    """

    name: ClassVar[str] = "sidco"
    paper: ClassVar[str] = "Abdelmoniem et al., SIDCo, MLSys 2021"
    remembers: ClassVar[tuple[str, ...]] = ("stages", "steps", "kept", "direction", "before")
    optional: ClassVar[tuple[str, ...]] = ("direction", "before")

    count: str = counts.rule("at_least_one_floor")
    distribution: str = choice("exponential", "exponential", "gamma_gpareto", "gpareto")
    first_ratio: float = number(0.25, low=0, high=1, above=True)
    stages: int = integer(1, low=1, high=64)
    max_stages: int | None = integer(None, low=1, high=64, optional=True)
    adapt_every: int | None = integer(5, low=1, optional=True)
    tolerance: float = number(0.2, low=0, high=1)
    adapt: str = choice("reversing", "reversing", "paper")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_stages is not None and self.stages > self.max_stages:
            raise InvalidParameter("stages", self.stages, f"an integer up to max_stages={self.max_stages}")

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        kernels, k = backend.load("selection", x.device), self.compute_k(len(x))
        threshold = self._threshold(x, k, key.unit) if k < len(x) else math.nan
        if math.isnan(threshold):
            largest: torch.Tensor = kernels.topk(x, k)
            return largest
        found = magnitudes.Candidates(kernels, x).select_some(magnitudes.bits_of(threshold))
        self._adapt(key.unit, len(found), k, len(x))
        return found

    def _threshold(self, x: torch.Tensor, k: int, unit: int) -> float:
        """Return the threshold of the last stage; NaN if `x` holds NaN or Inf."""
        _, absolute, square = backend.load("sums", x.device).moments(x)
        if not math.isfinite(absolute):
            return math.nan
        if absolute == 0.0:
            return 0.0
        share = k / len(x)
        first = max(share, self.first_ratio)
        others = self._stages(unit, k, len(x)) - 1 if share < self.first_ratio else 0
        if others == 0:
            first = share
        threshold = self._first_threshold(x, absolute, square, first)
        for _ in range(others):
            kernels = backend.load("exceedances", x.device)
            found, excess, squares = kernels.moments_above(x, magnitudes.bits_of(threshold), threshold)
            if found == 0:
                break
            threshold += self._quantile(excess / found, squares / found, (share / first) ** (1.0 / others))
        return threshold

    def _quantile(self, mean: float, mean_of_squares: float, share: float) -> float:
        if self.distribution == "exponential":
            return sidco_fits.fit_exponential(mean, share)
        return sidco_fits.fit_generalised_pareto(mean, mean_of_squares, share)

    def _first_threshold(self, x: torch.Tensor, absolute: float, square: float, share: float) -> float:
        if self.distribution != "gamma_gpareto":
            return self._quantile(absolute / len(x), square / len(x), share)
        nonzero, exponent, mantissa = backend.load("exceedances", x.device).logarithms(x)
        if nonzero == 0 or share * len(x) >= nonzero:
            return 0.0
        logarithms = exponent * math.log(2.0) + math.log(mantissa)
        return sidco_fits.fit_gamma(absolute / nonzero, logarithms / nonzero, share * len(x) / nonzero)

    def _most_stages(self, k: int, n: int) -> int:
        return max(1, math.ceil(math.log2(n / k)) if self.max_stages is None else self.max_stages)

    def _stages(self, unit: int, k: int, n: int) -> int:
        """Return the number of stages M of the unit, for k of n elements."""
        state = self.unit_tensors.get(unit)
        return min(self.stages if state is None else int(state["stages"]), self._most_stages(k, n))

    def _adapt(self, unit: int, kept: int, k: int, n: int) -> None:
        """Record a step in which `kept` elements were sent, and adapt the number of stages M at the end of a period."""
        if self.adapt_every is None:
            return
        state = self.unit_tensors.get(unit, {})
        stages, most = self._stages(unit, k, n), self._most_stages(k, n)
        direction, before = int(state.get("direction", 1)), float(state.get("before", 0.0))
        steps, total = int(state.get("steps", 0)) + 1, int(state.get("kept", 0)) + kept
        if steps >= self.adapt_every:
            share = total / steps / k
            change = int(share < 1.0 - self.tolerance) - int(share > 1.0 + self.tolerance)
            if self.adapt == "reversing" and change:
                worse = share < before < 1.0 if change > 0 else 1.0 < before < share
                if worse or not 1 <= stages + direction * change <= most:
                    direction = -direction
            following = max(1, min(stages + direction * change, most))
            before = share if following != stages else 0.0
            stages, steps, total = following, 0, 0
        named = {"stages": stages, "steps": steps, "kept": total}
        self.unit_tensors[unit] = {name: torch.tensor(value) for name, value in named.items()}
        if self.adapt == "reversing":
            self.unit_tensors[unit]["direction"] = torch.tensor(direction)
            self.unit_tensors[unit]["before"] = torch.tensor(before, dtype=torch.float64)

    def kernel_modules(self) -> tuple[str, ...]:
        return (*super().kernel_modules(), "sums", "exceedances")
