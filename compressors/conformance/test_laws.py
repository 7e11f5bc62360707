"""Measure what every compressor promises about Q (`compressors.base.Law`): bias, error, independence, size."""

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
    compute_critical_z,
    draw_gaussian,
    every_compressor,
    find_largest_deviation,
    in_turn,
    make_key,
    make_one_hot,
    renew,
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


def draw_all(compressor: Compressor, x: torch.Tensor, keys: list[Key]) -> torch.Tensor:
    """Return Q(x) for each key: (len(keys), numel)."""
    return torch.stack([send(renew(compressor), x, one).reshape(-1) for one in keys])


def send(compressor: Compressor, x: torch.Tensor, one: Key) -> torch.Tensor:
    """Return Q(x)."""
    return compressor.decompress(compressor.compress(x, one), x, one)


def is_covered(compressor: Compressor, x: torch.Tensor) -> bool:
    """Tell whether the law speaks of tensors like this one."""
    sizes = x.abs()[x != 0]
    return bool(((sizes >= compressor.smallest) & (sizes <= compressor.largest)).all())


# Bias


@every_compressor
def test_an_unbiased_compressor_has_no_bias(compressor: Compressor) -> None:
    """Do a z-test of E[<d, Q(x)>] = <d, x> in 60 directions d; a correct compressor fails once in 10^6 runs."""
    for shape in (MATRIX, (300,)):
        if not compressor.law(shape).unbiased:
            continue
        x = draw_gaussian(shape, 1) * torch.linspace(0.01, 1.0, math.prod(shape)).view(shape)
        z, error = measure_bias(compressor, x)
        assert z < compute_critical_z(2 * 60 * len(CASES))
        assert error < ROUNDING


def measure_bias(compressor: Compressor, x: torch.Tensor) -> tuple[float, float]:
    """Return the largest |z| of the bias, and the largest relative error where Q(x) does not vary.

    Both are over 60 directions: random signs on all elements, or on a tenth of them.
    """
    directions = draw_gaussian((x.numel(), 60), 2).double().sign()
    directions[:, 30:] *= torch.rand(x.numel(), 30, generator=torch.Generator().manual_seed(3)) < 0.1
    samples = draw_all(compressor, x, [make_key(step) for step in range(DRAWS)]).double() @ directions
    expected = x.reshape(-1).double() @ directions
    constant = samples.std(0) <= 1e-5 * samples.abs().mean()
    error = ((samples.mean(0) - expected).abs() / expected.abs().mean())[constant]
    return find_largest_deviation(samples, expected), float(error.max()) if len(error) else 0.0


def test_the_test_of_bias_finds_a_bias() -> None:
    x = draw_gaussian(MATRIX, 1)
    z, error = measure_bias(build("truncated_svd"), x)
    assert z > 100 or error > 0.01

    class Shrinking(type(build("qsgd"))):  # type: ignore[misc]
        def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
            super().decompress_add(payload, out, key, 0.95 * weight)

    assert measure_bias(Shrinking(), x)[0] > compute_critical_z(2 * 60 * len(CASES))


# Errors

HARD: Values = {
    "normal": draw_gaussian,
    "heavy-tailed": lambda shape: draw_gaussian(shape) / draw_gaussian(shape, 1).abs().clamp(min=1e-3),
    "all equal": lambda shape: torch.full(shape, -0.7),
    "one-hot": make_one_hot,
    "almost one-hot": lambda shape: make_one_hot(shape) + 1e-4,
    "two sizes": lambda shape: torch.where(draw_gaussian(shape, 2) > 1, 1.0, 0.01),
}
ENDS: Values = {
    "denormal": lambda shape: draw_gaussian(shape) * 1e-40,
    "smallest": lambda shape: torch.full(shape, 1e-45),
    "1e30": lambda shape: draw_gaussian(shape) * 1e30,
    "huge and tiny": lambda shape: draw_gaussian(shape) * torch.logspace(-40, 30, math.prod(shape)).view(shape),
}
SHAPES: dict[tuple[int, ...], list[str]] = {  # with most values where most can go wrong
    (1,): [*HARD, *ENDS],
    (1, 1): [*HARD, *ENDS],
    (300,): [*HARD, *ENDS],
    (1500,): ["normal", "heavy-tailed", "huge and tiny"],
    MATRIX: [*HARD, *ENDS],
    (8, 3, 3, 3): ["normal", "two sizes", "almost one-hot", "denormal"],
}
KEYS = [make_key(step) for step in range(48)]
FEW_KEYS = KEYS[:8]


