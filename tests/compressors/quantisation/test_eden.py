"""eden beyond the conformance suite: its levels, its errors, its rotation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import InvalidParameter, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels.normal_levels import BORDERS, MAGNITUDES
from compressors.kernels.reference.primitives.streams import draws
from compressors.quantisation.eden import EDEN
from tests.compressors.quantisation.test_integers import compare, kinds

ERRORS = {1: math.pi / 2 - 1, 2: 0.1331, 3: 0.03578, 4: 0.009592}
"""By bits, of one worker for large units with the unbiased scale: the papers' vNMSE."""


@pytest.mark.parametrize("bits", ERRORS)
def test_levels_are_the_means_of_the_normal_numbers_nearest_to_them(bits: int) -> None:
    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    borders = [0.0, *BORDERS[bits], 40.0]
    for low, high, level in zip(borders, borders[1:], MAGNITUDES[bits], strict=False):
        share = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
        assert level == pytest.approx((density(low) - density(high)) / share, abs=1e-6)


@pytest.mark.parametrize("bits", ERRORS)
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_errors_are_those_of_the_papers(bits: int, tails: str) -> None:
    x = draw_gaussian((64 * 4096,), 1)
    if tails == "heavy":  # of which rounding without a rotation loses most
        x = torch.sign(x) * x.abs() ** 3
    compressor = EDEN(bits=bits)
    found = compressor.decompress(compressor.compress(x, make_key()), x, make_key()).double()
    wide = x.double()
    error = float((found - wide).square().sum() / wide.square().sum())
    assert error == pytest.approx(ERRORS[bits], rel=0.03)
    assert float((found * wide).sum() / wide.square().sum()) == pytest.approx(1, abs=1e-5)
    least = EDEN(bits=bits, scale="least_error")
    found = least.decompress(least.compress(x, make_key()), x, make_key()).double()
    error = float((found - wide).square().sum() / wide.square().sum())
    assert error == pytest.approx(ERRORS[bits] / (1 + ERRORS[bits]), rel=0.03)


@pytest.mark.parametrize("bits", ERRORS)
def test_the_mean_over_workers_has_their_error_divided_by_their_number(bits: int) -> None:
    x, compressor, mean = draw_gaussian((4096,), 2), EDEN(bits=bits), torch.zeros(4096)
    for step in range(64):
        compressor.decompress_add(compressor.compress(x, make_key(step)), mean, make_key(step), 1 / 64)
    error = float((mean - x).square().sum() / x.square().sum())
    assert error == pytest.approx(ERRORS[bits] / 64, rel=0.15)


def test_the_payload_is_that_of_the_rotation_as_a_matrix() -> None:
    """Of a block of 13 elements in 3 bits, computed with a Hadamard matrix."""
    x = draw_gaussian((13,), 3)
    payload = EDEN(bits=3).compress(x, make_key()).numpy().tobytes()
    assert payload[:8] == make_key().mix().to_bytes(8, "little") and len(payload) == 8 + 4 + 6
    coins = draws(make_key().mix(), torch.zeros(1, dtype=torch.int64), 1)[0, 0]
    signs = torch.tensor([1.0 - 2 * (int(coins) >> place & 1) for place in range(16)], dtype=torch.float64)
    hadamard = torch.tensor([[(-1.0) ** (i & j).bit_count() for j in range(16)] for i in range(16)]).double()
    y = hadamard @ (signs * torch.cat([x.double(), torch.zeros(3, dtype=torch.float64)])) / x.double().norm()
    levels = torch.tensor([*(-level for level in reversed(MAGNITUDES[3])), *MAGNITUDES[3]]).double()
    codes = (y[:, None] - levels).abs().argmin(1)
    packed = sum(int(codes[place]) << 3 * (place % 8 * 2 + place // 8) for place in range(16))
    assert payload[12:] == packed.to_bytes(6, "little")
    scale = float(x.double().norm() / (y * levels[codes]).sum())
    assert torch.frombuffer(bytearray(payload[8:12]), dtype=torch.float32).item() == pytest.approx(scale, rel=1e-6)
    found = EDEN(bits=3).decompress(torch.frombuffer(bytearray(payload), dtype=torch.uint8), x, make_key())
    expected = scale * signs * (hadamard @ levels[codes])
    torch.testing.assert_close(found.double(), expected[:13], rtol=1e-5, atol=1e-6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.integers(1, 4),
    st.sampled_from([16, 64, 1024, 4096]),
    st.sampled_from(["unbiased", "least_error"]),
    st.integers(0, 9000),
    st.integers(0, 2**32),
    kinds,
)
def test_kernel_and_reference_give_the_same_bits(
    bits: int, block: int, scale: str, count: int, seed: int, kind: str
) -> None:
    compare(EDEN(bits=bits, block_size=block, scale=scale), count, seed, kind)


def test_drive_is_eden_with_one_bit_and_blocks_are_powers_of_two() -> None:
    assert build("drive") == EDEN(bits=1)
    with pytest.raises(InvalidParameter, match="block_size=1000: valid is a power of two from 16 to 4096"):
        EDEN(block_size=1000)


def test_a_block_with_nan_is_nan_and_zeros_stay_zero() -> None:
    x = draw_gaussian((48,))
    x[7], x[16:32] = math.inf, 0.0
    compressor = EDEN(block_size=16)
    found = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    assert found[:16].isnan().all() and torch.isfinite(found[16:]).all() and not found[16:32].any()
