"""ATOMO on elements: the scale against the exact solution by sorting, the probabilities, the payload byte by byte."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload
from compressors.conformance.cases import compute_critical_z, draw_gaussian, make_key
from compressors.kernels import backend
from compressors.low_rank.linear_algebra.gram_svd import keep_probabilities
from compressors.sparsification.atomo import Atomo


def scale_of(compressor: Atomo, x: torch.Tensor) -> float:
    return compressor.scale(backend.load("atomo", "cpu"), x)


def heavy(count: int, seed: int = 0) -> torch.Tensor:
    return draw_gaussian((count,), seed) / draw_gaussian((count,), seed + 1).abs().clamp(min=1e-4)


# The scale

elements = st.lists(
    st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e20, 3e-42])),
    min_size=1,
    max_size=60,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(elements, st.floats(0.01, 70))
def test_the_probabilities_are_those_of_algorithm_1(values: list[float], budget: float) -> None:
    """Against the solution from a sorted tensor."""
    x = torch.tensor(values)
    sizes = np.sort(x.abs().double().numpy())[::-1]
    scale = scale_of(Atomo(budget=budget), x)
    expected = keep_probabilities(sizes, budget) if sizes[0] else np.zeros(len(sizes))
    found = np.minimum(1.0, sizes / scale) if scale else np.zeros(len(sizes))
    assert found == pytest.approx(expected, rel=2e-6, abs=1e-12 if scale > 1e-36 else 1.0)


def test_the_scale_is_found_in_few_passes() -> None:
    for x, most in ((draw_gaussian((100_000,)), 1), (heavy(100_000), 8)):
        kernels = backend.load("atomo", "cpu")
        passes = []

        class Counting:
            def split_at(self, x: torch.Tensor, threshold: int) -> tuple[int, float, int]:
                passes.append(threshold)  # noqa: B023
                found: tuple[int, float, int] = kernels.split_at(x, threshold)  # noqa: B023
                return found

        scale = Atomo().scale(Counting(), x)  # type: ignore[arg-type]
        assert (x.double().abs() / scale).clamp(max=1).sum() == pytest.approx(1000, rel=1e-6)
        assert len(passes) <= most


def test_quantisers_are_special_cases() -> None:
    """Section 4 of the paper: the scale of TernGrad is the largest magnitude, that of QSGD the norm."""
    x = draw_gaussian((1000,))
    total = float(x.double().abs().sum())
    largest, norm = float(x.abs().max()), float(x.double().norm())
    assert scale_of(Atomo(budget=total / largest), x) == pytest.approx(largest, rel=1e-6)
    assert scale_of(Atomo(budget=total / norm), x) == pytest.approx(norm, rel=1e-6)


def test_the_budget_is_ratio_of_the_elements_and_at_least_one() -> None:
    x = torch.ones(50)
    assert scale_of(Atomo(ratio=0.1), x) == 10.0
    assert scale_of(Atomo(ratio=0.001), x) == 50.0
    assert scale_of(Atomo(budget=0.5), x) == 100.0


# What is kept


def test_elements_are_kept_with_their_probability() -> None:
    """z-test of the frequencies over 3000 draws, and of the number of elements; fails by chance once in 10^6 runs."""
    x = torch.tensor([8.0, -4.0, 1.0, -0.5, 0.25, 0.125, 0.0, 1e-3])
    compressor = Atomo(budget=3.0)
    scale = scale_of(compressor, x)
    p = (x.abs() / scale).clamp(max=1)
    assert (p[:2] == 1).all() and p.sum() == pytest.approx(3.0)
    sent = torch.stack(
        [compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step)) for step in range(3000)]
    )
    kept = (sent != 0).double()
    assert torch.equal(sent[:, :2], x[:2].expand(3000, 2))
    assert set(sent[:, 2:].abs().unique().tolist()) == {0.0, scale}
    z = (kept.mean(0) - p) / (p * (1 - p) / 3000).sqrt()
    assert z[(p > 0) & (p < 1)].abs().max() < compute_critical_z(6)
    assert (kept[:, p == 0] == 0).all()


def test_the_variance_is_that_of_the_law_for_equal_magnitudes() -> None:
    x = torch.ones(400)
    x[::3] = -1
    compressor = Atomo(ratio=0.1)
    errors = [
        float(
            (compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step)) - x)
            .double()
            .square()
            .sum()
        )
        for step in range(300)
    ]
    assert np.mean(errors) == pytest.approx(compressor.law(x.shape).omega * 400, rel=0.05)  # type: ignore[operator]


def test_everything_is_sent_where_the_budget_is_enough() -> None:
    x = torch.zeros(1000)
    x[::97] = heavy(11)
    for compressor in (Atomo(budget=11), Atomo(budget=500), Atomo(ratio=1.0)):
        assert torch.equal(compressor.decompress(compressor.compress(x, make_key()), x, make_key()), x)


def test_a_scale_beyond_float32_is_the_largest_number() -> None:
    x = torch.full((1000,), 3e38)
    x[::2] *= -1
    compressor = Atomo()
    largest = torch.finfo(torch.float32).max
    assert scale_of(compressor, x) == largest
    sent = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    kept = sent != 0
    assert torch.equal(sent[kept], largest * x[kept].sign())
    assert abs(int(kept.sum()) - 1000 * 3e38 / largest) < 6 * math.sqrt(1000 * 0.88 * 0.12)


def test_many_elements_of_the_largest_size_fit_into_the_bound() -> None:
    x = torch.full((1000,), torch.finfo(torch.float32).max)
    x[::2] *= -1
    compressor = Atomo()
    payload = compressor.compress(x, make_key())
    assert len(payload) <= compressor.payload_bound((1000,))
    assert torch.equal(compressor.decompress(payload, x, make_key()), x)


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 20_000])
def test_kernels_agree_across_chunks_and_blocks(count: int) -> None:
    x = heavy(count)
    first, second = backend.load("atomo", "cpu"), None
    with backend.use("torch"):
        second = backend.load("atomo", "cpu")
    assert first is not second
    bits = int(x.abs().median().view(torch.int32))
    for threshold in (0, 1, bits, 0x7F800000):
        assert first.split_at(x, threshold) == second.split_at(x, threshold)
    for scale in (float(x.abs().median()), float(x.abs().max())):
        bits = int(torch.tensor(scale).view(torch.int32))
        found = second.draw_kept(x, 5, scale, bits, 1.0)
        for expected in (0.0, float(count)):  # also where there is no room for what is drawn
            assert torch.equal(first.draw_kept(x, 5, scale, bits, expected), found)


# The payload


def test_the_payload_byte_by_byte() -> None:
    x = torch.tensor([3.0, 0, -1, -1, 0, 0, 0, 0])
    compressor = Atomo(budget=2.0, indices="bitmap")
    assert scale_of(compressor, x) == 2.0
    wanted = {
        (0,): bytes([2, 1, 0, 0, 0, 0, 0, 2, 0b0001]) + struct.pack("<ff", 2.0, 3.0),
        (0, 2): bytes([2, 2, 0, 0, 0, 0, 0, 1, 0b0101]) + struct.pack("<f", 2.0) + b"\x01\x01" + struct.pack("<f", 3.0),
        (0, 2, 3): bytes([2, 3, 0, 0, 0, 0, 0, 1, 0b1101])
        + struct.pack("<f", 2.0)
        + b"\x01\x03"
        + struct.pack("<f", 3.0),
    }
    seen = set()
    for step in range(40):
        payload = compressor.compress(x, make_key(step))
        sent = compressor.decompress(payload, x, make_key(step))
        kept = tuple(sent.nonzero().flatten().tolist())
        assert sent[0] == 3.0 and all(sent[place] == -2.0 for place in kept[1:])
        if kept in wanted:
            assert bytes(payload.tolist()) == wanted[kept]
            seen.add(kept)
    assert seen == set(wanted)


def test_one_bit_is_enough_for_what_is_below_the_scale() -> None:
    x = draw_gaussian((100_000,))
    payload = Atomo(indices="int32").compress(x, make_key())
    count = int.from_bytes(bytes(payload[1:7].tolist()), "little")
    assert len(payload) == 8 + 4 * count + 4 + (count + 7) // 8
    assert len(Atomo().compress(x, make_key())) < 8 + 4 + 10 * count / 8


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_element_makes_all_nan(bad: float) -> None:
    x = draw_gaussian((5000,))
    x[77] = bad
    payload = Atomo().compress(x, make_key())
    assert bytes(payload[8:].tolist()) == bytes.fromhex("0000c07f")
    assert Atomo().decompress(payload, x, make_key()).isnan().all()


def test_zeros_take_twelve_bytes() -> None:
    assert len(Atomo().compress(torch.zeros(5000), make_key())) == 12


def test_corrupt_payloads_are_refused() -> None:
    x = torch.tensor([3.0, 0, -1, -1, 0, 0, 0, 0])
    compressor = Atomo(budget=2.0, indices="bitmap")
    payloads = (compressor.compress(x, make_key(step)) for step in range(40))
    payload = next(one for one in payloads if one[1] == 2)
    for place, value in [
        (0, 3),  # a dense payload, for which there are too few signs
        (0, 7),  # no coding
        (1, 1),  # fewer elements than bits are set
        (7, 0),  # nothing large, but a value
        (7, 2),  # everything large, but signs
        (7, 3),  # no such kind
        (8, 0b0111),  # more bits than elements
        (12, 0xBF),  # a scale below zero
        (12, 0x7F),  # below: with the byte before it, Inf
        (13, 0b11),  # two large ones
        (13, 0b101),  # a third flag
        (14, 0b10),  # a second sign
    ]:
        wrong = payload.clone()
        wrong[place] = value
        if value == 0x7F:
            wrong[11] = 0x80
        with pytest.raises(CorruptPayload):
            compressor.decompress(wrong, x, make_key())
    wrong = payload.clone()
    wrong[9:13] = torch.tensor([0, 0, 0xC0, 0x7F], dtype=torch.uint8)
    with pytest.raises(CorruptPayload, match="scale"):
        compressor.decompress(wrong, x, make_key())
    for size in range(len(payload)):
        with pytest.raises(CorruptPayload):
            compressor.decompress(payload[:size], x, make_key())
