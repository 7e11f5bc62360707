"""Memories: nothing that was withheld is lost, and nothing that an exchange reuses is kept."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import Compressor, InvalidParameter, Key, build, memories
from compressors.conformance.cases import draw_gaussian, every_compressor, in_turn, make_key, renew
from compressors.kernels.reference import sums
from compressors.memories.base import UnitMemory
from compressors.memories.estimates import EstimateMemory
from tests.compressors.memories.steps import SHAPE, Largest, step

every_memory = pytest.mark.parametrize("name", memories.REGISTRY)
every_keeping_memory = pytest.mark.parametrize(
    "name", [name for name, member in memories.REGISTRY.items() if issubclass(member, UnitMemory)]
)


class Telling(Largest):
    """The same, and tells which."""

    def find_sent(self, payload: torch.Tensor, count: int, key: Key) -> torch.Tensor | None:
        values = payload.view(torch.float32)
        assert len(values) == count
        return None if key.step == 3 else values.nonzero()[:, 0].int()


# All memories


@every_compressor
@in_turn(name=list(memories.REGISTRY))
def test_the_gradient_is_only_read_and_not_kept(name: str, compressor: Compressor) -> None:
    """The flat gradient buffer is overwritten by the next backward: with it or with a copy, the same."""
    flat = torch.zeros(7 + math.prod(SHAPE))
    view = flat[7:].view(SHAPE)
    shared, apart = memories.build(name), memories.build(name)
    first, second = renew(compressor), renew(compressor)
    for number in range(4):
        view.copy_(draw_gaussian(SHAPE, number))
        sent = step(shared, first, view, number)
        assert torch.equal(view, draw_gaussian(SHAPE, number))
        assert torch.equal(sent, step(apart, second, draw_gaussian(SHAPE, number), number))
        flat.fill_(math.nan)
    assert shared.norm() == apart.norm()


@every_memory
def test_the_state_can_be_saved_in_the_middle_of_a_run(name: str) -> None:
    compressor = build("qsgd", levels=1)
    first, second = memories.build(name), memories.build(name)
    for number in range(3):
        for unit in range(2):
            step(first, compressor, draw_gaussian(SHAPE, number), number, unit)
    state = first.state_dict()
    frozen = {unit: {name: kept.clone() for name, kept in named.items()} for unit, named in state.items()}
    second.load_state_dict(state)
    assert second.norm() == first.norm()
    for unit in range(2):
        x = draw_gaussian(SHAPE, 3)
        assert torch.equal(step(first, compressor, x, 3, unit), step(second, compressor, x, 3, unit))
    assert all(torch.equal(state[unit][name], kept) for unit, named in frozen.items() for name, kept in named.items())
    with pytest.raises(ValueError, match="nonsense"):
        second.load_state_dict({"nonsense": 1})


@every_memory
@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "but was given (nothing|a NoneType)$"),
        ([1], "but was given a list$"),
        ({"0": None}, "but was given (nothing for unit 0|the keys .'0'.)"),
        ({0: {}}, "but was given the key(s \\['0'\\]| 0, which is not a unit's number)"),
        ({"-1": {}}, "but was given the key"),
        ({"0": {"elsewhere": torch.zeros(2)}}, "but was given (elsewhere for unit 0|the keys)"),
        ({"0": {"residual": None, "lr": 1.0, "momentum": 3, "estimate": 1, "difference": 2}}, "but was given"),
    ],
    ids=str,
)
def test_what_is_no_state_is_refused_and_changes_nothing(name: str, state: object, message: str) -> None:
    kept = memories.build(name)
    step(kept, build("qsgd", levels=1), draw_gaussian(SHAPE), 0)
    before = kept.state_dict()
    with pytest.raises(ValueError, match=rf"^memory {name} keeps .*{message}"):
        kept.load_state_dict(state)  # type: ignore[arg-type]
    after = kept.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[unit][one], tensor) for unit in before for one, tensor in before[unit].items())


@every_keeping_memory
def test_tensors_have_to_be_tensors(name: str) -> None:
    kept = memories.build(name)
    step(kept, build("qsgd", levels=1), draw_gaussian(SHAPE), 0)
    for value, words in ((None, "nothing"), (1.5, "a float"), ([1.0], "a list")):
        state = kept.state_dict()
        state["0"][kept.withheld] = value  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match=f"but was given {words} for {kept.withheld} of unit 0"):  # type: ignore[attr-defined]
            kept.load_state_dict(state)


@every_keeping_memory
def test_the_state_of_another_memory_is_refused(name: str) -> None:
    for other in memories.REGISTRY:
        theirs = memories.build(other)
        step(theirs, build("qsgd", levels=1), draw_gaussian(SHAPE), 0)
        state = theirs.state_dict()
        if other not in (name, "none"):
            with pytest.raises(
                ValueError, match=f"memory {name} keeps tensors by unit, called .*, but was given .* for"
            ):
                memories.build(name).load_state_dict(state)


@every_memory
def test_out_of_range_is_refused(name: str) -> None:
    for field in dataclasses.fields(memories.REGISTRY[name]):
        valid = field.metadata["valid"]
        refused = [value for value in ("word", None, math.nan, -1, -0.5, True) if not valid.test(value)]
        assert refused
        for value in refused:
            with pytest.raises(InvalidParameter) as error:
                memories.build(name, **{field.name: value})
            assert str(error.value) == f"{field.name}={value}: valid is {valid.words}"
    with pytest.raises(InvalidParameter, match="no_such_option"):
        memories.build(name, no_such_option=1)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidParameter, match="name=foo: valid is one of dgc, econtrol, ef21, loco, none, resid"):
        memories.build("foo")


# None


def test_no_memory_passes_the_gradient_on() -> None:
    kept = memories.build("none")
    g = draw_gaussian(SHAPE)
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
    kept = memories.build("residual", beta=beta, gamma=gamma)
    e = torch.zeros(count)
    for number in range(4):
        g = draw_gaussian((count,), seed + number)
        x = kept.compensate(0, g)
        p = x.clone()
        assert torch.allclose(p, beta * e + gamma * g, atol=1e-5)
        payload = compressor.compress(x, make_key(number))
        kept.update(make_key(number), x, payload, compressor)
        e = p - compressor.decompress(payload, p, make_key(number))
        assert torch.allclose(kept.state_dict()["0"]["residual"], e, atol=1e-5)
        assert kept.norm() == pytest.approx(float(e.norm()), abs=1e-5)


@every_compressor
def test_what_was_sent_and_what_is_kept_is_everything(compressor: Compressor) -> None:
    if compressor.knows_rest:
        pytest.skip("takes more for sent than receivers get")
    kept = memories.build("residual")
    total, sent = torch.zeros(SHAPE).double(), torch.zeros(SHAPE).double()
    for number in range(10):
        g = draw_gaussian(SHAPE, number)
        total += g
        sent += step(kept, compressor, g, number)
    residual = kept.state_dict().get("0", {"residual": torch.zeros(SHAPE)})["residual"]
    assert torch.allclose(sent + residual, total, atol=1e-3 * max(1.0, float(residual.abs().max())))


def test_a_biased_compressor_reaches_the_mean_with_a_residual() -> None:
    """The point of error feedback: the mean of what truncation sends tends to the gradient, as 1 / steps."""
    compressor = build("truncated_svd", rank=1)
    g = draw_gaussian(SHAPE)
    errors = {}
    for name in ("none", "residual"):
        kept = memories.build(name)
        mean = sum(step(kept, compressor, g, number) for number in range(400)) / 400
        errors[name] = float((mean - g).norm() / g.norm())
    assert errors["none"] > 0.8
    assert errors["residual"] < 0.1


def test_units_are_kept_apart_and_counted_together() -> None:
    compressor = build("qsgd", levels=1)
    both, one, two = memories.build("residual"), memories.build("residual"), memories.build("residual")
    for number in range(3):
        for unit, alone in ((1, one), (2, two)):
            g = draw_gaussian((100 * unit,), number)
            assert torch.equal(step(both, compressor, g, number, unit), step(alone, compressor, g, number, unit))
    assert both.norm() == pytest.approx(math.hypot(one.norm(), two.norm()))


@pytest.mark.parametrize("name", ["residual", "scaled_residual"])
def test_what_is_sent_exactly_costs_a_residual_nothing(name: str) -> None:
    """No tensor is kept for such a unit; one that was kept is sent, and is gone."""
    kept, exact = memories.build(name), build("none")
    g = draw_gaussian(SHAPE)
    for number in range(2):
        x = kept.compensate(0, g, lossless=True)
        assert x is g or x.data_ptr() == g.data_ptr()
        kept.update(make_key(number), x, exact.compress(x, make_key(number)), exact)
        assert kept.state_dict() == {}
    sent = step(kept, Largest(), g, 2)
    assert kept.norm() > 0.0
    x = kept.compensate(0, g, lossless=True)
    assert torch.equal(x, g - sent + g)
    kept.update(make_key(3), x, exact.compress(x, make_key(3)), exact)
    assert kept.state_dict() == {} and kept.norm() == 0.0
    assert torch.equal(kept.compensate(0, g), g)


def test_what_is_sent_exactly_has_its_weight() -> None:
    kept = memories.build("residual", gamma=0.5)
    assert torch.equal(kept.compensate(0, draw_gaussian(SHAPE), lossless=True), 0.5 * draw_gaussian(SHAPE))


@pytest.mark.parametrize("name", ["residual", "scaled_residual"])
def test_float64_is_not_sent_exactly(name: str) -> None:
    kept, exact = memories.build(name), build("none")
    g = draw_gaussian(SHAPE).double() * (1.0 + 1e-12)
    x = kept.compensate(0, g, lossless=True)
    kept.update(make_key(), x, exact.compress(x, make_key()), exact)
    assert 0.0 < kept.norm() == pytest.approx(float((g - g.float().double()).norm()), rel=1e-9)


# Memories that keep something


@every_keeping_memory
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_half_gradients_are_kept_in_float32(name: str, dtype: torch.dtype) -> None:
    kept, exact = memories.build(name), memories.build(name)
    for number in range(2):
        g = draw_gaussian(SHAPE, number).to(dtype)
        x = kept.compensate(0, g)
        assert x.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
        assert torch.allclose(x, exact.compensate(0, g.double()).to(x.dtype))


@every_keeping_memory
def test_a_unit_keeps_its_shape(name: str) -> None:
    kept = memories.build(name)
    step(kept, Largest(), torch.zeros(4), 0, unit=3)
    with pytest.raises(ValueError, match=r"unit 3 has shape \(5,\), its \w+ \(4,\)"):
        kept.compensate(3, torch.zeros(5))


@every_keeping_memory
def test_a_nan_is_seen(name: str) -> None:
    kept = memories.build(name)
    g = draw_gaussian(SHAPE)
    g[0, 0] = math.nan
    step(kept, build("qsgd"), g, 0)
    assert math.isnan(kept.norm())


@every_keeping_memory
def test_nothing_is_withheld_of_what_is_sent_exactly(name: str) -> None:
    kept = memories.build(name)
    for number in range(4):
        g = draw_gaussian(SHAPE, number)
        x = kept.compensate(0, g, lossless=True)
        if name != "dgc":
            estimates = issubclass(memories.REGISTRY[name], EstimateMemory)
            expected = g - (draw_gaussian(SHAPE, number - 1) if estimates and number else 0)
            assert torch.allclose(x, expected, atol=1e-6)
        payload = build("none").compress(x, make_key(number))
        kept.update(make_key(number), x, payload, build("none"))
        assert kept.norm() < 1e-5


# Scaled residual


rates = st.lists(st.sampled_from([0.0, 1e-3, 0.05, 0.1, 1.0]), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rates, st.integers(1, 50), st.integers(0, 1000))
def test_the_scaled_residual_follows_its_definition(lrs: list[float], count: int, seed: int) -> None:
    """p = (lr before / lr) e + g; e = p - Q(p). So what moves the model, and what will, is the sum of lr * g."""
    kept, compressor = memories.build("scaled_residual"), Largest()
    e, before = torch.zeros(count).double(), 1.0
    moved, total = torch.zeros(count).double(), torch.zeros(count).double()
    for number, lr in enumerate(lrs):
        g = draw_gaussian((count,), seed + number)
        sent = step(kept, compressor, g, number, lr=lr).double()
        moved, total = moved + lr * sent, total + lr * g.double()
        if lr == 0.0:
            assert torch.equal(sent.float(), compressor.decompress(compressor.compress(g, make_key()), g, make_key()))
            continue
        p = before / lr * e + g.double()
        e, before = p - sent, lr
        rounding = 1e-4 + 1e-6 * float(e.abs().max())  # of a rate that falls to a thousandth, too
        assert torch.allclose(kept.state_dict()["0"]["residual"].double(), e, rtol=1e-4, atol=rounding)
        assert kept.norm() == pytest.approx(float(e.norm()), rel=1e-4, abs=1e-4)
    assert torch.allclose(moved + before * e, total, atol=1e-4)


def test_with_a_constant_rate_the_scaled_residual_is_the_residual() -> None:
    scaled, plain, silent = (memories.build(name) for name in ("scaled_residual", "residual", "scaled_residual"))
    for number in range(5):
        g = draw_gaussian(SHAPE, number)
        expected = step(plain, Largest(), g, number)
        assert torch.equal(step(scaled, Largest(), g, number, lr=0.3), expected)
        assert torch.equal(step(silent, Largest(), g, number), expected)


def test_the_rate_of_the_residual_is_saved_with_it() -> None:
    first, second = memories.build("scaled_residual"), memories.build("scaled_residual")
    step(first, Largest(), draw_gaussian(SHAPE), 0, lr=0.5)
    second.load_state_dict(first.state_dict())
    g = draw_gaussian(SHAPE, 1)
    assert torch.equal(step(first, Largest(), g, 1, lr=0.1), step(second, Largest(), g, 1, lr=0.1))


# LoCo


def quantise(error: torch.Tensor) -> torch.Tensor:
    """An error as 8 bits hold it: integers from -127 to 127 relative to the largest magnitude of 512 elements."""
    flat = error.double().view(-1)
    scales = torch.cat([part.abs().max().clamp_min(1e-300).expand(len(part)) for part in flat.split(512)])
    return ((flat / scales * 127).round() / 127 * scales).view(error.shape)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0, 0.99), st.integers(1, 1500), st.integers(1, 5), st.integers(0, 1000))
def test_loco_follows_its_definition(beta: float, count: int, reset: int, seed: int) -> None:
    """h = g + e; e = beta e + (1 - beta) (h - Q(h)), in 8 bits; after `reset` steps e is 0."""
    kept, compressor = memories.build("loco", beta=beta, reset=reset), build("int8", bits=4, scheme="symmetric")
    e = torch.zeros(count).double()
    for number in range(7):
        g = draw_gaussian((count,), seed + number)
        x = kept.compensate(0, g)
        assert torch.allclose(x.double(), g + e, atol=1e-5)
        key = make_key(number)
        payload = compressor.compress(x, key)
        sent = compressor.decompress(payload, x, key).double()
        h = x.double()
        kept.update(key, x, payload, compressor)
        exact = beta * e + (1 - beta) * (h - sent)
        assert float((quantise(exact) - exact).abs().max()) <= float(exact.abs().max()) / 253
        e = quantise(exact) if (number + 1) % reset else torch.zeros(count).double()
        assert kept.norm() == pytest.approx(float(e.norm()), rel=1e-3, abs=1e-6)


def test_loco_keeps_a_byte_for_an_element() -> None:
    kept = memories.build("loco")
    step(kept, build("qsgd"), draw_gaussian((1000,)), 0)
    state = kept.state_dict()["0"]
    assert {name: tensor.nbytes for name, tensor in state.items()} == {"error": 1000 + 2 * 4, "age": 8}


def test_the_error_of_loco_is_a_part_of_a_residual() -> None:
    """What was sent and e / (1 - beta) are all gradients, up to the rounding of e to 8 bits."""
    beta, steps = 0.8, 100
    kept, compressor = memories.build("loco", beta=beta), build("int8", bits=2, scheme="symmetric")
    sent, total, rounding = torch.zeros(SHAPE).double(), torch.zeros(SHAPE).double(), 0.0
    for number in range(steps):
        g = draw_gaussian(SHAPE, number)
        total += g
        sent += step(kept, compressor, g, number)
        x = kept.compensate(0, torch.zeros(SHAPE)).double()  # e
        rounding += float(x.abs().max()) / 254
    assert rounding < 1.0 < float((sent - total).abs().max())
    assert float((sent + x / (1 - beta) - total).abs().max()) < rounding / (1 - beta)


def test_what_is_always_sent_exactly_costs_loco_nothing() -> None:
    kept, exact = memories.build("loco"), build("none")
    g = draw_gaussian(SHAPE)
    x = kept.compensate(0, g, lossless=True)
    assert x.data_ptr() == g.data_ptr()
    kept.update(make_key(), x, exact.compress(x, make_key()), exact)
    assert kept.state_dict() == {} and torch.equal(g, draw_gaussian(SHAPE))


@pytest.mark.parametrize("damage", ["size", "scale"])
def test_a_damaged_error_is_refused(damage: str) -> None:
    kept = memories.build("loco")
    step(kept, build("qsgd"), draw_gaussian((600,)), 0)
    state = kept.state_dict()
    if damage == "size":
        state["0"]["error"] = state["0"]["error"][:-1]
    else:
        state["0"]["error"][:4] = torch.tensor([-1.0]).view(torch.uint8)
    kept.load_state_dict(state)
    words = r"unit 0 has shape \(600,\), its error \(599,\)" if damage == "size" else "memory=loco keeps is damaged"
    with pytest.raises(ValueError, match=words):
        kept.compensate(0, draw_gaussian((600,)))


# Deep Gradient Compression


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([0.0, 0.5, 0.9]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 40),
    st.integers(0, 999),
)
def test_dgc_follows_its_definition(
    momentum: float, nesterov: bool, masking: bool, telling: bool, count: int, seed: int
) -> None:
    kept = memories.build("dgc", momentum=momentum, nesterov=nesterov, momentum_masking=masking)
    compressor = Telling() if telling else Largest()
    u, v = [0.0] * count, [0.0] * count
    for number in range(5):
        g = draw_gaussian((count,), seed + number)
        for i, value in enumerate(g.tolist()):
            u[i] = momentum * (u[i] + value) if nesterov else momentum * u[i] + value
            v[i] += u[i] + value if nesterov else u[i]
        sent = step(kept, compressor, g, number)
        for i, value in enumerate(sent.tolist()):
            if value != 0.0:
                assert value == pytest.approx(v[i], abs=1e-5)
                v[i] = 0.0
                u[i] = 0.0 if masking else u[i]
        assert int(sent.count_nonzero()) == min(3, count)
        state = kept.state_dict()["0"]
        assert torch.allclose(state["momentum"], torch.tensor(u), atol=1e-5)
        assert torch.allclose(state["velocity"], torch.tensor(v), atol=1e-5)
        assert kept.norm() == pytest.approx(math.hypot(*v), abs=1e-5)


def test_dgc_without_momentum_is_the_residual() -> None:
    kept, plain = memories.build("dgc", momentum=0.0), memories.build("residual")
    compressor = build("qsgd", levels=1)  # which sends all elements, rounded: the error stays
    for number in range(5):
        g = draw_gaussian(SHAPE, number)
        assert torch.allclose(step(kept, compressor, g, number), step(plain, compressor, g, number), atol=1e-5)
    assert kept.norm() == pytest.approx(plain.norm(), rel=1e-5)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("lossless", [True, False])
def test_what_is_sent_exactly_is_sgd_with_momentum(lossless: bool, nesterov: bool) -> None:
    """The momentum of the mean is the mean of the momenta: the optimizer does without."""
    parameter = torch.zeros(SHAPE, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.9, nesterov=nesterov)
    kept = memories.build("dgc", nesterov=nesterov, momentum_masking=False)
    moved = torch.zeros(SHAPE)
    for number in range(6):
        g = draw_gaussian(SHAPE, number)
        parameter.grad = g.clone()
        optimizer.step()
        x = kept.compensate(0, g, lossless)
        payload = build("none").compress(x, make_key(number))
        moved -= x
        kept.update(make_key(number), x, payload, build("none"))
        assert torch.allclose(moved, parameter.detach(), atol=1e-4)
        assert kept.norm() == 0.0
    assert lossless != ("velocity" in kept.state_dict()["0"])


def test_masking_clears_the_momentum_of_what_was_sent_only_where_units_are_compressed() -> None:
    kept = memories.build("dgc")
    for unit, lossless in ((0, False), (1, True)):
        x = kept.compensate(unit, torch.ones(4), lossless)
        kept.update(make_key(unit=unit), x, build("none").compress(x, make_key()), build("none"))
    assert not kept.state_dict()["0"]["momentum"].any()
    assert torch.equal(kept.state_dict()["1"]["momentum"], torch.ones(4))


def test_a_unit_that_becomes_exact_sends_what_it_withheld() -> None:
    kept = memories.build("dgc", momentum=0.0)
    g = draw_gaussian((10,))
    sent = step(kept, Largest(), g, 0)
    x = kept.compensate(0, g, lossless=True)
    assert torch.allclose(x, 2 * g - sent)
    kept.update(make_key(1), x, build("none").compress(x, make_key(1)), build("none"))
    assert kept.norm() == 0.0


@pytest.mark.parametrize("nesterov", [True, False])
def test_clipping_bounds_the_local_gradient(nesterov: bool) -> None:
    """4 workers and clip 2: the norm of a worker's gradient is at most 2 / sqrt(4) = 1; here it is 5 of (3, 4)."""
    calls = []

    def norm() -> float:
        calls.append(1)
        return 5.0

    a, b = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0, 0.0])
    for per, expected in (("model", (0.6, 0.8)), ("unit", (1.0, 1.0))):
        kept = memories.build("dgc", momentum=0.5, nesterov=nesterov, clip=2.0, clip_per=per)
        for number in (1, 2):
            calls.clear()
            kept.begin(0.1, 4, norm)
            x = [kept.compensate(unit, g, lossless=True) for unit, g in enumerate((a, b))]
            factor = (1.5 if nesterov else 1.0) if number == 1 else (1.75 if nesterov else 1.5)
            assert float(x[0][0]) == pytest.approx(factor * expected[0])
            assert float(x[1][1]) == pytest.approx(factor * expected[1])
            assert len(calls) == (per == "model")
    kept = memories.build("dgc", clip=11.0)
    kept.begin(0.1, 4, norm)
    assert torch.equal(kept.compensate(0, a), a)
    for per in ("model", "unit"):
        kept = memories.build("dgc", clip=1.0, clip_per=per)
        kept.begin(0.1, 4, lambda: math.nan)
        assert torch.equal(kept.compensate(0, torch.tensor([math.nan, 7.0])).isnan(), torch.tensor([True, False]))
        assert float(kept.compensate(0, torch.tensor([math.nan, 7.0]))[1]) > 7.0


def test_clipping_does_not_depend_on_how_torch_adds() -> None:
    """The same bits on every host: the norm is a sum in an order of our own."""
    g = draw_gaussian((70_001,))
    norm = math.sqrt(sums.moments(g)[2])
    assert norm != float(torch.linalg.vector_norm(g, dtype=torch.float64))
    kept = memories.build("dgc", clip=1.0, clip_per="unit", momentum=0.0)
    assert torch.equal(kept.compensate(0, g), torch.zeros_like(g).add_(g, alpha=1.0 / norm))


def test_clipping_needs_the_norm_of_the_step() -> None:
    with pytest.raises(RuntimeError, match="begin"):
        memories.build("dgc", clip=1.0).compensate(0, torch.ones(3))
