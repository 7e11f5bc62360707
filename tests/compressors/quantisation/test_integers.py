"""int8 and dynamic8 beyond the conformance suite: the bytes, the nearest level, the ends, the laws at their worst."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import Compressor, CorruptPayload, InvalidParameter
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.kernels.reference.primitives.packing import unpack
from compressors.quantisation.int8 import Dynamic8, Int8

LARGEST = torch.finfo(torch.float32).max
MATCHES = pytest.mark.parametrize("kernels", ["numba", "torch"])

options = st.fixed_dictionaries(
    {
        "bits": st.integers(2, 8),
        "scheme": st.sampled_from(["minmax", "symmetric"]),
        "bucket_size": st.one_of(st.integers(1, 40), st.integers(1, 3000), st.just(2**31 - 1)),
        "stochastic": st.booleans(),
    }
)


def sent(compressor: Compressor, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    return compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def compare(compressor: Compressor, count: int, seed: int, kind: str) -> None:
    x = draw_gaussian((count,), seed)
    if kind == "wide":
        x *= torch.logspace(-44, 30, count)
    elif kind == "huge":
        x = (x * 3e38).clamp(-LARGEST, LARGEST)
    elif kind == "sparse":
        x *= draw_gaussian((count,), seed + 1) > 2
    elif kind == "bad" and count:
        x[seed % count] = (math.nan, math.inf, -math.inf)[seed % 3]
    results = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            payload, out = compressor.compress(x, make_key(seed)), draw_gaussian((count,), 9)
            compressor.decompress_add(payload, out, make_key(seed), 0.3)
            results.append((payload, out.nan_to_num(7.0)))
    for compiled, plain in zip(*results, strict=True):
        assert torch.equal(compiled, plain)


kinds = st.sampled_from(["normal", "wide", "huge", "sparse", "bad"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(options, st.integers(0, 3000), st.integers(0, 2**32), kinds)
def test_kernel_and_reference_give_the_same_bits(values: dict[str, Any], count: int, seed: int, kind: str) -> None:
    if math.ceil(count / values["bucket_size"]) > 300:
        values = {**values, "bucket_size": 300}
    compare(Int8(**values), count, seed, kind)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(0, 2**32), kinds)
def test_kernel_and_reference_of_dynamic8_give_the_same_bits(bucket: int, count: int, seed: int, kind: str) -> None:
    compare(Dynamic8(bucket_size=max(bucket, count // 300 + 1)), count, seed, kind)


# int8: the bytes


def test_the_bytes_are_the_documented_ones() -> None:
    x = torch.tensor([0.0, 255.0, 51.0, 102.4, 7.0, -7.0, 7.0])
    payload = Int8(bucket_size=4).compress(x, make_key()).numpy().tobytes()
    assert payload == floats(0, 255, -7, 7) + bytes([0, 255, 51, 102]) + bytes([255, 0, 255])
    payload = Int8(bits=4, scheme="symmetric").compress(torch.tensor([7.0, -7.0, 0.0, 3.6, -2.2]), make_key()).numpy()
    codes = [14, 0, 7, 11, 5]
    expected = sum(code << 4 * place for place, code in enumerate(codes)).to_bytes(3, "little")
    assert payload.tobytes() == floats(7) + expected


@pytest.mark.parametrize("bits", range(2, 9))
def test_full_buckets_need_no_empty_one_behind(bits: int) -> None:
    """DDP's hook adds a bucket where the size is a multiple of the bucket's."""
    for scheme, header in (("minmax", 8), ("symmetric", 4)):
        assert Int8(bits=bits, scheme=scheme).payload_size((5 * 512,)) == 5 * (header + 64 * bits)


# int8: the rounding


def levels(q: Int8, part: torch.Tensor) -> torch.Tensor:
    """All levels of the bucket `part`, float64."""
    if q.scheme == "minmax":
        low, high = part.double().min(), part.double().max()
        return low + (high - low) * torch.arange(2**q.bits).double() / (2**q.bits - 1)
    top = 2 ** (q.bits - 1) - 1
    return part.double().abs().max() * torch.arange(-top, top + 1).double() / top


@settings(max_examples=80, deadline=None, derandomize=True)
@given(options, st.integers(1, 1500), st.integers(0, 2**32))
def test_an_element_goes_to_the_nearest_level_or_to_a_neighbour(values: dict[str, Any], count: int, seed: int) -> None:
    q = Int8(**values)
    x = draw_gaussian((count,), seed) + seed % 3
    for part, got in zip(x.split(q.bucket_size), sent(q, x).split(q.bucket_size), strict=True):
        distance = (levels(q, part)[:, None] - part.double()).abs()
        nearest = distance.amin(0)
        tolerance = 1e-6 * part.abs().max()
        assert ((levels(q, part)[:, None] - got.double()).abs().amin(0) <= tolerance).all()  # it is a level
        step = levels(q, part).diff().max() if len(part) > 1 else 0.0
        allowed = torch.where(nearest > 2 * tolerance, step - nearest, step) if q.stochastic else nearest
        assert ((got - part).abs() <= allowed + tolerance).all()


def test_halfway_between_two_levels_is_the_even_one() -> None:
    x = torch.tensor([0.0, 15.0, 0.5, 1.5, 2.5, 13.5])
    assert sent(Int8(bits=4), x).tolist() == [0.0, 15.0, 0.0, 2.0, 2.0, 14.0]
    x = torch.tensor([7.0, 0.5, -1.5, -2.5])
    assert sent(Int8(bits=4, scheme="symmetric"), x).tolist() == [7.0, 0.0, -2.0, -2.0]


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_both_levels_beside_an_element_are_drawn_with_their_probabilities(bits: int) -> None:
    for scheme, top in (("minmax", 2**bits - 1), ("symmetric", 2 ** (bits - 1) - 1)):
        x = torch.full((100_000,), 0.3 / top)
        x[0], x[1] = 1.0, 0.0
        got = sent(Int8(bits=bits, scheme=scheme, stochastic=True, bucket_size=2**20), x)[2:] * top
        assert set(got.round().tolist()) == {0.0, 1.0}
        assert abs(float(got.mean()) - 0.3) < 5.5 * math.sqrt(0.3 * 0.7 / len(got))


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_ends_of_a_bucket_are_sent_exactly(stochastic: bool) -> None:
    x = draw_gaussian((5 * 512 + 1,), 8) + 0.5
    for bits in (2, 3, 8):
        for scheme in ("minmax", "symmetric"):
            got = sent(Int8(bits=bits, scheme=scheme, stochastic=stochastic), x)
            for part, one in zip(x.split(512), got.split(512), strict=True):
                ends = [part.argmin(), part.argmax()] if scheme == "minmax" else [part.abs().argmax()]
                assert all(one[end] == part[end] for end in ends)
        for special in (torch.full((600,), -0.3), torch.full((600,), 1e-45), torch.full((3,), -LARGEST)):
            assert torch.equal(sent(Int8(bits=bits, stochastic=stochastic), special), special)


def test_a_range_beyond_float32_is_a_range() -> None:
    x = torch.tensor([-LARGEST, LARGEST, 0.0, 1e38, -2e38])
    got = sent(Int8(), x)
    assert torch.equal(got[:2], x[:2])
    assert ((got.double() - x.double()).abs() <= LARGEST / 255 * (1 + 1e-6)).all()


def test_only_the_bucket_of_a_nan_becomes_nan() -> None:
    for compressor in (Int8(), Int8(scheme="symmetric"), Dynamic8(bucket_size=512)):
        for bad in (math.nan, math.inf, -math.inf):
            x = draw_gaussian((3 * 512,))
            x[600] = bad
            got = sent(compressor, x)
            assert got[512:1024].isnan().all()
            assert got[:512].isfinite().all() and got[1024:].isfinite().all()


def test_the_laws_of_nearest_rounding_are_exact() -> None:
    """At the worst inputs: all elements, but for those that are sent exactly, halfway between two levels."""
    for bits, count in itertools.product((2, 4, 8), (3, 100, 512)):
        q = Int8(bits=bits, scheme="symmetric")
        x = torch.full((count,), 0.4999 / (2 ** (bits - 1) - 1))
        x[0] = 1.0
        law = q.law((count,))
        assert law.omega is not None
        assert 0.99 * law.omega < ratio(q, x) <= law.omega
        q = Int8(bits=bits)
        x = torch.zeros(count)  # in the middle of an even number of levels
        x[0], x[1] = 1.0, -1.0
        law = q.law((count,))
        assert law.omega is not None
        assert ratio(q, x) == pytest.approx(law.omega, rel=1e-4)
        assert law.delta is None if law.omega >= 1 else law.delta == pytest.approx(1 - law.omega)


def ratio(compressor: Compressor, x: torch.Tensor) -> float:
    """||Q(x) - x||^2 / ||x||^2."""
    return float((sent(compressor, x).double() - x).square().sum() / x.double().square().sum())


# int8: corruption


@MATCHES
@pytest.mark.parametrize(
    "bounds", [(1.0, -1.0), (-math.inf, 1.0), (0.0, math.inf), (math.nan, 1.0), (0.0, math.nan), (-math.nan, math.nan)]
)
def test_bounds_that_no_encoder_writes_raise(kernels: str, bounds: tuple[float, float]) -> None:
    with backend.use(kernels):
        payload = Int8().compress(draw_gaussian((1024,)), make_key())
        payload[8:16] = torch.frombuffer(bytearray(floats(*bounds)), dtype=torch.uint8)
        if math.copysign(1, bounds[0]) < 0 and math.isnan(bounds[0]):
            payload[11] = 0xFF  # the sign of a NaN
        with pytest.raises(CorruptPayload, match="bounds"):
            Int8().decompress(payload, torch.zeros(1024), make_key())


@MATCHES
@pytest.mark.parametrize("norm", [-1.0, -0.0, math.inf, -math.inf])
def test_a_norm_that_no_encoder_writes_raises(kernels: str, norm: float) -> None:
    with backend.use(kernels):
        for compressor in (Int8(scheme="symmetric"), Dynamic8(bucket_size=512)):
            payload = compressor.compress(draw_gaussian((1024,)), make_key())
            payload[4:8] = torch.frombuffer(bytearray(floats(norm)), dtype=torch.uint8)
            with pytest.raises(CorruptPayload, match="negative or infinite"):
                compressor.decompress(payload, torch.zeros(1024), make_key())


@MATCHES
@pytest.mark.parametrize("bits", range(2, 9))
def test_a_code_above_the_levels_raises(kernels: str, bits: int) -> None:
    q = Int8(bits=bits, scheme="symmetric")
    with backend.use(kernels):
        payload = q.compress(draw_gaussian((512,)), make_key())
        payload[-1] = 0xFF
        with pytest.raises(CorruptPayload, match="code"):
            q.decompress(payload, torch.zeros(512), make_key())


# dynamic8


def dynamic_map() -> npt.NDArray[np.float64]:
    """bitsandbytes' signed dynamic map, ascending: its definition by linspace."""
    values = [0.0, 1.0]
    for place in range(7):
        borders = np.linspace(0.1, 1.0, 2**place + 1)
        means = (borders[1:] + borders[:-1]) / 2 * 10.0 ** (place - 6)
        values += [*means, *-means]
    return np.sort(values)


