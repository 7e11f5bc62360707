"""SIDCo: statistics, fits against the distributions, stages against the formulas of the paper, adaptation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.kernels.cpu import exceedances as compiled
from compressors.kernels.reference import exceedances as plain
from compressors.sparsification import sidco_fits
from compressors.sparsification.magnitudes import bits_of
from compressors.sparsification.sidco import SIDCo
from gradsweep.options.parameters import InvalidParameter


def kept(compressor: SIDCo, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    """The positions that are sent."""
    q = compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))
    assert torch.equal(q, torch.where(q != 0, x, 0.0))
    return q.nonzero().flatten()


def drawn(distribution: str, n: int, seed: int = 0) -> torch.Tensor:
    """Magnitudes of that distribution with random signs."""
    rng = np.random.default_rng(seed)
    values = {
        "exponential": lambda: rng.exponential(size=n),
        "gpareto": lambda: pareto_quantile(0.15, 1.0, rng.random(n)),
        "student": lambda: np.abs(rng.standard_t(3, n)),
        "product": lambda: np.abs(rng.normal(size=(3, n)).prod(0)),
        "normal": lambda: np.abs(rng.normal(size=n)),
        "lomax": lambda: rng.pareto(4.0, n),
        "gamma 0.9": lambda: rng.gamma(0.9, size=n),
        "gamma 0.6": lambda: rng.gamma(0.6, size=n),
    }[distribution]()
    return torch.from_numpy(values).float() * draw_gaussian((n,), seed).sign()


def pareto_quantile(shape: float, scale: float, share: Any) -> Any:
    """What a part `share` of the generalised Pareto distribution exceeds."""
    return scale / shape * (share**-shape - 1)


def gamma_quantile(shape: float, share: float) -> float:
    """What a part `share` of the gamma distribution with scale one exceeds, by bisection."""
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        above = torch.special.gammaincc(torch.tensor(shape).double(), torch.tensor(middle).double())
        low, high = (middle, high) if above > share else (low, middle)
    return low


# Statistics


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.integers(1, 20_000) | st.sampled_from([16, 4095, 4096, 4097, 8192]),
    st.integers(0, 2**32),
    st.sampled_from(["normal", "wide", "sparse"]),
    st.floats(0.0, 3.0),
)
def test_both_implementations_give_the_same_statistics(n: int, seed: int, kind: str, location: float) -> None:
    x = draw_gaussian((n,), seed)
    if kind == "wide":
        x *= torch.logspace(-44, 30, n)
    elif kind == "sparse":
        x *= draw_gaussian((n,), seed + 1) > 1
    found = compiled.moments_above(x, bits_of(location), location)
    assert found == plain.moments_above(x, bits_of(location), location)
    above = x.double().abs()[x.abs() >= location] - location
    above = above[(above + location) > 0]
    assert found[0] == len(above)
    assert math.isclose(found[1], float(above.sum()), rel_tol=1e-9, abs_tol=1e-300)
    assert math.isclose(found[2], float(above.square().sum()), rel_tol=1e-9, abs_tol=1e-300)
    count, exponent, mantissa = compiled.logarithms(x)
    assert (count, exponent, mantissa) == plain.logarithms(x)
    nonzero = x[x != 0].double().abs()
    assert count == len(nonzero) and 1.0 <= mantissa < 2.0
    expected = float(nonzero.log().sum())
    assert math.isclose(exponent * math.log(2) + math.log(mantissa), expected, rel_tol=1e-9, abs_tol=1e-8)


def test_more_chunks_than_one_chunk_of_them() -> None:
    """4096 chunks of 4096 make a second level."""
    x = draw_gaussian((4096 * 4096 + 5000,), 1)
    assert compiled.moments_above(x, bits_of(2.0), 2.0) == plain.moments_above(x, bits_of(2.0), 2.0)
    assert compiled.logarithms(x) == plain.logarithms(x)


def test_powers_of_two_have_exact_logarithms() -> None:
    x = torch.tensor([8.0, -0.25, 0.0, 2.0**-149, 3.0])
    assert compiled.logarithms(x) == (4, 3 - 2 - 149 + 1, 1.5)
    assert compiled.logarithms(torch.zeros(3))[0] == 0


# Fits


@pytest.mark.parametrize("share", [0.5, 0.25, 0.01, 1e-5])
def test_quantiles_are_those_of_the_distributions(share: float) -> None:
    assert math.isclose(math.exp(-sidco_fits.fit_exponential(0.3, share) / 0.3), share, rel_tol=1e-12)
    for shape in (0.4, 0.1, -0.5, -3.0):
        mean = 0.7 / (1 - shape)
        variance = mean**2 / (1 - 2 * shape)
        quantile = sidco_fits.fit_generalised_pareto(mean, variance + mean**2, share)
        assert math.isclose(quantile, pareto_quantile(shape, 0.7, share), rel_tol=1e-9)
    assert math.isclose(
        sidco_fits.fit_generalised_pareto(0.3, 2 * 0.09, share), sidco_fits.fit_exponential(0.3, share), rel_tol=1e-9
    )


@pytest.mark.parametrize(("shape", "error"), [(0.5, 0.35), (0.9, 0.1), (1.0, 0.01), (3.0, 0.02), (30.0, 0.002)])
def test_gamma_quantiles_are_near_those_of_the_distribution(shape: float, error: float) -> None:
    """The closed forms of shape and quantile are approximations; the smaller the shape, the larger the quantile is."""
    logs = math.log(0.2) + float(torch.special.digamma(torch.tensor(shape, dtype=torch.float64)))
    for share in (0.1, 0.01, 0.001):
        quantile = sidco_fits.fit_gamma(0.2 * shape, logs, share)
        assert math.isclose(quantile, 0.2 * gamma_quantile(shape, share), rel_tol=error)


def test_the_formula_of_the_paper_for_gamma() -> None:
    mean, logs, share = 0.8, -0.9, 0.01
    s = math.log(mean) - logs
    shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    assert shape < 1
    expected = -mean / shape * (math.log(share) + math.log(math.gamma(shape)))
    assert math.isclose(sidco_fits.fit_gamma(mean, logs, share), expected, rel_tol=1e-12)
    assert sidco_fits.fit_gamma(1.0, -200.0, 0.25) == 0.0  # where the formula is below zero


def test_a_sample_without_spread_has_one_quantile() -> None:
    for share in (0.9, 0.25, 1e-6):
        assert sidco_fits.fit_generalised_pareto(0.3, 0.3**2, share) == 0.3
        assert sidco_fits.fit_gamma(0.3, math.log(0.3), share) == 0.3


# Stages


def by_the_paper(x: torch.Tensor, k: int, distribution: str, first: float, stages: int) -> float:
    """The threshold, in numpy and with the conditional moments computed from the elements themselves."""
    sizes = np.abs(x.double().numpy())
    share = k / len(sizes)
    if share >= first or stages == 1:
        first, stages = share, 1

    def quantile(part: Any, probability: float) -> float:
        if distribution == "exponential":
            return part.mean() * math.log(1 / probability)
        shape = 0.5 * (1 - part.mean() ** 2 / part.var())
        scale = 0.5 * part.mean() * (part.mean() ** 2 / part.var() + 1)
        return scale / shape * (math.exp(-shape * math.log(probability)) - 1)

    if distribution == "gamma_gpareto":
        some = sizes[sizes > 0]
        s = math.log(some.mean()) - np.log(some).mean()
        shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
        assert shape <= 1
        threshold = -some.mean() / shape * (math.log(first * len(sizes) / len(some)) + math.lgamma(shape))
    else:
        threshold = quantile(sizes, first)
    for _ in range(stages - 1):
        threshold += quantile(sizes[sizes >= threshold] - threshold, (share / first) ** (1 / (stages - 1)))
    return float(threshold)


@pytest.mark.parametrize("distribution", ["exponential", "gpareto", "gamma_gpareto"])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.4])
def test_the_threshold_is_that_of_the_paper(distribution: str, stages: int, ratio: float) -> None:
    for x in (drawn("gamma 0.6", 100_000), drawn("lomax", 100_000) * (draw_gaussian((100_000,), 8) > -1)):
        q = SIDCo(ratio=ratio, distribution=distribution, stages=stages, adapt_every=None)
        expected = by_the_paper(x, int(100_000 * ratio), distribution, 0.25, min(stages, math.ceil(-math.log2(ratio))))
        above = x.abs().double() >= expected
        found = kept(q, x)
        # Only elements within the rounding of the two computations may differ.
        wrong = above.clone()
        wrong[found] ^= True
        assert ((x.abs().double()[wrong] / expected - 1).abs() < 1e-9).all()
        assert len(found) > 10


@pytest.mark.parametrize(
    ("distribution", "source"),
    [("exponential", "exponential"), ("gpareto", "gpareto"), ("gamma_gpareto", "gamma 0.9")],
)
def test_one_stage_is_right_on_its_own_distribution(distribution: str, source: str) -> None:
    x = drawn(source, 1_000_000, 3)
    for ratio in (0.1, 0.01, 0.001):
        count = len(kept(SIDCo(ratio=ratio, distribution=distribution, adapt_every=None), x))
        assert 0.7 < count / (1e6 * ratio) < 1.3


def test_more_stages_are_closer_on_tails_that_are_not_exponential() -> None:
    """Normal numbers, of which 1000 of a million are wanted: one stage keeps next to nothing."""
    x = draw_gaussian((1_000_000,), 4)
    errors = [abs(len(kept(SIDCo(stages=stages, adapt_every=None), x)) / 1000 - 1) for stages in (1, 2, 3, 4)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.99 and errors[-1] < 0.1


@pytest.mark.parametrize("distribution", ["exponential", "gpareto", "gamma_gpareto"])
def test_a_thousand_equal_elements_and_other_hard_cases(distribution: str) -> None:
    q = SIDCo(distribution=distribution, stages=4, adapt_every=None)
    spike = torch.zeros(5000)
    spike[77] = -3.0
    for x in (
        torch.full((5000,), 0.3),
        spike,
        spike + 1e-4,
        draw_gaussian((5000,)) * 1e-40,
        draw_gaussian((5000,)) * 1e37,
    ):
        found = kept(q, x)
        assert len(found) >= 1
        assert x.abs().max() == x[found].abs().max()
    assert kept(q, spike).tolist() == [77]


# Adaptation


@pytest.mark.parametrize("start", [1, 7])
def test_the_number_of_stages_follows_the_number_of_elements(start: int) -> None:
    """Every fifth step: too few elements are answered with one more stage, too many with one less. Of 100 000
    normal numbers, 1, 5, 65, 111, 132, 147 and 158 are kept by so many stages where 100 are wanted: from below
    and from above that leads to four, and stays there."""
    x = draw_gaussian((100_000,), 5)
    q = SIDCo(ratio=0.001, stages=start)
    found = []
    for step in range(20):
        q.compress(x, make_key(step))
        found.append(int(q.unit_tensors[0]["stages"]))
    direction = 1 if start < 4 else -1
    assert found == [start] * 4 + [start + direction] * 5 + [start + 2 * direction] * 5 + [4] * 6


def shares(compressor: SIDCo, x: torch.Tensor, steps: int) -> list[float]:
    """How many elements each step has kept, as a share of k."""
    return [len(kept(compressor, x, step)) / (compressor.ratio * len(x)) for step in range(steps)]


@pytest.mark.parametrize(
    ("distribution", "source", "start", "stuck"),
    [
        ("exponential", "student", 1, 4),
        ("exponential", "student", 2, 4),
        ("exponential", "product", 2, 10),
        ("gpareto", "normal", 1, 5),
        ("gamma_gpareto", "student", 1, 3),
    ],
)
def test_one_stage_with_too_many_elements_is_left(distribution: str, source: str, start: int, stuck: float) -> None:
    """More stages keep less here: the paper's rule ends at one stage and stays there."""
    x = drawn(source, 200_000, 11)
    options: dict[str, Any] = {"distribution": distribution, "stages": start, "adapt_every": 1}
    assert min(shares(SIDCo(adapt="paper", **options), x, 12)[4:]) > stuck
    found = shares(SIDCo(**options), x, 20)
    assert max(found[6:]) < 1.3
    assert 0.7 < sum(found[6:]) / 14 < 1.2


