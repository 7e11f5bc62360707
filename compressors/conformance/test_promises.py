"""Check for every compressor what `compressors.base` promises."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch

from compressors import Compressor, InvalidParameter, build, registry
from compressors.conformance.cases import (
    MATRIX,
    METHODS,
    depends_on_past,
    draw_gaussian,
    every_compressor,
    every_shape,
    in_turn,
    make_key,
    renew,
)
from compressors.kernels import backend
from compressors.kernels.warm_up import warm_up
from compressors.unit_state import Stateful


def are_equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))


# Payloads


@every_compressor
@every_shape
def test_the_payload_is_as_long_as_declared(compressor: Compressor, shape: tuple[int, ...]) -> None:
    bound, size = compressor.payload_bound(shape), compressor.payload_size(shape)
    for step in range(20 if size is None else 3):
        payload = compressor.compress(draw_gaussian(shape, step), make_key(step))
        assert payload.dtype is torch.uint8 and payload.dim() == 1
        assert len(payload) <= bound
        assert size is None or len(payload) == size


@every_compressor
@every_shape
def test_the_payload_can_be_written_into_a_message(compressor: Compressor, shape: tuple[int, ...]) -> None:
    x = draw_gaussian(shape)
    alone = compressor.compress(x, make_key())
    for offset in range(4):
        message = torch.full((offset + compressor.payload_bound(shape) + 8,), 0xA5, dtype=torch.uint8)
        payload = renew(compressor).compress(x, make_key(), message[offset:])
        assert payload.data_ptr() == message[offset:].data_ptr() or not len(payload)
        assert torch.equal(payload, alone)
        assert (message[:offset] == 0xA5).all() and (message[offset + compressor.payload_bound(shape) :] == 0xA5).all()
        assert torch.equal(compressor.decompress(payload, x, make_key()), compressor.decompress(alone, x, make_key()))


@every_compressor
def test_a_message_that_cannot_hold_the_payload_is_refused(compressor: Compressor) -> None:
    x = draw_gaussian((513,))
    size = len(compressor.compress(x, make_key()))
    for message in (torch.empty(size - 1, dtype=torch.uint8), torch.empty(size), torch.empty(9, size).byte()):
        with pytest.raises(ValueError, match="out"):
            compressor.compress(x, make_key(), message)


@every_compressor
def test_the_tensor_is_not_changed(compressor: Compressor) -> None:
    x = draw_gaussian(MATRIX)
    before = x.clone()
    compressor.compress(x, make_key())
    assert torch.equal(x, before)


@every_compressor
def test_integers_are_refused(compressor: Compressor) -> None:
    with pytest.raises(TypeError, match="floating"):
        compressor.compress(torch.arange(12).view(3, 4), make_key())


@every_compressor
def test_sizes_beyond_two_to_the_31_are_not_cut_off(compressor: Compressor) -> None:
    for small, factor in (((2**12, 2**10), 2**10), ((2**20,), 2**15)):
        huge = (small[0] * factor, *small[1:])
        assert compressor.payload_bound(small) < compressor.payload_bound(huge)
        assert compressor.payload_bound(huge) <= factor * compressor.payload_bound(small)


# Sums


def join_workers(compressor: Compressor, gradients: list[torch.Tensor]) -> list[Compressor]:
    """Return a worker for each gradient, joined and agreed in the first step as by an exchange."""
    found = [renew(compressor) for _ in gradients]
    for worker in found:
        worker.join(len(gradients))
    if compressor.needs_agreement(make_key()):
        statistics = [
            worker.statistics(x, make_key(worker=i)) for i, (worker, x) in enumerate(zip(found, gradients, strict=True))
        ]
        assert all(one.dtype is torch.float32 and one.dim() == 1 for one in statistics)
        for worker in found:
            worker.agree(make_key(), torch.stack(statistics).amax(0))
    return found


@every_compressor
@in_turn(shape=[(1,), (513,), (0, 3), MATRIX])
def test_payloads_of_summable_compressors_can_be_added(compressor: Compressor, shape: tuple[int, ...]) -> None:
    if compressor.sum_dtype is None:
        pytest.skip("not summable")
    dtype = getattr(torch, compressor.sum_dtype)
    gradients = [draw_gaussian(shape, 1), 5 * draw_gaussian(shape, 2), 0.1 * draw_gaussian(shape, 3)]
    found = join_workers(compressor, gradients)
    payloads = [
        worker.compress(x, make_key(worker=i)) for i, (worker, x) in enumerate(zip(found, gradients, strict=True))
    ]
    total = torch.stack([payload.view(dtype) for payload in payloads]).sum(0, dtype=dtype).view(torch.uint8)
    decoded = [worker.decompress(one, gradients[0], make_key()) for worker, one in zip(found, payloads, strict=True)]
    apart = torch.stack(decoded).sum(0)
    tolerance = 1e-2 if dtype.itemsize == 2 else 1e-5
    for worker in found:
        assert torch.allclose(worker.decompress(total, gradients[0], make_key(worker=7)), apart, tolerance, tolerance)


@every_compressor
def test_all_workers_use_the_agreement(compressor: Compressor) -> None:
    compressor.join(2)
    if not compressor.needs_agreement(make_key()):
        compressor.agree(make_key(), torch.zeros(0))  # is not asked for, and does no harm
        return
    x, large = draw_gaussian(MATRIX, 1), 10 * draw_gaussian(MATRIX, 2)
    one, other = join_workers(compressor, [x, large])
    payload, _ = one.compress(x, make_key()), other.compress(large, make_key(worker=1))
    assert torch.equal(other.decompress(payload, x, make_key()), one.decompress(payload, x, make_key()))
    alone = join_workers(compressor, [x, x])[0]
    assert not torch.equal(alone.compress(x, make_key()), payload)
    # the same agreement however large the others are: its statistics say all that matters
    assert torch.equal(join_workers(compressor, [x, -large])[0].compress(x, make_key()), payload)
    bad = large.clone()
    bad[3, 4] = math.nan
    try:
        one, other = join_workers(compressor, [x, bad])
        one.compress(x, make_key())
        assert one.decompress(other.compress(bad, make_key(worker=1)), x, make_key()).isnan()[3, 4]
    except FloatingPointError as error:
        assert "NaN or Inf" in str(error) and compressor.name in str(error)


# Kernels


def make_values(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    x = draw_gaussian(shape, 5)
    bad = x.clone()
    bad.view(-1)[: x.numel() // 2 : 3] = math.nan
    return {
        "normal": x,
        "wide": x * torch.logspace(-44, 30, math.prod(shape)).view(shape),
        "sparse": x * (draw_gaussian(shape, 6) > 2),
        "ties": (x * 3).round(),
        "bad": bad,
    }


@every_compressor
@every_shape
def test_kernels_and_plain_torch_give_the_same_bits(compressor: Compressor, shape: tuple[int, ...]) -> None:
    base = draw_gaussian(shape, 7)
    for values, x in make_values(shape).items():
        found: dict[str, list[torch.Tensor]] = {"auto": [], "torch": []}
        for kernels, tensors in found.items():
            with backend.use(kernels):
                one = renew(compressor)
                for step in range(2 if isinstance(one, Stateful) else 1):  # the second with what the first has left
                    try:
                        payload, decoded = one.compress(x, make_key(step)), base.clone()
                        one.decompress_add(payload, decoded, make_key(step), 0.3)
                        tensors += [payload, decoded.nan_to_num(7.0)]
                    except FloatingPointError:
                        assert values == "bad"
                        tensors.append(torch.zeros(0))
        assert are_equal(found["auto"], found["torch"]), values


# Determinism


@every_compressor
def test_the_same_key_gives_the_same_bytes(compressor: Compressor) -> None:
    x = draw_gaussian(MATRIX)
    again = [renew(compressor).compress(x, make_key(5)) for _ in range(2)]
    assert torch.equal(*again)


@every_compressor
@in_turn(shape=[(200, 700), (700, 200), (60_001,)])
def test_the_number_of_threads_does_not_matter(compressor: Compressor, shape: tuple[int, ...]) -> None:
    """Use sizes at which torch's sums of float32 depend on it: from 32768 elements on."""
    x = draw_gaussian(shape)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            one = renew(compressor)
            payload = one.compress(x, make_key())
            results.append((payload, one.decompress(payload, x, make_key())))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for payload, decoded in results[1:]:
        assert torch.equal(payload, results[0][0])
        assert torch.equal(decoded, results[0][1])