def test_all_bytes_are_the_levels_of_the_map() -> None:
    payload = torch.cat([torch.ones(1).view(torch.uint8), torch.arange(256, dtype=torch.uint8)])
    values = Dynamic8().decompress(payload, torch.zeros(256), make_key())
    assert np.allclose(np.sort(values.numpy()), dynamic_map(), rtol=1e-6, atol=0)
    assert values[0] == 0 and values[128] == 1
    assert torch.equal(values[129:], -values[1:128]) and (values[1:129].diff() > 0).all()
    assert torch.equal(Dynamic8().compress(values, make_key()), payload)


def test_the_bytes_of_dynamic8_are_the_documented_ones() -> None:
    x = torch.tensor([2.0, -1.0, 0.0, 1.2e-6, -1e-9])
    payload = Dynamic8(bucket_size=4).compress(x, make_key()).numpy().tobytes()
    # 0.5 is in the 29th of 64 parts of [0.1, 1]; 1e-9 is the largest of its bucket, and -1 is the last but one.
    assert payload == floats(2.0, 1e-9) + bytes([128, 128 + 64 + 28, 0, 1, 255])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from(["normal", "wide", "near halfway"]))
def test_an_element_goes_to_the_nearest_level(seed: int, kind: str) -> None:
    table = dynamic_map()
    x = draw_gaussian((3000,), seed).double()
    if kind == "wide":
        x *= torch.logspace(-8, 0, 3000)
    elif kind == "near halfway":
        halves = torch.from_numpy((table[1:] + table[:-1]) / 2)
        x = halves.repeat(12) * (1 + 1e-5 * draw_gaussian((12 * 255,), seed))
    x = torch.cat([x / x.abs().max(), torch.ones(1)]).float()
    got = sent(Dynamic8(), x).double()
    nearest = np.abs(table[:, None] - x.double().numpy()).min(0)
    assert ((got - x).abs().numpy() <= nearest + 1e-6 * x.abs().numpy()).all()