@every_compressor
@in_turn(shape=list(SHAPES))
def test_the_law_holds_for_hard_tensors(compressor: Compressor, shape: tuple[int, ...]) -> None:
    """Check both ends of float32 too; where a law says nothing, Q(x) is at least a number, and not of another size."""
    is_random = depends_on_key(compressor, shape)
    for name in SHAPES[shape]:
        x = {**HARD, **ENDS}[name](shape)
        keys = KEYS if name in HARD and len(x) > 1 else FEW_KEYS
        q = draw_all(compressor, x, keys if is_random else keys[:2])
        beyond = (x.abs() > compressor.largest).view(-1)
        assert q[:, ~beyond].isfinite().all(), name
        if beyond.any():  # they arrive as Inf, those that are sent
            is_sent = draw_all(compressor, torch.ones(shape), keys[: len(q)]) != 0
            assert (q.isinf() == (beyond & is_sent)).all() and not q[~is_sent].any(), name
        if is_covered(compressor, x):
            check_law(compressor.law(shape), x, q, is_random, name)
        if not (compressor.scale_free or beyond.any()):
            # No more than a budget of 0.4 spread over 24 atoms can blow one up, or one level all elements.
            assert q.double().norm(dim=1).max() <= 1e3 * x.double().norm(), name


def check_law(law: Law, x: torch.Tensor, q: torch.Tensor, is_random: bool, name: str = "") -> None:
    """Check E ||Q(x) - x||^2 against omega and delta, and E <x, Q(x)> = ||x||^2 where that follows.

    The means over draws `q` (draws, n) may be off by chance. If Q draws nothing, the law holds for this very x.
    """
    exact = x.reshape(-1).double()
    energy = float(exact.square().sum())
    errors = (q.double() - exact).square().sum(1)
    mean = float(errors.mean())
    rounding = ROUNDING * math.sqrt(energy) + GRAIN * math.sqrt(x.numel())
    spread = float(errors.std()) if is_random else 0.0

    def compute_allowed(constant: float, spread: float) -> float:
        return (math.sqrt(constant * energy) + rounding) ** 2 + BY_CHANCE * spread / math.sqrt(len(errors))

    if law.omega is not None:
        assert mean <= compute_allowed(law.omega, spread), name
    if law.delta is not None:
        assert 0 < law.delta <= 1
        # One element can be all of x, and kept so seldom that no draw has seen it: an error between 0 and
        # ||x||^2 whose mean is 1 - delta of that deviates by at most this (Bhatia and Davis, 2000).
        rare = math.sqrt(law.delta * (1 - law.delta)) * energy if is_random else 0.0
        assert mean <= compute_allowed(1 - law.delta, max(spread, rare)), name
    if law.kappa is not None:
        assert math.sqrt(float(errors.max())) <= law.kappa + rounding, name
    if law.unbiased and energy:
        along = (q.double() / math.sqrt(energy)) @ (exact / math.sqrt(energy))
        # As above, rare draws may not have been seen; the variance along x is at most omega.
        spread = max(float(along.std()), math.sqrt(law.omega or 0.0)) if is_random else 0.0
        by_chance = BY_CHANCE * spread / math.sqrt(len(along))
        assert abs(float(along.mean()) - 1.0) <= by_chance + rounding / math.sqrt(energy), name


@functools.cache
def depends_on_key(compressor: Compressor, shape: tuple[int, ...]) -> bool:
    """Tell whether Q of a tensor with some equal elements, and some zeros, depends on the key."""
    x = (4 * draw_gaussian(shape, 11)).round()
    return len({bytes(renew(compressor).compress(x, make_key(step)).tolist()) for step in range(0, 40, 2)}) > 1


