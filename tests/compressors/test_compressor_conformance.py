"""One suite that every compressor passes: what `compressors.base` promises, checked for all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compressors import Compressor, CorruptPayload, InvalidParameter, Key, build, registry
from compressors.base import Stateful
from compressors.kernels import backend
from tests.compressors.cases import (
    CASES,
    case_name,
    critical_z,
    every_compressor,
    every_shape,
    fresh,
    gaussian,
    key,
    largest_deviation,
)

MATRIX = (24, 40)
any_input = settings(  # every example builds its own compressor where state would matter
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DRAWS = 500


def draws(compressor: Compressor, x: torch.Tensor, keys: list[Key]) -> torch.Tensor:
    """Q(x) for each key: (len(keys), numel)."""
    return torch.stack([sent(fresh(compressor), x, one).reshape(-1) for one in keys])


def sent(compressor: Compressor, x: torch.Tensor, one: Key) -> torch.Tensor:
    """Q(x)."""
    return compressor.decompress(compressor.compress(x, one), x, one)


# Payloads


@every_compressor
@every_shape
def test_the_payload_is_as_long_as_declared(compressor: Compressor, shape: tuple[int, ...]) -> None:
    bound, size = compressor.payload_bound(shape), compressor.payload_size(shape)
    for step in range(20):
        payload = compressor.compress(gaussian(shape, step), key(step))
        assert payload.dtype is torch.uint8 and payload.dim() == 1
        assert len(payload) <= bound
        assert size is None or len(payload) == size


@every_compressor
@every_shape
def test_the_payload_can_be_written_into_a_message(compressor: Compressor, shape: tuple[int, ...]) -> None:
    x = gaussian(shape)
    alone = compressor.compress(x, key())
    for offset in range(4):
        message = torch.full((offset + compressor.payload_bound(shape) + 8,), 0xA5, dtype=torch.uint8)
        payload = fresh(compressor).compress(x, key(), message[offset:])
        assert payload.data_ptr() == message[offset:].data_ptr() or not len(payload)
        assert torch.equal(payload, alone)
        assert (message[:offset] == 0xA5).all() and (message[offset + compressor.payload_bound(shape) :] == 0xA5).all()
        assert torch.equal(compressor.decompress(payload, x, key()), compressor.decompress(alone, x, key()))


@every_compressor
def test_a_message_that_cannot_hold_the_payload_is_refused(compressor: Compressor) -> None:
    x = gaussian((513,))
    size = len(compressor.compress(x, key()))
    for message in (torch.empty(size - 1, dtype=torch.uint8), torch.empty(size), torch.empty(9, size).byte()):
        with pytest.raises(ValueError, match="out"):
            compressor.compress(x, key(), message)


@every_compressor
def test_the_tensor_is_not_changed(compressor: Compressor) -> None:
    x = gaussian(MATRIX)
    before = x.clone()
    compressor.compress(x, key())
    assert torch.equal(x, before)


@every_compressor
def test_integers_are_refused(compressor: Compressor) -> None:
    with pytest.raises(TypeError, match="floating"):
        compressor.compress(torch.arange(12).view(3, 4), key())


@every_compressor
def test_sizes_beyond_two_to_the_31_are_not_cut_off(compressor: Compressor) -> None:
    for small, factor in (((2**12, 2**10), 2**10), ((2**20,), 2**15)):
        huge = (small[0] * factor, *small[1:])
        assert compressor.payload_bound(small) < compressor.payload_bound(huge)
        assert compressor.payload_bound(huge) <= factor * compressor.payload_bound(small)


# Laws


@every_compressor
def test_unbiased_means_unbiased(compressor: Compressor) -> None:
    """z-test of E[<d, Q(x)>] = <d, x> in 60 directions d; a correct compressor fails once in 10^6 runs."""
    for shape in (MATRIX, (300,)):
        if not compressor.law(shape).unbiased:
            continue
        x = gaussian(shape, 1) * torch.linspace(0.01, 1.0, math.prod(shape)).view(shape)
        z, error = bias(compressor, x)
        assert z < critical_z(2 * 60 * len(CASES))
        assert error < 1e-5


HARD = {
    "normal": gaussian,
    "heavy-tailed": lambda shape: gaussian(shape) / gaussian(shape, 1).abs().clamp(min=1e-3),
    "all equal": lambda shape: torch.full(shape, -0.7),
    "one-hot": lambda shape: one_hot(shape),
    "almost one-hot": lambda shape: one_hot(shape) + 1e-4,
    "two sizes": lambda shape: torch.where(gaussian(shape, 2) > 1, 1.0, 0.01),
}


@every_compressor
@pytest.mark.parametrize("values", HARD)
@pytest.mark.parametrize("shape", [(1,), (300,), (1500,), MATRIX, (8, 3, 3, 3)], ids=str)
def test_the_error_is_within_the_stated_law(compressor: Compressor, shape: tuple[int, ...], values: str) -> None:
    """E ||Q(x) - x||^2 against omega and delta: the mean over draws may exceed it by chance, by 5.5 standard
    errors once in 10^7 tests. Where Q draws nothing that is zero, and the law holds for this very x."""
    law = compressor.law(shape)
    if law.omega is law.delta is law.kappa is None:
        return
    x = HARD[values](shape)
    energy = float(x.double().square().sum())
    is_random = draws_numbers(compressor, shape)
    sent = draws(compressor, x, KEYS if is_random else KEYS[:2])
    errors = (sent.double() - x.reshape(-1)).square().sum(1)
    by_chance = 5.5 * float(errors.std()) / math.sqrt(len(errors)) + 1e-5 * energy
    if law.omega is not None:
        assert float(errors.mean()) <= law.omega * energy + by_chance
    if law.delta is not None:
        assert 0 < law.delta <= 1
        if is_random:
            # One element can be all of x, and kept so seldom that no draw has seen it: an error between 0 and
            # ||x||^2 whose mean is 1 - delta of that deviates by at most this (Bhatia and Davis, 2000).
            rare = 5.5 * math.sqrt(law.delta * (1 - law.delta) / len(errors)) * energy
            by_chance = max(by_chance, rare + 1e-5 * energy)
        assert float(errors.mean()) <= (1 - law.delta) * energy + by_chance
    if law.kappa is not None:
        assert float(errors.max()) <= law.kappa**2 * (1 + 1e-5)


KEYS = [key(step) for step in range(60)]


@functools.cache
def draws_numbers(compressor: Compressor, shape: tuple[int, ...]) -> bool:
    """Whether Q of a tensor without equal elements depends on the key."""
    x = gaussian(shape, 11)
    return len({bytes(fresh(compressor).compress(x, key(step)).tolist()) for step in range(0, 40, 2)}) > 1


@every_compressor
@any_input
@given(
    st.lists(st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, -0.0, 1e-30, 1e20])), min_size=1),
    st.integers(0, 1000),
)
def test_a_contraction_that_draws_nothing_holds_for_all_inputs(
    compressor: Compressor, values: list[float], step: int
) -> None:
    x = torch.tensor(values)
    law = compressor.law(x.shape)
    payload = fresh(compressor).compress(x, key(step))
    if law.delta is None or not torch.equal(payload, fresh(compressor).compress(x, key(step + 1))):
        return
    if draws_numbers(compressor, x.shape):  # and the same of equal elements twice
        return
    error = (compressor.decompress(payload, x, key(step)).double() - x.double()).norm()
    assert error <= math.sqrt(1 - law.delta) * x.double().norm() * (1 + 1e-5) + 1e-30


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


PAIRS = 150
FIELDS = ("seed", "worker", "step", "unit")
# Hoeffding for the mean of PAIRS numbers in [-1, 1]: beyond this once in 10^6 runs of the whole suite.
MOST_BY_CHANCE = math.sqrt(2 * math.log(2 * len(FIELDS) * len(CASES) / 1e-6) / PAIRS)


@every_compressor
def test_errors_of_different_keys_are_independent(compressor: Compressor) -> None:
    x = gaussian(MATRIX, 4)
    if torch.equal(*draws(compressor, x, [key(0), key(1)])):
        pytest.skip("not random")
    found = dependence(compressor, x)
    if compressor.shared_draws:
        assert torch.equal(*draws(compressor, x, [key(worker=0), key(worker=1)]))
        del found["worker"]
    assert max(found.values()) < MOST_BY_CHANCE


def dependence(compressor: Compressor, x: torch.Tensor) -> dict[str, float]:
    """How much more alike the errors of two keys are that differ in this field only, than those of any two."""

    def directions(keys: list[Key]) -> torch.Tensor:
        return torch.nn.functional.normalize(draws(compressor, x, keys) - x.reshape(-1))

    keys = [key(step, seed=3, worker=3, unit=3) for step in range(PAIRS)]
    errors = directions(keys)
    found = {}
    for field in FIELDS:
        cosines = errors @ directions([dataclasses.replace(k, **{field: 1000 + getattr(k, field)}) for k in keys]).T
        alike = cosines.diagonal()
        by_chance = (cosines.sum() - alike.sum()) / (PAIRS * (PAIRS - 1))
        found[field] = float((alike.mean() - by_chance).abs())
    return found


def test_the_test_of_independence_finds_a_dependence() -> None:
    class SameOnAllWorkers(type(build("qsgd"))):  # type: ignore[misc]
        def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
            return super().compress(x, dataclasses.replace(key, worker=0), out)

    found = dependence(SameOnAllWorkers(), gaussian(MATRIX, 4))
    assert found.pop("worker") > MOST_BY_CHANCE
    assert max(found.values()) < MOST_BY_CHANCE


@every_compressor
def test_payloads_of_summable_compressors_can_be_added(compressor: Compressor) -> None:
    if compressor.sum_dtype is None:
        pytest.skip("not summable")
    compressor.join(2)
    dtype = getattr(torch, compressor.sum_dtype)
    x, y = gaussian(MATRIX, 1), gaussian(MATRIX, 2)
    if compressor.needs_agreement(key()):
        compressor.agree(key(), torch.maximum(*(compressor.statistics(one, key()) for one in (x, y))))
    a, b = compressor.compress(x, key()), compressor.compress(y, key(worker=1))
    total = (a.view(dtype) + b.view(dtype)).view(torch.uint8)
    apart = compressor.decompress(a, x, key()) + compressor.decompress(b, y, key())
    tolerance = 1e-2 if dtype.itemsize == 2 else 1e-5
    assert torch.allclose(compressor.decompress(total, x, key(worker=7)), apart, tolerance, tolerance)


# Kernels


@every_compressor
@every_shape
@pytest.mark.parametrize("values", ["normal", "wide", "sparse", "ties", "bad"])
def test_kernels_and_plain_torch_give_the_same_bits(
    compressor: Compressor, shape: tuple[int, ...], values: str
) -> None:
    x = gaussian(shape, 5)
    if values == "wide":
        x *= torch.logspace(-44, 30, math.prod(shape)).view(shape)
    elif values == "sparse":
        x *= gaussian(shape, 6) > 2
    elif values == "ties":
        x = (x * 3).round()
    elif values == "bad":
        x.view(-1)[: x.numel() // 2 : 3] = math.nan
    payloads, decoded = [], []
    for kernels in ("auto", "torch"):
        with backend.use(kernels):
            one = fresh(compressor)
            try:
                for step in range(2):  # the second with the state that the first has left
                    payloads.append(one.compress(x, key(step)))
                    decoded.append(gaussian(shape, 7))
                    one.decompress_add(payloads[-1], decoded[-1], key(step), 0.3)
            except FloatingPointError:
                assert values == "bad"
                payloads.append(torch.zeros(0).byte())
                decoded.append(torch.zeros(0))
    half = len(payloads) // 2
    for number in range(half):
        assert torch.equal(payloads[number], payloads[half + number])
        assert torch.equal(decoded[number].nan_to_num(7.0), decoded[half + number].nan_to_num(7.0))


# Determinism


@every_compressor
def test_the_same_key_gives_the_same_bytes(compressor: Compressor) -> None:
    x = gaussian(MATRIX)
    again = [fresh(compressor).compress(x, key(5)) for _ in range(2)]
    assert torch.equal(*again)


@every_compressor
@pytest.mark.parametrize("shape", [(200, 700), (700, 200), (60_001,)], ids=str)
def test_the_number_of_threads_does_not_matter(compressor: Compressor, shape: tuple[int, ...]) -> None:
    x = gaussian(shape)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            one = fresh(compressor)
            payload = one.compress(x, key())
            results.append((payload, one.decompress(payload, x, key())))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for payload, decoded in results[1:]:
        assert torch.equal(payload, results[0][0])
        assert torch.equal(decoded, results[0][1])


@every_compressor
def test_threads_can_compress_at_the_same_time(compressor: Compressor) -> None:
    x = gaussian((60, 500))
    expected = [fresh(compressor).compress(x, key(step)) for step in range(8)]
    found: dict[int, torch.Tensor] = {}

    def work(step: int) -> None:
        torch.set_num_threads(2)
        found[step] = fresh(compressor).compress(x, key(step))

    threads = [threading.Thread(target=work, args=(step,)) for step in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[step], expected[step]) for step in range(8))


@every_compressor
def test_global_generators_are_left_alone(compressor: Compressor) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    payload = compressor.compress(gaussian(MATRIX), key())
    compressor.decompress(payload, torch.zeros(MATRIX), key())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]
    assert random.getstate() == before[2]


@every_compressor
def test_the_state_can_be_saved_in_the_middle_of_a_run(compressor: Compressor) -> None:
    first, second = fresh(compressor), fresh(compressor)
    for step in range(3):
        first.compress(gaussian(MATRIX, step), key(step))
    second.load_state_dict(first.state_dict())
    x = gaussian(MATRIX, 3)
    assert torch.equal(first.compress(x, key(3)), second.compress(x, key(3)))
    with pytest.raises(ValueError, match="nonsense"):
        fresh(compressor).load_state_dict({"nonsense": 1})


@every_compressor
def test_what_a_sparsifier_does_not_send_is_zero(compressor: Compressor) -> None:
    """The memory dgc takes what is not zero for sent."""
    if not compressor.sparse or compressor.law(MATRIX).omega == 0.0:
        pytest.skip("sends something of every element")
    spiked = 1e-6 * gaussian(MATRIX)
    spiked[3, 4] = 1.0
    leaves_out = False
    for x in (spiked, gaussian(MATRIX)):
        payload = fresh(compressor).compress(x, key(1))
        sent = compressor.decompress(payload, x, key(1)) != 0
        leaves_out = leaves_out or not sent.all()
        tell = getattr(compressor, "sent_indices", None)
        told = None if tell is None else tell(payload, x.numel(), key(1))
        if told is not None:
            assert not torch.isin(sent.view(-1).nonzero()[:, 0], told, invert=True).any()
    assert leaves_out


@every_compressor
def test_what_is_no_state_is_refused_and_changes_nothing(compressor: Compressor) -> None:
    compressor = fresh(compressor)
    compressor.compress(gaussian(MATRIX), key())
    state = compressor.state_dict()
    wrong: list[Any] = [None, [], 3, {"0": None}, {"0": {"elsewhere": torch.zeros(2)}}, {0: {}}, {"one": {}}]
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
    x, base = gaussian(shape, 1), gaussian(shape, 2)
    payload = compressor.compress(x, key())
    q = compressor.decompress(payload, x, key())
    assert q.shape == x.shape and q.dtype == x.dtype
    for weight in (1.0, 0.25, -3.0):
        out = base.clone()
        compressor.decompress_add(payload, out, key(), weight)
        assert torch.allclose(out, base + weight * q, rtol=1e-5, atol=1e-5)


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Tensors equal to `x`, which is 4-D, in other memory layouts."""
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
    x = gaussian((16, 12, 5, 3))
    payload = compressor.compress(x, key())
    base = gaussian(x.shape, 2)
    expected = base.clone()
    compressor.decompress_add(payload, expected, key(), 0.5)
    for name, other in layouts(x).items():
        assert torch.equal(fresh(compressor).compress(other, key()), payload), name
    for name, out in layouts(base).items():
        compressor.decompress_add(payload, out, key(), 0.5)
        assert torch.allclose(out, expected, atol=1e-6), name


