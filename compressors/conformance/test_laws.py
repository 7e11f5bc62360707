"""What every compressor promises about Q (`compressors.base.Law`), measured: bias, error, independence, size."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compressors import Compressor, Key, Law, build
from compressors.conformance.cases import (
    CASES,
    MATRIX,
    critical_z,
    every_compressor,
    fresh,
    gaussian,
    in_turn,
    key,
    largest_deviation,
    one_hot,
)
from compressors.sparsification.sparsifier import Sparsifier

Values = dict[str, Callable[[tuple[int, ...]], torch.Tensor]]

DRAWS = 500
ROUNDING = 1e-5
"""Of float32, relative to ||x||; the worst are products of factors."""
GRAIN = 2.0**-148
"""Of float32 in its denormals, for each element: two roundings."""
BY_CHANCE = 5.5
"""Standard errors: once in 3 * 10^7 tests."""


def draws(compressor: Compressor, x: torch.Tensor, keys: list[Key]) -> torch.Tensor:
    """Q(x) for each key: (len(keys), numel)."""
    return torch.stack([sent(fresh(compressor), x, one).reshape(-1) for one in keys])


def sent(compressor: Compressor, x: torch.Tensor, one: Key) -> torch.Tensor:
    """Q(x)."""
    return compressor.decompress(compressor.compress(x, one), x, one)


def is_covered(compressor: Compressor, x: torch.Tensor) -> bool:
    """The law speaks of tensors like this one."""
    sizes = x.abs()[x != 0]
    return bool(((sizes >= compressor.smallest) & (sizes <= compressor.largest)).all())


# Bias


@every_compressor
def test_unbiased_means_unbiased(compressor: Compressor) -> None:
    """z-test of E[<d, Q(x)>] = <d, x> in 60 directions d; a correct compressor fails once in 10^6 runs."""
    for shape in (MATRIX, (300,)):
        if not compressor.law(shape).unbiased:
            continue
        x = gaussian(shape, 1) * torch.linspace(0.01, 1.0, math.prod(shape)).view(shape)
        z, error = bias(compressor, x)
        assert z < critical_z(2 * 60 * len(CASES))
        assert error < ROUNDING


def bias(compressor: Compressor, x: torch.Tensor) -> tuple[float, float]:
    """Largest |z| of the bias in 60 directions, random signs on all elements or on a tenth of them; and
    the largest relative error in the directions in which Q(x) does not vary at all."""
    directions = gaussian((x.numel(), 60), 2).double().sign()
    directions[:, 30:] *= torch.rand(x.numel(), 30, generator=torch.Generator().manual_seed(3)) < 0.1
    samples = draws(compressor, x, [key(step) for step in range(DRAWS)]).double() @ directions
    expected = x.reshape(-1).double() @ directions
    constant = samples.std(0) <= 1e-5 * samples.abs().mean()
    error = ((samples.mean(0) - expected).abs() / expected.abs().mean())[constant]
    return largest_deviation(samples, expected), float(error.max()) if len(error) else 0.0


def test_the_test_of_bias_finds_a_bias() -> None:
    x = gaussian(MATRIX, 1)
    z, error = bias(build("truncated_svd"), x)
    assert z > 100 or error > 0.01

    class Shrinking(type(build("qsgd"))):  # type: ignore[misc]
        def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
            super().decompress_add(payload, out, key, 0.95 * weight)

    assert bias(Shrinking(), x)[0] > critical_z(2 * 60 * len(CASES))


# Errors

HARD: Values = {
    "normal": gaussian,
    "heavy-tailed": lambda shape: gaussian(shape) / gaussian(shape, 1).abs().clamp(min=1e-3),
    "all equal": lambda shape: torch.full(shape, -0.7),
    "one-hot": one_hot,
    "almost one-hot": lambda shape: one_hot(shape) + 1e-4,
    "two sizes": lambda shape: torch.where(gaussian(shape, 2) > 1, 1.0, 0.01),
}
ENDS: Values = {
    "denormal": lambda shape: gaussian(shape) * 1e-40,
    "smallest": lambda shape: torch.full(shape, 1e-45),
    "1e30": lambda shape: gaussian(shape) * 1e30,
    "huge and tiny": lambda shape: gaussian(shape) * torch.logspace(-40, 30, math.prod(shape)).view(shape),
}
SHAPES: dict[tuple[int, ...], list[str]] = {  # with most values where most can go wrong
    (1,): [*HARD, *ENDS],
    (1, 1): [*HARD, *ENDS],
    (300,): [*HARD, *ENDS],
    (1500,): ["normal", "heavy-tailed", "huge and tiny"],
    MATRIX: [*HARD, *ENDS],
    (8, 3, 3, 3): ["normal", "two sizes", "almost one-hot", "denormal"],
}
KEYS = [key(step) for step in range(48)]
FEW_KEYS = KEYS[:8]


@every_compressor
@in_turn(shape=list(SHAPES))
def test_the_law_holds_for_hard_tensors(compressor: Compressor, shape: tuple[int, ...]) -> None:
    """Also at both ends of float32; where a law says nothing, Q(x) is at least a number, and not of another size."""
    is_random = draws_numbers(compressor, shape)
    for name in SHAPES[shape]:
        x = {**HARD, **ENDS}[name](shape)
        keys = KEYS if name in HARD and len(x) > 1 else FEW_KEYS
        q = draws(compressor, x, keys if is_random else keys[:2])
        beyond = (x.abs() > compressor.largest).view(-1)
        assert q[:, ~beyond].isfinite().all(), name
        if beyond.any():  # they arrive as Inf, those that are sent
            is_sent = draws(compressor, torch.ones(shape), keys[: len(q)]) != 0
            assert (q.isinf() == (beyond & is_sent)).all() and not q[~is_sent].any(), name
        if is_covered(compressor, x):
            check_law(compressor.law(shape), x, q, is_random, name)
        if not (compressor.scale_free or beyond.any()):
            # No more than a budget of 0.4 spread over 24 atoms can blow one up, or one level all elements.
            assert q.double().norm(dim=1).max() <= 1e3 * x.double().norm(), name


def check_law(law: Law, x: torch.Tensor, q: torch.Tensor, is_random: bool, name: str = "") -> None:
    """E ||Q(x) - x||^2 against omega and delta, and E <x, Q(x)> = ||x||^2 where that follows: the means over draws
    `q` (draws, n) may be off by chance. Where Q draws nothing the law holds for this very x."""
    exact = x.reshape(-1).double()
    energy = float(exact.square().sum())
    errors = (q.double() - exact).square().sum(1)
    mean = float(errors.mean())
    rounding = ROUNDING * math.sqrt(energy) + GRAIN * math.sqrt(x.numel())
    spread = float(errors.std()) if is_random else 0.0

    def allowed(constant: float, spread: float) -> float:
        return (math.sqrt(constant * energy) + rounding) ** 2 + BY_CHANCE * spread / math.sqrt(len(errors))

    if law.omega is not None:
        assert mean <= allowed(law.omega, spread), name
    if law.delta is not None:
        assert 0 < law.delta <= 1
        # One element can be all of x, and kept so seldom that no draw has seen it: an error between 0 and
        # ||x||^2 whose mean is 1 - delta of that deviates by at most this (Bhatia and Davis, 2000).
        rare = math.sqrt(law.delta * (1 - law.delta)) * energy if is_random else 0.0
        assert mean <= allowed(1 - law.delta, max(spread, rare)), name
    if law.kappa is not None:
        assert math.sqrt(float(errors.max())) <= law.kappa + rounding, name
    if law.unbiased and energy:
        along = (q.double() / math.sqrt(energy)) @ (exact / math.sqrt(energy))
        # As above, rare draws may not have been seen; the variance along x is at most omega.
        spread = max(float(along.std()), math.sqrt(law.omega or 0.0)) if is_random else 0.0
        by_chance = BY_CHANCE * spread / math.sqrt(len(along))
        assert abs(float(along.mean()) - 1.0) <= by_chance + rounding / math.sqrt(energy), name


@functools.cache
def draws_numbers(compressor: Compressor, shape: tuple[int, ...]) -> bool:
    """Whether Q of a tensor with some equal elements, and some zeros, depends on the key."""
    x = (4 * gaussian(shape, 11)).round()
    return len({bytes(fresh(compressor).compress(x, key(step)).tolist()) for step in range(0, 40, 2)}) > 1


@every_compressor
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, -0.0, 0.5])), min_size=1),
    exponent=st.sampled_from([0, -130, 90]),
    step=st.integers(0, 1000),
)
def test_the_law_holds_for_all_tensors(compressor: Compressor, values: list[float], exponent: int, step: int) -> None:
    """Of methods that draw, the mean over some draws: no law is one of every draw."""
    x = (torch.tensor(values).double() * 2.0**exponent).float()
    law = compressor.law(x.shape)
    if law != Law() and is_covered(compressor, x):
        is_random = draws_numbers(compressor, MATRIX)
        keys = [key(step + number) for number in range(0, 24, 2)]
        check_law(law, x, draws(compressor, x, keys if is_random else keys[:2]), is_random)


@every_compressor
def test_what_is_sent_grows_with_the_tensor(compressor: Compressor) -> None:
    """Q(2^e x) = 2^e Q(x) for the same key, down to denormals, whatever the law; but for fixed thresholds. So what
    holds for one size, also without a law, holds for all.

    Up to a tenth: denormals have few bits for the cells of a quantile sketch.
    """
    keys = [key(step) for step in range(8)]
    for shape in (MATRIX, (600,)):
        if promised(compressor, shape).kappa is not None:
            continue
        x = (gaussian(shape, 8) * 16).round() / 16  # few bits, so that denormals hold them
        expected = draws(compressor, x, keys).double()
        assert expected.any() or not is_covered(compressor, x)
        for exponent in (-130, 98):
            scaled = (x.double() * 2.0**exponent).float()
            if is_covered(compressor, x) and is_covered(compressor, scaled):
                found = draws(compressor, scaled, keys).double()
                found *= 1.0 if compressor.scale_free else 2.0**-exponent
                assert (found - expected).norm() <= 0.1 * expected.norm(), (shape, exponent)


def promised(compressor: Compressor, shape: tuple[int, ...]) -> Law:
    """The law, of a sparsifier the one of its selection: what becomes of the values is another question."""
    return compressor.selection_law(math.prod(shape)) if isinstance(compressor, Sparsifier) else compressor.law(shape)


# Independence

PAIRS = 60
FIELDS = ("seed", "worker", "step", "unit")


@every_compressor
def test_errors_of_different_keys_are_independent(compressor: Compressor) -> None:
    """z-test; a correct compressor fails once in 10^6 runs of the whole suite."""
    x = gaussian(MATRIX, 4)
    if torch.equal(*draws(compressor, x, [key(0), key(2)])):
        pytest.skip("not random")
    found = dependence(compressor, x)
    if compressor.shared_draws:
        assert torch.equal(*draws(compressor, x, [key(worker=0), key(worker=1)]))
        del found["worker"]
    assert max(found.values()) < critical_z(len(FIELDS) * len(CASES))


def dependence(compressor: Compressor, x: torch.Tensor) -> dict[str, float]:
    """|z| of how much more alike the errors of two keys are that differ in this field only, than those of any two.

    The cosines of those say what chance does, and how far it goes.
    """

    def directions(keys: list[Key]) -> torch.Tensor:
        return torch.nn.functional.normalize((draws(compressor, x, keys) - x.reshape(-1)).double())

    keys = [key(2 * step, seed=3, worker=3, unit=3) for step in range(PAIRS)]  # of one sign, with values=mean
    errors = directions(keys)
    found = {}
    for field in FIELDS:
        cosines = errors @ directions([dataclasses.replace(k, **{field: 1000 + getattr(k, field)}) for k in keys]).T
        others = cosines[~torch.eye(PAIRS, dtype=torch.bool)]
        excess = cosines.diagonal().mean() - others.mean()
        found[field] = float(excess.abs() / others.std()) * math.sqrt(PAIRS)
    return found


@pytest.mark.parametrize("shared", [0.3, 1.0])
def test_the_test_of_independence_finds_a_dependence(shared: float) -> None:
    qsgd = build("qsgd", bucket_size=48)
    assert qsgd.payload_size(MATRIX) == 20 * (4 + 24)

    class SameOnAllWorkers(type(qsgd)):  # type: ignore[misc]
        def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
            payload = super().compress(x, key, out)
            end = 80 + int(20 * shared) * 24
            payload[80:end] = super().compress(x, dataclasses.replace(key, worker=0))[80:end]
            return payload

    found = dependence(SameOnAllWorkers(bucket_size=48), gaussian(MATRIX, 4))
    assert found.pop("worker") > 2 * critical_z(len(FIELDS) * len(CASES))
    assert max(found.values()) < critical_z(len(FIELDS) * len(CASES))
