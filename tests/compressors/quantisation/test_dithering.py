"""Natural compression, natural dithering and NUQSGD beyond the conformance suite: powers and chances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from compressors import CorruptPayload
from compressors.conformance.cases import compute_critical_z, draw_gaussian, find_largest_deviation, make_key
from compressors.kernels import backend
from compressors.quantisation.dithering import NUQSGD, LogarithmicDithering, NaturalCompression, NaturalDithering

LARGEST = torch.finfo(torch.float32).max
both_kernels = pytest.mark.parametrize("kernels", ["numba", "torch"])


def neighbours(y: torch.Tensor, smallest: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The levels below and above every magnitude y (float64) among 0, `smallest` and its doubles."""
    fraction, exponent = torch.frexp(y)
    below = torch.where(y < smallest, 0.0, torch.ldexp(torch.full_like(y, 0.5), exponent))
    above = torch.where(y < smallest, smallest, torch.where(fraction == 0.5, below, 2 * below))
    return below, above


def check_chances(
    q: NaturalCompression | LogarithmicDithering, x: torch.Tensor, scale: float, smallest: float, steps: int
) -> None:
    """Every element goes to one of its two neighbours, with the chance that makes the mean right."""
    below, above = neighbours(x.double().abs() / scale, smallest)
    sent = torch.stack([q.decompress(q.compress(x, make_key(step)), x, make_key(step)) for step in range(steps)])
    size = sent.double().abs() / scale
    near = torch.isclose(size, below, rtol=1e-6, atol=0) | torch.isclose(size, above, rtol=1e-6, atol=0)
    assert near.all()
    assert (sent * x >= 0).all()
    assert find_largest_deviation(sent, x.double()) < compute_critical_z(len(x) * 10)


# Natural compression


@both_kernels
def test_the_bytes_are_the_documented_ones(kernels: str) -> None:
    """Powers of two leave nothing to chance. The scale of 3 is 4."""
    x = torch.tensor([4.0, -2.0, 0.0, -0.0, 0.5, 2.0**-124, 2.0**-1, -0.25, -1.0])
    with backend.use(kernels):
        payload = NaturalCompression(bucket_size=7).compress(x, make_key())
    codes = [127, 126 | 128, 0, 128, 124, 1, 124, 126 | 128, 127 | 128]
    codes[7] = 125 | 128
    assert payload.numpy().tobytes() == np.array([4.0, 1.0], "<f4").tobytes() + bytes(codes)
    with backend.use(kernels):
        payload = NaturalCompression().compress(torch.tensor([3.0]), make_key())
    assert payload[:4].view(torch.float32) == 4.0 and int(payload[4]) in (126, 127)


@both_kernels
def test_powers_of_two_travel_exactly(kernels: str) -> None:
    x = torch.ldexp(torch.ones(120), torch.arange(-60, 60)) * torch.tensor([1.0, -1.0]).repeat(60)
    q = NaturalCompression()
    with backend.use(kernels):
        for step in range(5):
            assert torch.equal(q.decompress(q.compress(x, make_key(step)), x, make_key(step)), x)


def test_an_element_becomes_a_power_next_to_it() -> None:
    x = draw_gaussian((400,), 3) * torch.logspace(-8, 3, 400)
    check_chances(NaturalCompression(), x, 1.0, 2.0**-120, 800)


def test_denormal_elements_are_unbiased() -> None:
    """They count from 2^-126, as all scales below do, and their powers go on down to the smallest float32."""
    x = torch.tensor([3.0, 5.0, 100.0, 1.0, 7e5, 7.9e6]) * 2.0**-149
    q = NaturalCompression()
    sent = torch.stack([q.decompress(q.compress(x, make_key(step)), x, make_key(step)) for step in range(2000)])
    assert find_largest_deviation(sent * 2.0**126, x * 2.0**126) < compute_critical_z(60)
    assert set((sent[:, 0].double() * 2.0**149).tolist()) == {2.0, 4.0}
    assert (sent[:, 3] == x[3]).all()


def test_elements_far_below_the_largest_are_unbiased() -> None:
    """Below 2^-126 of the scale it is the smallest power or nothing."""
    x = torch.full((5000,), 0.4 * 2.0**-126)
    x[0] = 1.0
    sent = NaturalCompression().decompress(NaturalCompression().compress(x, make_key()), x, make_key())
    hits = int((sent[1:] == 2.0**-126).sum())
    assert hits + int((sent[1:] == 0).sum()) == 4999
    assert abs(hits - 0.4 * 4999) < compute_critical_z(1) * math.sqrt(4999 * 0.24)


def test_the_largest_numbers_stay_numbers() -> None:
    """2^128 is not a float32; the mean is right all the same."""
    x = torch.full((20_000,), 2.0**127 * 1.5)
    q = NaturalCompression()
    sent = q.decompress(q.compress(x, make_key()), x, make_key())
    assert sent.isfinite().all()
    share = float((sent == LARGEST).double().mean())
    assert abs(share - 0.5) < compute_critical_z(1) * 0.5 / math.sqrt(20_000)
    assert float(sent.double().mean() / x[0].double()) == pytest.approx(1 + (share - 0.5) / 1.5, rel=1e-6)


def test_the_variance_is_one_eighth_at_four_thirds() -> None:
    x = torch.full((100_000,), 4 / 3)
    sent = NaturalCompression().decompress(NaturalCompression().compress(x, make_key()), x, make_key())
    assert float((sent - x).double().square().mean() / (16 / 9)) == pytest.approx(1 / 8, rel=0.02)
    assert NaturalCompression().law((100_000,)).omega == 1 / 8


