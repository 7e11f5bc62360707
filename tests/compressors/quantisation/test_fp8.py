"""fp8 beyond the conformance suite: torch's own casts, the ends, the laws at their worst."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.kernels.fp8_formats import FORMATS
from compressors.quantisation.fp8 import FP8
from tests.compressors.quantisation.test_integers import compare, kinds

TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FORMAT = pytest.mark.parametrize("name", FORMATS)


@FORMAT
@pytest.mark.parametrize("kernels", ["numba", "torch"])
def test_codes_are_those_of_torchs_casts(name: str, kernels: str) -> None:
    x = draw_gaussian((20_000,), 1) * torch.logspace(-9, 0, 20_000)
    x[0] = FORMATS[name].largest  # so that the scale is 1
    x[1:300] = torch.arange(299) / FORMATS[name].grid / 4  # halves and quarters of the evenly spaced numbers
    x = x.clamp(-x[0], x[0])
    with backend.use(kernels):
        codes = FP8(format=name, bucket_size=None).compress(x, make_key())[4:]
    expected = (x / x[0] * x[0]).to(TORCH[name]).view(torch.uint8)
    assert torch.equal(codes, torch.where(expected == 128, 0, expected))


@FORMAT
def test_values_are_those_of_torchs_casts(name: str) -> None:
    form = FORMATS[name]
    values = torch.arange(form.top + 1, dtype=torch.uint8).view(TORCH[name]).float()
    assert values.tolist() == [form.value(code) for code in range(form.top + 1)]
    assert values[-1] == torch.finfo(TORCH[name]).max and form.smallest == torch.finfo(TORCH[name]).smallest_normal


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.booleans(),
    st.integers(1, 5000),
    st.integers(0, 5000),
    st.integers(0, 2**32),
    kinds,
)
def test_kernel_and_reference_give_the_same_bits(
    name: str, stochastic: bool, bucket: int, count: int, seed: int, kind: str
) -> None:
    compare(FP8(format=name, stochastic=stochastic, bucket_size=max(bucket, count // 300 + 1)), count, seed, kind)


@FORMAT
def test_random_rounding_is_unbiased_between_any_two_numbers(name: str) -> None:
    form = FORMATS[name]
    for code in (0, 3, 8, 40, form.top - 1):
        low, high = form.value(code), form.value(code + 1)
        x = torch.full((200_001,), low + 0.3 * (high - low))
        x[0] = form.largest
        compressor = FP8(format=name, bucket_size=None, stochastic=True)
        sent = compressor.decompress(compressor.compress(x, make_key()), x, make_key())[1:]
        assert sent.unique().tolist() == pytest.approx([low, high], rel=1e-6)
        assert float(((sent - low) / (high - low)).double().mean()) == pytest.approx(0.3, abs=0.006)


@FORMAT
def test_the_law_is_nearly_reached(name: str) -> None:
    """By elements halfway between two numbers: 1 and the next, and below the smallest step."""
    form, compressor = FORMATS[name], FP8(format=name, bucket_size=None)
    for value, share in ((1 + 0.5**form.mantissa / 2, 0.9), (0.4999 / form.grid, 0.0)):
        x = torch.full((4096,), value)
        x[0] = form.largest
        error = (compressor.decompress(compressor.compress(x, make_key()), x, make_key()) - x).square().sum()
        law = compressor.law(x.shape)
        assert law.omega is not None and float(error / x.square().sum()) <= law.omega
        assert float(error / x[1:].square().sum()) >= share * (0.5**form.mantissa / 2 / value) ** 2


@pytest.mark.parametrize("kernels", ["numba", "torch"])
def test_codes_that_are_no_numbers_are_refused(kernels: str) -> None:
    x = draw_gaussian((100,))
    with backend.use(kernels):
        for name, code in (("e4m3", 0x7F), ("e4m3", 0xFF), ("e5m2", 0x7C), ("e5m2", 0xFD)):
            payload = FP8(format=name).compress(x, make_key())
            payload[20] = code
            with pytest.raises(CorruptPayload, match="a code is no finite number"):
                FP8(format=name).decompress(payload, x, make_key())


def test_a_bucket_with_nan_is_nan() -> None:
    x = draw_gaussian((10,))
    x[7] = math.inf
    found = FP8(bucket_size=5).decompress(FP8(bucket_size=5).compress(x, make_key()), x, make_key())
    assert found[5:].isnan().all() and torch.isfinite(found[:5]).all()
