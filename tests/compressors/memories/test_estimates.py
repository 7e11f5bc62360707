"""Memories with estimates of gradients: their definitions, and the noise at which they stop."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import Key, build, memories
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.quantisation.floats import NoCompression
from tests.compressors.memories.steps import Largest, step


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 60), st.integers(0, 1000))
def test_ef21_follows_its_definition(workers: int, count: int, seed: int) -> None:
    """c = Q(g - h), h += c, and what is taken for the mean gradient is the mean of the h, on all workers."""
    compressor = Largest()
    of_workers = [memories.build("ef21") for _ in range(workers)]
    h = torch.zeros(workers, count)
    for number in range(4):
        gradients = [draw_gaussian((count,), seed + 10 * number + worker) for worker in range(workers)]
        sent = []
        for worker, (kept, g) in enumerate(zip(of_workers, gradients, strict=True)):
            one = make_key(number, worker=worker)
            x = kept.compensate(0, g)
            assert torch.allclose(x, g - h[worker], atol=1e-6)
            payload = compressor.compress(x, one)
            sent.append(compressor.decompress(payload, g, one))
            kept.update(one, x, payload, compressor)
            h[worker] += sent[-1]
            assert torch.equal(kept.state_dict()["0"]["estimate"], h[worker])
            assert kept.norm() == pytest.approx(float((g - h[worker]).norm()), abs=1e-5)
        means = [torch.stack(sent).mean(0) for _ in of_workers]
        for kept, mean in zip(of_workers, means, strict=True):
            kept.finish(0, mean)
            assert torch.allclose(mean, h.mean(0), atol=1e-5)
            assert torch.equal(mean, means[0])


def test_the_error_of_ef21_vanishes_where_that_of_a_residual_does_not() -> None:
    """A constant gradient: the estimate becomes it, step by step; with a residual, what is sent goes on to jump."""
    g = draw_gaussian((60,))
    estimating, residual = memories.build("ef21"), memories.build("residual")
    for number in range(25):
        sent = step(residual, Largest(), g, number)
        step(estimating, Largest(), g, number)
    assert torch.equal(estimating.state_dict()["0"]["mean"], g)
    assert estimating.norm() == 0.0 and float((sent - g).norm()) > 0.5 * float(g.norm())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0.01, 0.99), st.booleans(), st.integers(1, 60), st.integers(0, 1000))
def test_ef21_with_a_gradient_weight_estimates_the_momentum(weight: float, double: bool, count: int, seed: int) -> None:
    """v = (1 - a) v + a g, and u = (1 - a) u + a v, both from the first gradient; c = Q(v - h) or Q(u - h)."""
    kept = memories.build("ef21", gradient_weight=weight, double_momentum=double)
    plain = memories.build("ef21")
    v = u = draw_gaussian((count,), seed).double()
    for number in range(5):
        g = draw_gaussian((count,), seed + number)
        v = (1 - weight) * v + weight * g.double()
        u = (1 - weight) * u + weight * v
        averaged = kept.compensate(0, g).clone()
        assert torch.allclose(averaged, plain.compensate(0, (u if double else v).float()), atol=1e-5)
        for memory in (kept, plain):
            one = make_key(number)
            memory.update(one, averaged, Largest().compress(averaged, one), Largest())
    assert ("second_momentum" in kept.state_dict()["0"]) == double


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0.01, 1), st.integers(1, 3), st.integers(1, 60), st.integers(0, 1000))
def test_econtrol_follows_its_definition(control: float, workers: int, count: int, seed: int) -> None:
    """c = Q(control e + g - h), h += c, e += g - h: what is used and what is kept is the sum of the gradients."""
    of_workers = [memories.build("econtrol", control=control) for _ in range(workers)]
    h, e = torch.zeros(workers, count).double(), torch.zeros(workers, count).double()
    used, total = torch.zeros(count).double(), torch.zeros(count).double()
    for number in range(5):
        sent = []
        for worker, kept in enumerate(of_workers):
            g = draw_gaussian((count,), seed + 10 * number + worker)
            one = make_key(number, worker=worker)
            x = kept.compensate(0, g)
            assert torch.allclose(x.double(), control * e[worker] + g - h[worker], atol=1e-4)
            payload = Largest().compress(x, one)
            sent.append(Largest().decompress(payload, g, one))
            kept.update(one, x, payload, Largest())
            h[worker] += sent[-1]
            e[worker] += g - h[worker]
            total += g / workers
            assert kept.norm() == pytest.approx(float(e[worker].norm()), rel=1e-4, abs=1e-4)
        for kept in of_workers:
            mean = torch.stack(sent).mean(0)
            kept.finish(0, mean)
            assert torch.allclose(mean.double(), h.mean(0), atol=1e-4)
        used += mean
    assert torch.allclose(used + e.mean(0), total, atol=1e-3)


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5, 0.9])
def test_the_control_of_the_theorems_is_two_thirds_of_what_lets_norms_shrink(delta: float) -> None:
    """Of the errors that Q may make, the worst is q x with q = sqrt(1 - delta), against what control takes back."""
    q = math.sqrt(1 - delta)

    def radius(control: float) -> float:
        bound = torch.tensor([[1 - control, q], [control**2, (1 + control) * q]], dtype=torch.float64)
        return float(torch.linalg.eigvals(bound).abs().max())

    limit = (1 - q) / (2 * q)
    assert delta / (3 * q * (1 + q)) == pytest.approx(2 / 3 * limit)
    assert radius(0.999 * limit) < 1 < radius(1.001 * limit)
    assert radius(2 / 3 * limit) < 1


# f = ||x||^2 / 2 in two dimensions: the larger of two elements is sent, and the noise has three points.

RUNS = 400
"""Each is a row of x."""
NOISE = math.sqrt(0.3) * torch.tensor([[2.0, 0.0], [0.0, 1.0], [-2.0, -1.0]])


class LargerOfTwo(NoCompression):
    """The element of each row with the larger magnitude."""

    lossless: ClassVar[bool] = False

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        first = x[:, :1].abs() >= x[:, 1:].abs()
        return super().compress(torch.where(torch.cat([first, ~first], 1), x, 0.0), key, out)


def average_error(name: str, lr: float, start: int, end: int, **options: Any) -> tuple[float, float]:
    """Return the mean of ||x||^2 over steps `start` to `end`, and the standard deviation of this mean of one run."""
    kept = memories.build(name, **options)
    compressor = build("none") if name == "none" else LargerOfTwo()
    generator = torch.Generator().manual_seed(1)
    x, total = torch.zeros(RUNS, 2), torch.zeros(RUNS).double()
    for number in range(end):
        key = make_key(number)
        sent = kept.compensate(0, x + NOISE[torch.randint(3, (RUNS,), generator=generator)])
        payload = compressor.compress(sent, key)
        mean = payload.view(torch.float32).view(RUNS, 2).clone()
        kept.update(key, sent, payload, compressor)
        kept.finish(0, mean)
        x.sub_(mean, alpha=lr)
        if number >= start:
            total += x.double().square().sum(1)
    means = total / (end - start)
    return float(means.mean()), float(means.std())


RATES = {0.1: (1000, 2000, 1000), 0.01: (2000, 4000, 10_000), 0.001: (5000, 8000, 30_000)}
"""By learning rate: the first and the last step of the mean, and the steps of the mean of one run in the table."""
ERRORS: tuple[tuple[str, dict[str, Any], tuple[float, float, float]], ...] = (
    ("none", {}, (0.0569, 0.0053, 0.0005)),
    ("residual", {}, (0.0582, 0.0053, 0.0005)),
    ("ef21", {}, (0.0910, 0.0121, 0.0058)),
    ("ef21", {"gradient_weight": 0.1}, (0.0416, 0.0046, 0.0011)),
    ("ef21", {"gradient_weight": 0.01}, (0.0514, 0.0055, 0.0005)),
    ("econtrol", {"control": 0.3}, (0.0700, 0.0054, 0.0005)),
)
"""The table: ||x||^2 by learning rate."""


@pytest.mark.parametrize(("name", "options", "table"), ERRORS, ids=str)
def test_the_noise_at_which_a_memory_stops_is_that_of_the_table(
    name: str, options: dict[str, Any], table: tuple[float, float, float]
) -> None:
    """EF21 stops at noise that does not fall with the learning rate; its momentum and EControl mend that."""
    found = []
    for (lr, (start, end, steps)), expected in zip(RATES.items(), table, strict=True):
        mean, deviation = average_error(name, lr, start, end, **options)
        of_table = deviation * math.sqrt((end - start) / steps)
        assert abs(mean - expected) < 3 * of_table + 5e-5, (lr, mean, expected, of_table)
        found.append(mean)
    is_ef21 = name == "ef21" and not options
    assert (found[2] > 0.4 * found[1]) == is_ef21 == (found[2] > 0.05 * found[0])