@both_kernels
@pytest.mark.parametrize("scale", [3.0, -2.0, math.inf, 1e-40])
def test_a_scale_that_is_no_power_of_two_raises(kernels: str, scale: float) -> None:
    payload = NaturalCompression().compress(draw_gaussian((30,)), make_key())
    payload[:4] = torch.from_numpy(np.array([scale], "<f4").view(np.uint8).copy())
    with backend.use(kernels), pytest.raises(CorruptPayload, match="power of two"):
        NaturalCompression().decompress(payload, torch.zeros(30), make_key())


# Dithering


@both_kernels
def test_the_bytes_of_dithering_are_the_documented_ones(kernels: str) -> None:
    """Three powers, codes of 3 bits: 3 + sign * k."""
    x = torch.tensor([4.0, -2.0, 0.0, 1.0, -1.0, -8.0])
    with backend.use(kernels):
        payload = NaturalDithering(levels=3, norm="max", bucket_size=5).compress(x, make_key())
    first = sum(code << 3 * place for place, code in enumerate([6, 1, 3, 4, 2]))
    norms = np.array([4.0, 8.0], "<f4").tobytes()
    assert payload.numpy().tobytes() == norms + first.to_bytes(2, "little") + bytes([0])


@pytest.mark.parametrize(("levels", "width"), [(1, 2), (2, 3), (3, 3), (4, 4), (7, 4), (8, 5), (15, 5), (127, 8)])
def test_codes_take_the_fewest_bits(levels: int, width: int) -> None:
    assert NaturalDithering(levels=levels).width == width == math.ceil(math.log2(2 * levels + 1))
    assert NUQSGD(levels=levels - 1).width == width if levels > 1 else True


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("levels", [1, 2, 5, 30])
def test_an_element_becomes_a_level_next_to_it(levels: int, norm: str) -> None:
    x = draw_gaussian((300,), 3) * torch.logspace(-4, 0, 300)
    scale = float(x.abs().max()) if norm == "max" else float(x.double().norm().float())
    check_chances(NaturalDithering(levels=levels, norm=norm), x, scale, 2.0 ** (1 - levels), 800)


def test_elements_far_below_the_smallest_level_are_sent_with_their_chance() -> None:
    """The chance has 31 bits: with 23, as the fraction of a float32 has, these would never be sent."""
    x = torch.full((200_000,), 2.0**-14 * 1e-3)
    x[0] = 1.0
    hits = 0
    for step in range(20):
        q = NaturalDithering(levels=15, norm="max")
        hits += int(q.decompress(q.compress(x, make_key(step)), x, make_key(step))[1:].count_nonzero())
    expected = 20 * 199_999 * 1e-3
    assert abs(hits - expected) < compute_critical_z(1) * math.sqrt(expected)


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_the_two_papers_have_the_same_levels(norm: str) -> None:
    x = draw_gaussian((3000,))
    for levels in (1, 6, 126):
        one = NUQSGD(levels=levels, bucket_size=700, norm=norm)
        other = NaturalDithering(levels=levels + 1, bucket_size=700, norm=norm)
        assert torch.equal(one.compress(x, make_key()), other.compress(x, make_key()))
        assert one.law(x.shape) == other.law(x.shape)


@pytest.mark.parametrize("n", [1, 10, 1000, 10**6])
@pytest.mark.parametrize("levels", [1, 3, 6, 12])
def test_the_variance_is_no_larger_than_in_the_papers(n: int, levels: int) -> None:
    """Theorem 4 of NUQSGD with s levels between 0 and 1, theorem 7 of natural compression for p = 2."""
    omega = NUQSGD(levels=levels, bucket_size=None).law((n,)).omega
    assert omega is not None
    half = 2.0 ** (-2 * levels - 2) * n
    assert omega <= (1 / 8 + half if n < 2 ** (2 * levels + 1) else 2.0**-levels * math.sqrt(n) - 7 / 8) + 1e-9
    reach = math.sqrt(n) * 2.0**-levels
    assert omega <= 1 / 8 + reach * min(1.0, reach) + 1e-9


def test_a_norm_beyond_float32_is_still_a_number() -> None:
    x = torch.full((512,), LARGEST)
    for q in (NaturalDithering(), NUQSGD()):
        assert torch.equal(q.decompress(q.compress(x, make_key()), x, make_key()), x)


@pytest.mark.parametrize("q", [NaturalCompression(bucket_size=500), NUQSGD(bucket_size=500)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_only_the_bucket_of_a_nan_becomes_nan(q: NaturalCompression | NUQSGD, bad: float) -> None:
    x = draw_gaussian((3 * 500,))
    x[600] = bad
    sent = q.decompress(q.compress(x, make_key()), x, make_key())
    assert sent[500:1000].isnan().all() and sent[:500].isfinite().all() and sent[1000:].isfinite().all()


@both_kernels
def test_a_code_above_the_levels_or_a_wrong_norm_raises(kernels: str) -> None:
    for q in (NaturalDithering(levels=3), NUQSGD(levels=6), NaturalDithering(levels=100)):
        good = q.compress(draw_gaussian((512,)), make_key())
        code, norm = good.clone(), good.clone()
        code[-1] = 0xFF
        norm[3] = 0xBF
        for wrong in (code, norm):
            with backend.use(kernels), pytest.raises(CorruptPayload, match="norm .* or a code"):
                q.decompress(wrong, torch.zeros(512), make_key())