@every_compressor
def test_threads_can_compress_at_the_same_time(compressor: Compressor) -> None:
    x = draw_gaussian((60, 500))
    expected = [renew(compressor).compress(x, make_key(step)) for step in range(8)]
    found: dict[int, torch.Tensor] = {}

    def work(step: int) -> None:
        torch.set_num_threads(2)
        found[step] = renew(compressor).compress(x, make_key(step))

    threads = [threading.Thread(target=work, args=(step,)) for step in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[step], expected[step]) for step in range(8))


@every_compressor
def test_global_generators_are_left_alone(compressor: Compressor) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    payload = compressor.compress(draw_gaussian(MATRIX), make_key())
    compressor.decompress(payload, torch.zeros(MATRIX), make_key())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]
    assert random.getstate() == before[2]


UNITS = (3, 1)
BEFORE, AFTER, SUDDENLY = 7, 12, 11
"""Steps: enough for what is done in every fifth to have been done, and to show; first in gradients that what is
remembered still fits, then in others."""


def compress_steps(compressor: Compressor, steps: range) -> dict[int, list[torch.Tensor]]:
    """Return payloads and Q(x) of two units whose gradients grow, turn, get heavier tails and move the parameters."""
    shape = (60, 80) if isinstance(compressor, Stateful) else MATRIX
    found: dict[int, list[torch.Tensor]] = {unit: [] for unit in UNITS}
    for step in steps:
        for unit in UNITS:
            x = draw_gaussian(shape, 100 * unit + step)
            x = x * (1.0 + 0.02 * step) * x.abs() ** (step % 4 if step >= SUDDENLY else 0) + draw_gaussian(shape, unit)
            one = make_key(step, unit=unit)
            if compressor.needs_movement:
                compressor.observe_movement(unit, float(unit + step * step), 0.5)
            payload = compressor.compress(x, one)
            found[unit] += [payload, compressor.decompress(payload, x, one)]
    return found