def test_the_rule_is_turned_round_where_it_made_things_worse() -> None:
    """Four stages keep too few elements and five still fewer; three keep somewhat too many, so it swings about k."""
    x = drawn("student", 200_000, 11) * 1e-3
    q = SIDCo(stages=4, adapt_every=1)
    seen = []
    for step in range(8):
        q.compress(x, make_key(step))
        seen.append((int(q.unit_tensors[0]["stages"]), int(q.unit_tensors[0]["direction"])))
    assert seen == [(5, 1), (4, -1), (3, -1), (4, -1), (3, -1), (4, -1), (3, -1), (4, -1)]


def test_a_state_from_before_the_rule_could_turn_is_taken() -> None:
    old = {"0": {name: torch.tensor(value) for name, value in (("stages", 3), ("steps", 1), ("kept", 200))}}
    for adapt in ("paper", "reversing"):
        q = SIDCo(adapt=adapt)
        q.load_state_dict(old)
        q.compress(draw_gaussian((100_000,)), make_key())
        assert int(q.unit_tensors[0]["stages"]) == 3 and ("direction" in q.unit_tensors[0]) == (adapt == "reversing")


def test_what_is_close_enough_changes_nothing() -> None:
    x = drawn("exponential", 100_000, 7)
    q = SIDCo(ratio=0.01)
    assert abs(len(kept(q, x)) / 1000 - 1) < 0.2
    for step in range(1, 12):
        q.compress(x, make_key(step))
    assert {name: int(value) for name, value in q.unit_tensors[0].items()} == {
        "stages": 1,
        "steps": 2,
        "kept": 2 * len(kept(SIDCo(ratio=0.01), x)),
        "direction": 1,
        "before": 0,
    }
    eager = SIDCo(ratio=0.01, tolerance=0.0, adapt_every=1)
    eager.compress(x * (x.abs() < 6), make_key())
    assert int(eager.unit_tensors[0]["stages"]) == 2