def test_the_largest_element_of_a_bucket() -> None:
    assert sent(Dynamic8(), torch.tensor([3.0, 0.0])).tolist() == [3.0, 0.0]
    assert sent(Dynamic8(), torch.tensor([-3.0, 0.0])).tolist() == pytest.approx([-3 * (1 - 0.9 / 128), 0.0])


@pytest.mark.parametrize("count", [1, 2, 100, 4096])
def test_the_law_of_dynamic8_is_exact(count: int) -> None:
    """For some halfway between two levels: the largest element is -1, the others are all there."""
    law = Dynamic8().law((count,))
    assert law.omega is not None and law.delta == 1 - law.omega
    table = dynamic_map()[127 + 1 :]
    worst = 0.0
    for low, high in itertools.pairwise([0.0, *table[:-1]]):
        x = torch.full((count,), (low + high) / 2 * (1 + 1e-6))
        x[0] = -1.0
        worst = max(worst, ratio(Dynamic8(), x))
    assert 0.999 * law.omega < worst <= law.omega * (1 + 1e-4)


def test_codes_are_packed_in_order() -> None:
    x = torch.linspace(0, 1, 8)
    payload = Int8(bits=3).compress(x, make_key())
    assert unpack(payload[8:], 8, 3).tolist() == list(range(8))


def test_one_bit_is_the_smallest_or_the_largest() -> None:
    x = torch.tensor([-1.0, 0.9, 2.0, 0.4, 2.0])
    q = Int8(bits=1)
    assert q.compress(x, make_key()).numpy().tobytes() == floats(-1.0, 2.0) + bytes([0b10110])
    assert sent(q, x).tolist() == [-1.0, 2.0, 2.0, -1.0, 2.0]
    with pytest.raises(InvalidParameter, match="bits=1: valid is an integer from 2 to 8 with scheme=symmetric"):
        Int8(bits=1, scheme="symmetric")