@every_compressor
def test_the_state_can_be_saved_in_the_middle_of_a_run(compressor: Compressor) -> None:
    first, second, third, nobody = (renew(compressor) for _ in range(4))
    last = compress_steps(first, range(BEFORE))
    saved = first.state_dict()
    kept = copy.deepcopy(saved)
    second.load_state_dict(saved)
    for unit in UNITS:
        payload, q = last[unit][-2:]
        assert torch.equal(second.decompress(payload, q, make_key(BEFORE - 1, unit=unit)), q)
    expected, again = (compress_steps(one, range(BEFORE, BEFORE + AFTER)) for one in (first, second))
    third.load_state_dict(saved)  # which neither has changed in the meantime
    assert set(saved) == set(kept) == set(third.state_dict())
    for text, named in third.state_dict().items():
        assert set(named) == set(kept[text])
        assert all(torch.equal(named[name], kept[text][name]) for name in named)
    without = compress_steps(nobody, range(BEFORE, BEFORE + AFTER))
    for unit in UNITS:
        assert are_equal(again[unit], expected[unit])
        assert are_equal(without[unit], expected[unit]) != depends_on_past(compressor)


@every_compressor
def test_elements_that_a_sparsifier_does_not_send_are_zero(compressor: Compressor) -> None:
    """Check what the memory dgc relies on: it takes elements that are not zero for sent."""
    if not compressor.sparse or compressor.law(MATRIX).omega == 0.0:
        pytest.skip("sends something of every element")
    spiked = 1e-6 * draw_gaussian(MATRIX)
    spiked[3, 4] = 1.0
    leaves_out = False
    for x in (spiked, draw_gaussian(MATRIX)):
        payload = renew(compressor).compress(x, make_key(1))
        sent = compressor.decompress(payload, x, make_key(1)) != 0
        leaves_out = leaves_out or not sent.all()
        tell = getattr(compressor, "find_sent", None)
        told = None if tell is None else tell(payload, x.numel(), make_key(1))
        if told is not None:
            assert not torch.isin(sent.view(-1).nonzero()[:, 0], told, invert=True).any()
    assert leaves_out