def test_the_number_of_stages_has_bounds() -> None:
    few = torch.linspace(0, 1, 100_000)
    for limit, expected in ((None, 7), (3, 3)):
        q = SIDCo(ratio=0.01, adapt_every=1, max_stages=limit, tolerance=0.0, distribution="exponential")
        seen = []
        for step in range(12):
            q.compress(few, make_key(step))
            seen.append(q._stages(0, 1000, 100_000))
        assert max(seen) <= expected
    assert SIDCo(stages=20)._stages(0, 1000, 100_000) == 7
    with pytest.raises(InvalidParameter, match="^stages=20: valid is an integer up to max_stages=9$"):
        SIDCo(stages=20, max_stages=9)
    many = draw_gaussian((100_000,), 5) ** 9
    q = SIDCo(ratio=0.01, adapt_every=1)
    for step in range(4):
        q.compress(many, make_key(step))
        assert int(q.unit_tensors[0]["stages"]) >= 1


def test_units_adapt_on_their_own_and_the_state_can_be_taken_over() -> None:
    q = SIDCo(ratio=0.001, adapt_every=2)
    few = draw_gaussian((50_000,), 5).tanh()
    for step in range(3):
        q.compress(few, make_key(step, unit=1))
    q.compress(few, make_key(3, unit=2))
    assert int(q.unit_tensors[1]["stages"]) == 2 and int(q.unit_tensors[2]["stages"]) == 1
    other = SIDCo(ratio=0.001, adapt_every=2)
    other.load_state_dict(q.state_dict())
    for step in range(4, 9):
        assert torch.equal(other.compress(few, make_key(step, unit=1)), q.compress(few, make_key(step, unit=1)))
    assert str(other.state_dict()) == str(q.state_dict())
    fixed = SIDCo(adapt_every=None)
    fixed.compress(few, make_key())
    assert fixed.state_dict() == {}


@pytest.mark.parametrize("distribution", ["exponential", "gpareto", "gamma_gpareto"])
def test_kernels_agree_over_many_steps(distribution: str) -> None:
    results = []
    for kernels in ("auto", "torch"):
        with backend.use(kernels):
            q = SIDCo(ratio=0.002, adapt_every=2, distribution=distribution)
            results.append([q.compress(draw_gaussian((70_001,), step) ** 3, make_key(step)) for step in range(8)])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
