"""Memories: nothing that was withheld is lost, and nothing that an exchange reuses is kept."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import Compressor, InvalidParameter, build, memory
from compressors.memory import Memory
from tests.compressors.cases import every_compressor, fresh, gaussian, key

SHAPE = (24, 40)

every_memory = pytest.mark.parametrize("name", memory.registry())


def step(kept: Memory, compressor: Compressor, gradient: torch.Tensor, number: int, unit: int = 0) -> torch.Tensor:
    """What one step of an exchange sends for `gradient`: Q(x) as the receiver sees it."""
    x = kept.compensate(unit, gradient)
    one = key(number, unit=unit)
    payload = compressor.compress(x, one)
    sent = compressor.decompress(payload, x, one).clone()
    kept.update(one, x, payload, compressor)
    return sent


# All memories


@every_memory
@every_compressor
def test_the_gradient_is_only_read_and_not_kept(name: str, compressor: Compressor) -> None:
    """The flat gradient buffer is overwritten by the next backward: with it or with a copy, the same."""
    flat = torch.zeros(7 + math.prod(SHAPE))
    view = flat[7:].view(SHAPE)
    shared, apart = memory.build(name), memory.build(name)
    first, second = fresh(compressor), fresh(compressor)
    for number in range(4):
        view.copy_(gaussian(SHAPE, number))
        sent = step(shared, first, view, number)
        assert torch.equal(view, gaussian(SHAPE, number))
        assert torch.equal(sent, step(apart, second, gaussian(SHAPE, number), number))
        flat.fill_(math.nan)
    assert shared.norm() == apart.norm()


@every_memory
def test_the_state_can_be_saved_in_the_middle_of_a_run(name: str) -> None:
    compressor = build("qsgd", levels=1)
    first, second = memory.build(name), memory.build(name)
    for number in range(3):
        for unit in range(2):
            step(first, compressor, gaussian(SHAPE, number), number, unit)
    state = first.state_dict()
    frozen = {unit: kept.clone() for unit, kept in state.items()}
    second.load_state_dict(state)
    assert second.norm() == first.norm()
    for unit in range(2):
        x = gaussian(SHAPE, 3)
        assert torch.equal(step(first, compressor, x, 3, unit), step(second, compressor, x, 3, unit))
    assert all(torch.equal(state[unit], frozen[unit]) for unit in frozen)


@every_memory
def test_out_of_range_is_refused(name: str) -> None:
    for field in dataclasses.fields(memory.registry()[name]):
        valid = field.metadata["valid"]
        refused = [value for value in ("word", None, math.nan, -1, -0.5, True) if not valid.test(value)]
        assert refused
        for value in refused:
            with pytest.raises(InvalidParameter) as error:
                memory.build(name, **{field.name: value})
            assert str(error.value) == f"{field.name}={value}: valid is {valid.words}"
    with pytest.raises(InvalidParameter, match="no_such_option"):
        memory.build(name, no_such_option=1)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidParameter, match="name=foo: valid is one of none, residual"):
        memory.build("foo")


# None


def test_no_memory_passes_the_gradient_on() -> None:
    kept = memory.build("none")
    g = gaussian(SHAPE)
    assert kept.compensate(0, g) is g
    assert kept.norm() == 0.0 and kept.state_dict() == {}
    with pytest.raises(ValueError, match="stray"):
        kept.load_state_dict({"stray": 1})


# Residual


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.floats(0, 1.5), st.floats(0.01, 2), st.integers(1, 50), st.integers(0, 1000))
def test_the_residual_follows_its_definition(beta: float, gamma: float, count: int, seed: int) -> None:
    """p = beta e + gamma g; e = p - Q(p)."""
    compressor = build("qsgd", levels=2)
    kept = memory.build("residual", beta=beta, gamma=gamma)
    e = torch.zeros(count)
    for number in range(4):
        g = gaussian((count,), seed + number)
        x = kept.compensate(0, g)
        p = x.clone()
        assert torch.allclose(p, beta * e + gamma * g, atol=1e-5)
        payload = compressor.compress(x, key(number))
        kept.update(key(number), x, payload, compressor)
        e = p - compressor.decompress(payload, p, key(number))
        assert torch.allclose(kept.state_dict()["0"], e, atol=1e-5)
        assert kept.norm() == pytest.approx(float(e.norm()), abs=1e-5)


@every_compressor
def test_what_was_sent_and_what_is_kept_is_everything(compressor: Compressor) -> None:
    kept = memory.build("residual")
    total, sent = torch.zeros(SHAPE).double(), torch.zeros(SHAPE).double()
    for number in range(10):
        g = gaussian(SHAPE, number)
        total += g
        sent += step(kept, compressor, g, number)
    residual = kept.state_dict().get("0", torch.zeros(SHAPE))
    assert torch.allclose(sent + residual, total, atol=1e-3 * max(1.0, float(residual.abs().max())))


def test_a_biased_compressor_reaches_the_mean_with_a_residual() -> None:
    """The point of error feedback: the mean of what truncation sends tends to the gradient, as 1 / steps."""
    compressor = build("svd", rank=1, random_sample=False)
    g = gaussian(SHAPE)
    errors = {}
    for name in memory.registry():
        kept = memory.build(name)
        mean = sum(step(kept, compressor, g, number) for number in range(400)) / 400
        errors[name] = float((mean - g).norm() / g.norm())
    assert errors["none"] > 0.8
    assert errors["residual"] < 0.1


def test_units_are_kept_apart_and_counted_together() -> None:
    compressor = build("qsgd", levels=1)
    both, one, two = memory.build("residual"), memory.build("residual"), memory.build("residual")
    for number in range(3):
        for unit, alone in ((1, one), (2, two)):
            g = gaussian((100 * unit,), number)
            assert torch.equal(step(both, compressor, g, number, unit), step(alone, compressor, g, number, unit))
    assert both.norm() == pytest.approx(math.hypot(one.norm(), two.norm()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_half_gradients_are_kept_in_float32(dtype: torch.dtype) -> None:
    kept = memory.build("residual")
    x = kept.compensate(0, gaussian(SHAPE).to(dtype))
    assert x.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)


def test_a_unit_keeps_its_shape() -> None:
    kept = memory.build("residual")
    kept.compensate(3, torch.zeros(4))
    with pytest.raises(ValueError, match=r"unit 3 has shape \(5,\), its residual \(4,\)"):
        kept.compensate(3, torch.zeros(5))


def test_a_nan_is_seen() -> None:
    kept = memory.build("residual")
    g = gaussian(SHAPE)
    g[0, 0] = math.nan
    step(kept, build("qsgd"), g, 0)
    assert math.isnan(kept.norm())