@every_compressor
def test_an_invalid_state_is_refused_and_changes_nothing(compressor: Compressor) -> None:
    compressor = renew(compressor)
    compressor.compress(draw_gaussian(MATRIX), make_key())
    state = compressor.state_dict()
    wrong: list[Any] = [
        None,
        [],
        3,
        {"nonsense": 1},
        {"0": None},
        {"0": {"elsewhere": torch.zeros(2)}},
        {0: {}},
        {"one": {}},
    ]
    if state:
        assert isinstance(compressor, Stateful) and set(state["0"]) <= set(compressor.remembers)
        for name in state["0"]:
            wrong += [{"0": {**state["0"], name: value}} for value in (None, 1.0, [1.0])]
            if name not in compressor.optional and len(state["0"]) > 1:
                wrong.append({"0": {other: value for other, value in state["0"].items() if other != name}})
    for one in wrong:
        with pytest.raises(ValueError, match=rf"^{compressor.name} keeps .*, but was given "):
            compressor.load_state_dict(one)
        after = compressor.state_dict()
        assert after.keys() == state.keys()
        assert all(torch.equal(after[unit][name], value) for unit in state for name, value in state[unit].items())


# Decoding


@every_compressor
@every_shape
def test_decoding_accumulates_with_a_weight(compressor: Compressor, shape: tuple[int, ...]) -> None:
    x, base = draw_gaussian(shape, 1), draw_gaussian(shape, 2)
    payload = compressor.compress(x, make_key())
    q = compressor.decompress(payload, x, make_key())
    assert q.shape == x.shape and q.dtype == x.dtype
    for weight in (1.0, 0.25, -3.0):
        out = base.clone()
        compressor.decompress_add(payload, out, make_key(), weight)
        assert torch.allclose(out, base + weight * q, rtol=1e-5, atol=1e-5)
        added = torch.zeros_like(base)
        compressor.decompress_add(payload, added, make_key(), weight)
        compressor.decompress_to(payload, out.fill_(math.nan), make_key(), weight)
        assert torch.equal(out, added)
    assert not compressor.is_exact(shape, make_key()) or torch.equal(q, x)


@pytest.mark.parametrize("name", [name for name in METHODS if registry()[name].joins])
def test_payloads_of_joined_units_are_joined(name: str) -> None:
    first, second, compressor = draw_gaussian(MATRIX, 1), draw_gaussian((514,), 2), build(name)
    apart = [compressor.compress(x, make_key()) for x in (first, second)]
    assert torch.equal(compressor.compress(torch.cat((first.flatten(), second)), make_key()), torch.cat(apart))