@every_compressor
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes_travel_as_float32(compressor: Compressor, dtype: torch.dtype) -> None:
    x = gaussian(MATRIX).to(dtype)
    payload = compressor.compress(x, key())
    assert torch.equal(payload, fresh(compressor).compress(x.float(), key()))
    out = torch.ones(MATRIX, dtype=dtype)
    compressor.decompress_add(payload, out, key(), 0.5)
    assert out.dtype is dtype
    expected = torch.ones(MATRIX)
    compressor.decompress_add(payload, expected, key(), 0.5)
    assert torch.allclose(out.float(), expected.to(dtype).float(), atol=1e-6)


# Values


@every_compressor
@every_shape
def test_zeros_stay_zeros(compressor: Compressor, shape: tuple[int, ...]) -> None:
    for sign in (1.0, -1.0):
        x = torch.zeros(shape) * sign
        assert not compressor.decompress(compressor.compress(x, key()), x, key()).any()


def one_hot(shape: tuple[int, ...]) -> torch.Tensor:
    x = torch.zeros(shape)
    x.view(-1)[x.numel() // 2] = -3.0
    return x


SPECIAL = {
    "all equal": lambda shape: torch.full(shape, -0.7),
    "one-hot": one_hot,
    "denormal": lambda shape: gaussian(shape) * 1e-40,
    "smallest": lambda shape: torch.full(shape, 1e-45),
    "1e30": lambda shape: gaussian(shape) * 1e30,
    "huge and tiny": lambda shape: gaussian(shape) * torch.logspace(-40, 30, math.prod(shape)).view(shape),
}


@every_compressor
@pytest.mark.parametrize("shape", [(1,), (600,), (1, 1), *[MATRIX]], ids=str)
@pytest.mark.parametrize("values", SPECIAL)
def test_special_values_give_numbers_of_their_size(compressor: Compressor, shape: tuple[int, ...], values: str) -> None:
    x = SPECIAL[values](shape)
    for step in range(5):
        q = compressor.decompress(compressor.compress(x, key(step)), x, key(step))
        beyond = x.abs() > compressor.largest
        assert q[~beyond].isfinite().all() and q[beyond].isinf().all()
        if compressor.scale_free or beyond.any():
            continue
        # No more than a budget of 0.4 spread over 24 atoms can blow one up, or one level all elements.
        assert q.double().norm() <= 1e3 * x.double().norm()


@every_compressor
def test_a_processor_that_flushes_denormals_gives_numbers_too(compressor: Compressor) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't")
    try:
        for exponent in (1e-40, 1e-38):
            x = gaussian(MATRIX) * exponent
            q = compressor.decompress(compressor.compress(x, key()), x, key())
            assert q.isfinite().all() and (compressor.scale_free or q.abs().max() < 1e-35)
    finally:
        torch.set_flush_denormal(False)


@every_compressor
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", [(1,), (600,), (1, 3), (3, 1), MATRIX], ids=str)
def test_nan_and_inf_are_never_turned_into_numbers(compressor: Compressor, bad: float, shape: tuple[int, ...]) -> None:
    x = gaussian(shape)
    x.view(-1)[-1] = bad
    try:
        payload = compressor.compress(x, key())
    except (ValueError, FloatingPointError):
        return  # raising is the other permitted answer
    size = compressor.payload_size(shape)
    assert size is None or len(payload) == size
    assert len(payload) <= compressor.payload_bound(shape)
    for weight in (1.0, -0.5):
        out = torch.zeros(shape)
        compressor.decompress_add(payload, out, key(), weight)
        assert not out.view(-1)[-1].isfinite()


# Corruption


@every_compressor
@every_shape
def test_a_payload_of_the_wrong_length_raises(compressor: Compressor, shape: tuple[int, ...]) -> None:
    payload = compressor.compress(gaussian(shape), key())
    for wrong in (payload[:-1], torch.cat([payload, payload.new_zeros(1)]), torch.cat([payload, payload, payload[:1]])):
        if len(wrong) != len(payload):
            with pytest.raises(CorruptPayload):
                compressor.decompress(wrong, torch.zeros(shape), key())
    for wrong in (payload.float(), payload.view(1, -1)):
        with pytest.raises(CorruptPayload):
            compressor.decompress(wrong, torch.zeros(shape), key())


@every_compressor
@any_input
@given(content=st.binary(max_size=700), columns=st.integers(0, 24), fit=st.booleans())
def test_nothing_is_written_outside_of_the_tensor(
    compressor: Compressor, content: bytes, columns: int, fit: bool
) -> None:
    guarded = torch.full((20 + 24 * columns,), 42.0)
    inside = guarded[10 : len(guarded) - 10].view(24, columns)
    if fit:  # the right length, the wrong content
        length = compressor.payload_size(inside.shape)
        length = compressor.payload_bound(inside.shape) if length is None else length
        content = (content + b"\xff" * length)[:length]
    payload = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.zeros(0).byte()
    with contextlib.suppress(CorruptPayload):
        compressor.decompress_add(payload, inside, key())
    assert (guarded[:10] == 42.0).all() and (guarded[-10:] == 42.0).all()


# Hyper-parameters

WRONG: list[Any] = [None, "no such word", math.nan, math.inf, -1, 0, 0.5, -0.5, True, 10**12, [3]]


@pytest.mark.parametrize("name", registry())
def test_every_field_refuses_what_is_out_of_range(name: str) -> None:
    for field in dataclasses.fields(registry()[name]):
        valid = field.metadata["valid"]
        refused = [value for value in WRONG if not valid.test(value)]
        assert refused, f"{name}.{field.name} takes anything"
        for value in refused:
            with pytest.raises(InvalidParameter) as error:
                build(name, **{field.name: value})
            assert str(error.value) == f"{field.name}={value}: valid is {valid.words}"


@pytest.mark.parametrize("name", registry())
def test_unknown_hyper_parameters_are_named(name: str) -> None:
    with pytest.raises(InvalidParameter, match="no_such_option=1"):
        build(name, no_such_option=1)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidParameter, match="name=foo: valid is one of .*qsgd"):
        build("foo")


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_compressors_are_values(case: tuple[str, dict[str, Any]]) -> None:
    name, options = case
    compressor = build(name, **options)
    assert compressor == build(name, **options)
    assert compressor.name == name
    assert type(compressor).__doc__ and compressor.paper
    assert all(build(alias, **options) == compressor for alias in compressor.aliases)
    with pytest.raises(dataclasses.FrozenInstanceError):
        compressor.name = "other"  # type: ignore[misc]


@every_compressor
def test_warm_up_may_be_called_at_any_time(compressor: Compressor) -> None:
    compressor.warm_up()
    compressor.compress(gaussian(MATRIX), key())
    compressor.warm_up()
