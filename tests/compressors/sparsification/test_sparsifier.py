"""The payload of sparsifiers: positions, values, and what a receiver refuses."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload, InvalidParameter, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend, half_floats
from compressors.sparsification import positions
from compressors.sparsification.sparsifier import Sparsifier

X = torch.tensor([0.0, 3.0, -1.0, 0.5, 0.0, 0.0, 0.0, -4.0])
quick = settings(max_examples=60, deadline=None, derandomize=True)


def topk(**options: Any) -> Sparsifier:
    compressor = build("topk", **options)
    assert isinstance(compressor, Sparsifier)
    return compressor


def raw(payload: torch.Tensor) -> bytes:
    return bytes(payload.tolist())


def as_payload(content: bytes) -> torch.Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)


def kernels(name: str):  # type: ignore[no-untyped-def]
    with backend.use(name):
        return backend.load("sparse", "cpu")


both_kernels = pytest.mark.parametrize("kernel", ["auto", "torch"])


# Bytes


@pytest.mark.parametrize(
    ("indices", "header", "index_part"),
    [
        ("int32", 0, struct.pack("<2I", 1, 7)),
        # gaps 1 and 5 with r = 1: (1)(1) and (001)(1), from the lowest bit on
        ("delta", 1 | 1 << 3, bytes([0b110011])),
        ("bitmap", 2, bytes([0b10000010])),
        ("auto", 1 | 1 << 3, bytes([0b110011])),
    ],
)
def test_the_payload_is_as_documented(indices: str, header: int, index_part: bytes) -> None:
    payload = topk(ratio=0.25, indices=indices).compress(X, make_key())
    assert raw(payload) == bytes([header, 2, 0, 0, 0, 0, 0, 0]) + index_part + struct.pack("<2f", 3.0, -4.0)


def test_everything_needs_no_positions() -> None:
    for indices in positions.OPTIONS:
        payload = topk(ratio=1.0, indices=indices).compress(X, make_key())
        assert raw(payload) == bytes([3, 8, 0, 0, 0, 0, 0, 0]) + struct.pack("<8f", *X.tolist())


def test_few_zeros_travel_as_zeros() -> None:
    x = draw_gaussian((10_000,))
    compressor = topk(ratio=0.9999)
    payload = compressor.compress(x, make_key())
    assert len(payload) == 8 + 4 * 10_000 == compressor.payload_bound(x.shape)
    decoded = compressor.decompress(payload, x, make_key())
    assert int((decoded == 0).sum()) == 1
    assert torch.equal(decoded[decoded != 0], x[decoded != 0])


# Positions


position_sets = st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)).map(sorted)))


@quick
@given(position_sets)
def test_auto_is_never_longer_than_any_other_coding(drawn: tuple[int, list[int]]) -> None:
    n, kept = drawn
    values = draw_gaussian((len(kept),))
    sizes = {
        option: len(topk(indices=option).pack(torch.tensor(kept, dtype=torch.long), values, n, make_key()))
        for option in positions.OPTIONS
    }
    assert sizes["auto"] == min(min(sizes.values()), 8 + 4 * n)


@quick
@given(position_sets, st.sampled_from(positions.OPTIONS), st.sampled_from(["auto", "torch"]))
def test_what_is_packed_is_unpacked(drawn: tuple[int, list[int]], option: str, kernel: str) -> None:
    n, kept = drawn
    compressor = topk(indices=option)
    values = draw_gaussian((len(kept),))
    with backend.use(kernel):
        payload = compressor.pack(torch.tensor(kept, dtype=torch.long), values, n, make_key())
        out = torch.zeros(n)
        compressor.decompress_add(payload, out, make_key(), 2.0)
    expected = torch.zeros(n)
    expected[kept] = 2.0 * values
    assert torch.equal(out, expected)


def gaps_to_bits(gaps: list[int], parameter: int) -> str:
    """Golomb-Rice codes as a text of bits."""
    codes = []
    for gap in gaps:
        low = "".join(str(gap >> bit & 1) for bit in range(parameter))
        codes.append("0" * (gap >> parameter) + "1" + low)
    return "".join(codes)


@both_kernels
@quick
@given(st.lists(st.one_of(st.integers(0, 3), st.integers(0, 60), st.integers(0, 3000)), max_size=60))
def test_the_best_rice_parameter_is_taken(kernel: str, gaps: list[int]) -> None:
    kept = torch.tensor(list(itertools.accumulate(gaps, lambda at, gap: at + 1 + gap, initial=-1))[1:]).long()
    lengths = [len(gaps_to_bits(gaps, parameter)) for parameter in range(14)]
    parameter, bits = kernels(kernel).rice(kept)
    assert bits == min(lengths) and parameter == lengths.index(bits)
    payload = torch.empty((bits + 7) // 8, dtype=torch.uint8)
    kernels(kernel).write_delta(kept, parameter, payload)
    text = gaps_to_bits(gaps, parameter)
    padded = text + "0" * (-len(text) % 8)
    assert raw(payload) == bytes(int(padded[at : at + 8][::-1], 2) for at in range(0, len(padded), 8))


@both_kernels
@pytest.mark.parametrize("kept", [[0], [2**40 - 1], [5, 2**33, 2**33 + 1, 2**40 - 2], [2**32, 2**32 + 2**31]])
def test_positions_beyond_32_bits(kernel: str, kept: list[int]) -> None:
    n = 2**40
    chosen = positions.plan(kernels(kernel), torch.tensor(kept), n, "int32", 4)
    payload = torch.zeros(8 + chosen.size, dtype=torch.uint8)
    payload[:8] = as_payload(chosen.header(0))
    positions.write(kernels(kernel), torch.tensor(kept), chosen, payload[8:])
    assert chosen.size <= positions.bound("int32", n, len(kept))
    plan, found, extra = positions.read(kernels(kernel), payload, n)
    assert plan == chosen and found is not None and found.tolist() == kept and extra == 0


def test_int32_reaches_as_far_as_32_bits_do() -> None:
    kept = torch.tensor([1, 2**31 + 5, 2**32 - 1])
    for kernel in ("auto", "torch"):
        chosen = positions.plan(kernels(kernel), kept, 2**32, "int32", 4)
        assert chosen.coding == 0 and chosen.size == 12
        payload = torch.empty(12, dtype=torch.uint8)
        positions.write(kernels(kernel), kept, chosen, payload)
        assert torch.equal(kernels(kernel).read_int32(payload, 2**32), kept)


@quick
@given(st.integers(1, 300), st.integers(0, 300), st.sampled_from(positions.OPTIONS), st.randoms())
def test_no_positions_are_longer_than_the_bound(n: int, most: int, option: str, random) -> None:  # type: ignore[no-untyped-def]
    most = min(n, most)
    bound = positions.bound(option, n, most)
    for kept in (range(most), range(n - most, n), sorted(random.sample(range(n), random.randint(0, most)))):
        chosen = positions.plan(kernels("auto"), torch.tensor(list(kept)).long(), n, option, None)
        assert chosen.size <= bound


# Corruption


def corrupt(content: bytes, option: str = "auto", n: int = 8, **options: object) -> None:
    for kernel in ("auto", "torch"):
        with backend.use(kernel), pytest.raises(CorruptPayload):
            topk(ratio=0.25, indices=option, **options).decompress_add(as_payload(content), torch.zeros(n), make_key())


def test_headers_that_cannot_be() -> None:
    values = struct.pack("<2f", 3.0, -4.0)
    good = bytes([2, 2, 0, 0, 0, 0, 0, 0]) + bytes([0b10000010]) + values
    assert topk().decompress(as_payload(good), X, make_key()).tolist() == [0, 3, 0, 0, 0, 0, 0, -4]
    for place, byte in [(0, 4), (0, 7), (0, 2 | 1 << 3), (0, 0 | 1 << 3), (1, 1), (1, 3), (2, 1), (6, 1), (7, 1)]:
        corrupt(good[:place] + bytes([byte]) + good[place + 1 :])
    for length in range(len(good)):
        corrupt(good[:length])
    corrupt(good + b"\0")
    corrupt(bytes([3, 9, 0, 0, 0, 0, 0, 0]) + struct.pack("<9f", *range(9)))


@pytest.mark.parametrize("places", [(7, 1), (1, 1), (1, 8), (1, 2**32 - 1)])
def test_positions_ascend_and_are_inside(places: tuple[int, int]) -> None:
    corrupt(bytes([0, 2, 0, 0, 0, 0, 0, 0]) + struct.pack("<2I", *places) + struct.pack("<2f", 3.0, -4.0))


def test_bitmaps_have_as_many_bits_as_the_header_says() -> None:
    for bitmap in (0b10000000, 0b10000011):
        corrupt(bytes([2, 2, 0, 0, 0, 0, 0, 0]) + bytes([bitmap]) + struct.pack("<2f", 3.0, -4.0))
    corrupt(bytes([2, 2, 0, 0, 0, 0, 0, 0]) + bytes([0b10000010]) + struct.pack("<2f", 3.0, -4.0), n=7)


@pytest.mark.parametrize("code", [0b1110011, 0b0, 0b11, 0b10110011, 0b00011])
def test_codes_end_inside_and_their_byte_is_filled_with_zeros(code: int) -> None:
    corrupt(bytes([1 | 1 << 3, 2, 0, 0, 0, 0, 0, 0]) + bytes([code]) + struct.pack("<2f", 3.0, -4.0))


def test_a_gap_of_more_bits_than_a_word_is_refused() -> None:
    corrupt(bytes([1 | 31 << 3, 1, 0, 0, 0, 0, 0, 0]) + bytes(500) + b"\xff" * 8)


# Values


def test_half_floats_are_scaled_to_fit() -> None:
    compressor = topk(ratio=0.5, values="fp16", indices="bitmap")
    x = torch.tensor([1.5e30, -2.0e26, 1e10, 0.0])
    payload = raw(compressor.compress(x, make_key()))
    exponent = math.frexp(1.5e30)[1] - 1
    assert payload[7] == exponent + 127
    half = struct.unpack("<2e", payload[9:])
    assert half == (
        pytest.approx(1.5e30 * 2.0 ** (14 - exponent), rel=2**-11),
        pytest.approx(-2e26 * 2.0 ** (14 - exponent), rel=2**-11),
    )


@pytest.mark.parametrize("size", [3e38, 1e30, 1.0, 1e-6, 1e-30, 1e-38, 1e-42])
def test_half_floats_lose_eleven_bits_at_most(size: float) -> None:
    values = draw_gaussian((1000,)).clamp(-1, 1) * size
    payload = torch.empty(2000, dtype=torch.uint8)
    exponent = half_floats.write(values, payload)
    error = (half_floats.read(payload, exponent).double() - values.double()).abs()
    assert (error <= 2.0**-11 * values.double().abs() + 2.0**-39 * values.abs().max().double()).all()


def test_half_floats_of_the_largest_numbers_stay_finite() -> None:
    largest = torch.finfo(torch.float32).max
    values = torch.tensor([largest, -largest, math.inf, -math.inf, math.nan, 1e38])
    payload = torch.empty(12, dtype=torch.uint8)
    back = half_floats.read(payload, half_floats.write(values, payload))
    assert back[:4].tolist() == [largest, -largest, math.inf, -math.inf]
    assert back[4].isnan() and float(back[5]) == pytest.approx(1e38, rel=2**-11)
    for wrong in (0, 255):
        with pytest.raises(CorruptPayload, match="exponent"):
            half_floats.read(payload, wrong)


def test_every_nan_travels_as_the_same_bits() -> None:
    x = torch.tensor([0x7F800001, -1, 0x7FFFFFFF, 0], dtype=torch.int32).view(torch.float32)
    payload = topk(ratio=0.75, indices="bitmap").compress(x, make_key())
    assert raw(payload)[9:] == 3 * struct.pack("<I", 0x7FC00000)


@both_kernels
def test_same_sign_means_alternate(kernel: str) -> None:
    """RedSync: odd steps send the largest positive elements, the others the most negative, as one number."""
    x = torch.tensor([5.0, -7.0, 1.0, 4.0, -1.0, 0.0, -2.0, -9.0])
    compressor = topk(ratio=0.375, values="mean", indices="bitmap")
    with backend.use(kernel):
        odd, even = compressor.compress(x, make_key(3)), compressor.compress(x, make_key(4))
        assert raw(odd) == bytes([2, 3, 0, 0, 0, 0, 0, 0, 0b1101]) + struct.pack("<f", 10 / 3)
        assert raw(even) == bytes([2, 3, 0, 0, 0, 0, 0, 0, 0b11000010]) + struct.pack("<f", -6.0)
        assert compressor.decompress(even, x, make_key(4)).tolist() == [0, -6, 0, 0, 0, 0, -6, -6]
        few = compressor.compress(-x.abs() + 6.5, make_key(4))  # two elements are below zero
        assert raw(few) == bytes([2, 2, 0, 0, 0, 0, 0, 0, 0b10000010]) + struct.pack("<f", -1.5)
        none = compressor.compress(x.abs(), make_key(4))
        assert not compressor.decompress(none, x, make_key(4)).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("step", [0, 1])
def test_a_mean_with_nan_or_inf_is_nan_everywhere(bad: float, step: int) -> None:
    x = draw_gaussian((50,))
    x[20] = bad
    compressor = topk(values="mean")
    assert compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step)).isnan().all()


def test_an_infinite_mean_is_refused() -> None:
    payload = topk(values="mean", ratio=0.25).compress(X, make_key())
    payload[-4:] = as_payload(struct.pack("<f", math.inf))
    with pytest.raises(CorruptPayload, match="infinite"):
        topk(values="mean").decompress(payload, X, make_key())


def test_kept_values_can_be_compressed_once_more() -> None:
    x = draw_gaussian((2000,))
    compressor = topk(ratio=0.1, values="qsgd", indices="int32")
    payload = compressor.compress(x, make_key())
    assert len(payload) == compressor.payload_size(x.shape) == 8 + 4 * 200 + build("qsgd").payload_bound((200,))
    decoded = compressor.decompress(payload, x, make_key())
    kept = x.abs().topk(200).indices.sort().values
    step = x.abs().max() / 7
    assert ((decoded[kept] - x[kept]).abs() <= step * 1.001).all()
    decoded[kept] = 0
    assert not decoded.any()


@pytest.mark.parametrize(
    "options", [{"levels": 1, "bucket_size": 50}, {"levels": 100}, {"levels": 3, "coding": "elias"}], ids=str
)
def test_the_compressor_of_the_values_has_options(options: dict[str, Any]) -> None:
    x = draw_gaussian((2000,))
    compressor = topk(ratio=0.1, values="qsgd", values_options=options, indices="int32")
    inner = build("qsgd", **options)
    payload = compressor.compress(x, make_key())
    assert compressor.chained == inner
    decoded, kept = compressor.decompress(payload, x, make_key()), x.abs().topk(200).indices.sort().values
    if "coding" in options:
        assert len(payload) < compressor.payload_bound(x.shape) and compressor.payload_size(x.shape) is None
    else:
        expected = 8 + 4 * 200 + inner.payload_bound((200,))
        assert len(payload) == compressor.payload_size(x.shape) == expected != topk_size("qsgd")
    # as many values as there are levels, of both signs, for each bucket
    assert len(decoded[kept].abs().unique()) <= (options["levels"] + 1) * -(-200 // options.get("bucket_size", 512))
    assert compressor.law((1000,)).delta == pytest.approx(0.1 * max(0.0, 1 - (inner.law((100,)).omega or 0))) or (
        compressor.law((1000,)).delta is None and (inner.law((100,)).omega or 0) >= 1
    )


def topk_size(values: str) -> int | None:
    return topk(ratio=0.1, values=values, indices="int32").payload_size((2000,))


def test_options_of_the_values_are_checked_and_compared() -> None:
    for options, line in (
        ({"values": "qsgd", "values_options": {"levels": 0}}, "values_options.levels=0: valid is an integer from 1 to"),
        (
            {"values": "qsgd", "values_options": {"lev": 1}},
            "values_options.lev=1: did you mean levels? valid is one of the keys",
        ),
        ({"values_options": {"levels": 3}}, "values_options={'levels': 3}: valid is empty with values=fp32"),
        ({"values": "mean", "values_options": {"a": 3}}, "values_options={'a': 3}: valid is empty with values=mean"),
        ({"values": "qsgd", "values_options": {3: 3}}, "values_options={3: 3}: valid is a mapping with options of"),
        ({"values": "qsgd", "values_options": None}, "values_options=None: valid is a mapping with options of"),
    ):
        with pytest.raises(InvalidParameter) as error:
            topk(**options)
        assert str(error.value).startswith(line)
    given = {"levels": 3, "bucket_size": 100}
    one = topk(values="qsgd", values_options=given)
    other = topk(values="qsgd", values_options={"bucket_size": 100, "levels": 3})
    assert one == other and repr(one) == repr(other) and hash(one) == hash(other)
    assert one != topk(values="qsgd", values_options={"levels": 3})
    given["levels"] = 100
    assert one == other == pickle.loads(pickle.dumps(one)) == dataclasses.replace(one)


def test_only_compressors_of_single_elements_can_be_chained() -> None:
    for wrong in ("svd", "topk", "none", "no such name", "sign"):
        with pytest.raises(
            InvalidParameter, match=f"values={wrong}: (did you mean .*)?valid is fp32, fp16, mean, or the name of"
        ):
            topk(values=wrong)


def test_only_what_asks_the_other_workers_is_refused_not_the_method() -> None:
    x, inner = draw_gaussian((2000,)), build("terngrad", clip=0.0)
    compressor = topk(ratio=0.1, values="terngrad", values_options={"clip": 0.0}, indices="int32")
    payload = compressor.compress(x, make_key())
    assert len(payload) == compressor.payload_size(x.shape) == 8 + 4 * 200 + inner.payload_bound((200,))
    decoded = compressor.decompress(payload, x, make_key())
    assert not decoded[x.abs() < x.abs().topk(200).values[-1]].any()
    assert set((decoded / x.abs().max()).tolist()) == {-1.0, 0.0, 1.0}
    with pytest.raises(InvalidParameter) as error:
        topk(values="terngrad", values_options={"share_scale": True})
    assert str(error.value) == (
        "values_options={'share_scale': True}: valid is options with which terngrad has nothing to agree on with "
        "other workers"
    )


# Laws


def test_laws_of_chains() -> None:
    n = (1000,)
    assert topk(ratio=0.1).law(n).delta == 0.1
    assert topk(ratio=0.1, values="fp16").law(n).delta == pytest.approx(0.1, rel=1e-6)
    assert topk(ratio=0.1, values="mean").law(n) == type(topk().law(n))()
    omega = build("qsgd").law((100,)).omega
    assert omega is not None and omega < 1
    assert topk(ratio=0.1, values="qsgd").law(n).delta == pytest.approx(0.1 * (1 - omega))
    assert build("qsgd").law((10**6,)).omega >= 1  # nothing is left of a contraction
    assert topk(ratio=0.1, values="qsgd").law((10**7,)).delta is None
    assert topk(ratio=1.0, values="qsgd").law(n) == build("qsgd").law(n)