def lay_out(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return tensors equal to `x`, which is 4-D, in other memory layouts."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1])
    wide[..., ::2] = x
    raw = bytearray(4 * x.numel() + 1)
    odd = torch.frombuffer(raw, dtype=torch.float32, count=x.numel(), offset=1).view(x.shape)
    odd.copy_(x)
    flat = torch.zeros(x.numel() + 3)
    flat[3:] = x.reshape(-1)
    return {
        "transposed": x.transpose(0, 3).contiguous().transpose(0, 3),
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "every second": wide[..., ::2],
        "odd address": odd,
        "view of a flat buffer": flat[3:].view(x.shape),
        "requires grad": x.clone().requires_grad_(),
    }


@every_compressor
def test_the_layout_in_memory_does_not_matter(compressor: Compressor) -> None:
    x = draw_gaussian((16, 12, 5, 3))
    payload = compressor.compress(x, make_key())
    base = draw_gaussian(x.shape, 2)
    expected = base.clone()
    compressor.decompress_add(payload, expected, make_key(), 0.5)
    for name, other in lay_out(x).items():
        assert torch.equal(renew(compressor).compress(other, make_key()), payload), name
    for name, out in lay_out(base).items():
        compressor.decompress_add(payload, out, make_key(), 0.5)
        assert torch.allclose(out, expected, atol=1e-6), name


@every_compressor
@in_turn(dtype=[torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_travel_as_float32(compressor: Compressor, dtype: torch.dtype) -> None:
    x = draw_gaussian(MATRIX).to(dtype)
    payload = compressor.compress(x, make_key())
    assert torch.equal(payload, renew(compressor).compress(x.float(), make_key()))
    out = torch.ones(MATRIX, dtype=dtype)
    compressor.decompress_add(payload, out, make_key(), 0.5)
    assert out.dtype is dtype
    expected = torch.ones(MATRIX)
    compressor.decompress_add(payload, expected, make_key(), 0.5)
    once = max(1e-5, torch.finfo(dtype).eps)  # a last bit of float32 may decide how the sum is rounded
    assert torch.allclose(out.float(), expected.to(dtype).float(), rtol=once, atol=1e-6)


# Values


@every_compressor
@every_shape
def test_zeros_stay_zeros(compressor: Compressor, shape: tuple[int, ...]) -> None:
    for sign in (1.0, -1.0):
        x = torch.zeros(shape) * sign
        assert not compressor.decompress(compressor.compress(x, make_key()), x, make_key()).any()


@every_compressor
def test_flushed_denormals_give_numbers(compressor: Compressor) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't")
    try:
        for exponent in (1e-40, 1e-38):
            x = draw_gaussian(MATRIX) * exponent
            q = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
            assert q.isfinite().all() and (compressor.scale_free or q.abs().max() < 1e-35)
    finally:
        torch.set_flush_denormal(False)


@every_compressor
@in_turn(bad=[math.nan, math.inf, -math.inf], shape=[(1,), (600,), (1, 3), (3, 1), MATRIX])
def test_nan_and_inf_are_never_turned_into_numbers(compressor: Compressor, bad: float, shape: tuple[int, ...]) -> None:
    x = draw_gaussian(shape)
    x.view(-1)[-1] = bad
    try:
        payload = compressor.compress(x, make_key())
    except FloatingPointError as error:  # raising is the other permitted answer
        assert "NaN or Inf" in str(error) and compressor.name in str(error)
        return
    size = compressor.payload_size(shape)
    assert size is None or len(payload) == size
    assert len(payload) <= compressor.payload_bound(shape)
    for weight in (1.0, -0.5):
        out = torch.zeros(shape)
        compressor.decompress_add(payload, out, make_key(), weight)
        assert not out.view(-1)[-1].isfinite()


# Hyper-parameters

WRONG: list[Any] = [None, "no such word", math.nan, math.inf, -1, 0, 0.5, -0.5, True, 10**12, [3]]


@pytest.mark.parametrize("name", METHODS)
def test_every_field_refuses_values_out_of_range(name: str) -> None:
    for field in dataclasses.fields(registry()[name]):
        assert "valid" in field.metadata, f"{name}.{field.name} has no range: see gradsweep/options/parameters.py"
        valid = field.metadata["valid"]
        refused = [value for value in WRONG if not valid.test(value)]
        assert refused, f"{name}.{field.name} takes anything"
        for value in refused:
            with pytest.raises(InvalidParameter) as error:
                build(name, **{field.name: value})
            assert str(error.value) == f"{field.name}={value}: valid is {valid.words}"


@pytest.mark.parametrize("name", METHODS)
def test_unknown_hyper_parameters_are_named(name: str) -> None:
    with pytest.raises(InvalidParameter, match="no_such_option=1"):
        build(name, no_such_option=1)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidParameter, match="name=foo: valid is one of the .* that `python -m compressors list` lists"
    ):
        build("foo")


@every_compressor
def test_compressors_are_values(compressor: Compressor) -> None:
    name = compressor.name
    options = {field.name: getattr(compressor, field.name) for field in dataclasses.fields(compressor) if field.init}
    assert compressor == build(name, **options)
    assert type(compressor) is registry()[name]
    assert type(compressor).__doc__ and (compressor.paper or name not in registry().ours)
    assert all(build(alias, **options) == compressor for alias in compressor.aliases)
    with pytest.raises(dataclasses.FrozenInstanceError):
        compressor.name = "other"  # type: ignore[misc]


@every_compressor
def test_warm_up_may_be_called_at_any_time(compressor: Compressor) -> None:
    warm_up(compressor)
    compressor.compress(draw_gaussian(MATRIX), make_key())
    warm_up(compressor)