@every_compressor
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, -0.0, 0.5])), min_size=1),
    exponent=st.sampled_from([0, -130, 90]),
    step=st.integers(0, 1000),
)
def test_the_law_holds_for_all_tensors(compressor: Compressor, values: list[float], exponent: int, step: int) -> None:
    """Check the mean over some draws of methods that draw: no law is one of every draw."""
    x = (torch.tensor(values).double() * 2.0**exponent).float()
    law = compressor.law(x.shape)
    if law != Law() and is_covered(compressor, x):
        is_random = depends_on_key(compressor, MATRIX)
        keys = [make_key(step + number) for number in range(0, 24, 2)]
        check_law(law, x, draw_all(compressor, x, keys if is_random else keys[:2]), is_random)


@every_compressor
def test_what_is_sent_grows_with_the_tensor(compressor: Compressor) -> None:
    """Check Q(2^e x) = 2^e Q(x) for the same key, down to denormals: what holds for one size holds for all.

    Methods with a fixed threshold are left out. The difference may be a tenth: denormals have few bits for the cells
    of a quantile sketch.
    """
    keys = [make_key(step) for step in range(8)]
    for shape in (MATRIX, (600,)):
        if get_selection_law(compressor, shape).kappa is not None:
            continue
        x = (draw_gaussian(shape, 8) * 16).round() / 16  # few bits, so that denormals hold them
        expected = draw_all(compressor, x, keys).double()
        assert expected.any() or not is_covered(compressor, x)
        for exponent in (-130, 98):
            scaled = (x.double() * 2.0**exponent).float()
            if is_covered(compressor, x) and is_covered(compressor, scaled):
                found = draw_all(compressor, scaled, keys).double()
                found *= 1.0 if compressor.scale_free and not compressor.is_exact(shape, keys[0]) else 2.0**-exponent
                assert (found - expected).norm() <= 0.1 * expected.norm(), (shape, exponent)


def get_selection_law(compressor: Compressor, shape: tuple[int, ...]) -> Law:
    """Return the law; that of a sparsifier is of its selection, without its coding of values."""
    return compressor.selection_law_of(shape) if isinstance(compressor, Sparsifier) else compressor.law(shape)


# Independence

PAIRS = 60
FIELDS = ("seed", "worker", "step", "unit")


@every_compressor
def test_errors_of_different_keys_are_independent(compressor: Compressor) -> None:
    """Do a z-test; a correct compressor fails once in 10^6 runs of the whole suite."""
    x = draw_gaussian(MATRIX, 4)
    if torch.equal(*draw_all(compressor, x, [make_key(0), make_key(2)])):
        pytest.skip("not random")
    found = measure_dependence(compressor, x)
    if compressor.shared_draws:
        assert torch.equal(*draw_all(compressor, x, [make_key(worker=0), make_key(worker=1)]))
    if compressor.shared_draws or compressor.shared_rotation:
        del found["worker"]
    assert max(found.values()) < compute_critical_z(len(FIELDS) * len(CASES))


def measure_dependence(compressor: Compressor, x: torch.Tensor) -> dict[str, float]:
    """Return, for each field of a key, |z| of how alike the errors of two keys are that differ in this field only.

    The cosines of any two keys say what chance does, and how far it goes.
    """

    def draw_directions(keys: list[Key]) -> torch.Tensor:
        return torch.nn.functional.normalize((draw_all(compressor, x, keys) - x.reshape(-1)).double())

    keys = [make_key(2 * step, seed=3, worker=3, unit=3) for step in range(PAIRS)]  # of one sign, with values=mean
    errors = draw_directions(keys)
    found = {}
    for field in FIELDS:
        cosines = (
            errors @ draw_directions([dataclasses.replace(k, **{field: 1000 + getattr(k, field)}) for k in keys]).T
        )
        by_chance = cosines[~torch.eye(PAIRS, dtype=torch.bool)]
        excess = cosines.diagonal().mean() - by_chance.mean()
        found[field] = float(excess.abs() / by_chance.std()) * math.sqrt(PAIRS)
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

    found = measure_dependence(SameOnAllWorkers(bucket_size=48), draw_gaussian(MATRIX, 4))
    assert found.pop("worker") > 2 * compute_critical_z(len(FIELDS) * len(CASES))
    assert max(found.values()) < compute_critical_z(len(FIELDS) * len(CASES))
