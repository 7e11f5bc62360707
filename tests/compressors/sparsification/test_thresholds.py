"""Fixed and adaptive thresholds, Gaussian-k, and the arithmetic on magnitudes that all thresholds share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.sparsification.magnitudes import INFINITY, Candidates, bits_of, value_of


def sent(name: str, x: torch.Tensor, step: int = 0, **options: Any) -> torch.Tensor:
    """Q(x), flat."""
    compressor = build(name, **options)
    return compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step)).flatten()


def size_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


# Magnitudes


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.floats(0, 1e39) | st.floats(0, 1e-37) | st.floats(0, 1e3, width=32), st.floats(0, width=32))
def test_a_threshold_compares_as_the_number_that_it_was(value: float, x: float) -> None:
    """In float64 both are exact, so the comparison there is the true one."""
    if x > 0:
        assert (size_of(x) >= bits_of(value)) == (x >= value)
    for at in (bits_of(value) - 1, bits_of(value)):
        other = float(np.uint32(at).view(np.float32))
        assert at == 0 or (at >= bits_of(value)) == (other >= value)


@pytest.mark.parametrize(
    ("value", "bits"),
    [(0.0, 1), (-1.0, 1), (1e-50, 1), (2.0**-149, 1), (2.0**-126, 0x00800000), (1.0, 0x3F800000), (0.1, 0x3DCCCCCD)],
)
def test_bits_of_known_numbers(value: float, bits: int) -> None:
    assert bits_of(value) == bits


def test_bits_at_the_upper_end() -> None:
    largest = float(np.finfo(np.float32).max)
    assert bits_of(largest) == 0x7F7FFFFF
    assert [bits_of(v) for v in (largest * (1 + 1e-12), 2.0**128, 1e300, math.inf)] == [INFINITY] * 4
    assert value_of(INFINITY) == math.inf and math.isnan(value_of(INFINITY + 1))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, INFINITY - 1))
def test_bits_and_values_are_inverses(bits: int) -> None:
    assert value_of(bits) == float(np.uint32(bits).view(np.float32))
    assert bits_of(value_of(bits)) == max(bits, 1)


@pytest.mark.parametrize("side", [0, 1, -1])
@pytest.mark.parametrize("count", [5, 3000, 1_500_000])
def test_candidates_answer_as_the_tensor_does(count: int, side: int) -> None:
    """In any order of thresholds, whether the elements are kept apart or not."""
    x = draw_gaussian((count,), 3)
    kernels = backend.load("selection", "cpu")
    candidates = Candidates(kernels, x, side)
    for threshold in (0.5, 3.0, 2.5, 3.5, 2.0, 3.1, 9.0):
        reaching = (x.abs() if side == 0 else x * side) >= threshold
        assert candidates.count(bits_of(threshold)) == reaching.sum()
        assert torch.equal(candidates.all_above(bits_of(threshold)), reaching.nonzero().flatten())
        few = candidates.above(bits_of(threshold))
        assert few is None or torch.equal(few, reaching.nonzero().flatten())
    assert candidates.above(bits_of(3.5)) is not None
    one = candidates.select_some(bits_of(1e9))
    assert one.tolist() == [int((x.abs() if side == 0 else x * side).argmax())]


# thresholdv


def test_the_bytes_of_a_threshold_are_the_documented_ones() -> None:
    """Two of nine kept: header, two 32-bit positions, two values."""
    x = torch.tensor([0.0, 0.5, -0.25, 0.49999997, -2.0, 0.0, 0.0, 0.1, 0.0])
    payload = build("thresholdv", threshold=0.5, indices="int32").compress(x, make_key())
    header = (0 | 0 << 3 | 2 << 8).to_bytes(8, "little")
    assert (
        payload.numpy().tobytes() == header + np.array([1, 4], "<u4").tobytes() + np.array([0.5, -2], "<f4").tobytes()
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(-2, 2, width=32) | st.sampled_from([0.1, -0.1]), min_size=1), st.floats(1e-40, 3))
def test_all_that_reach_the_threshold_are_sent_and_no_other(values: list[float], threshold: float) -> None:
    x = torch.tensor(values)
    expected = [value if abs(value) >= threshold else 0.0 for value in x.tolist()]
    assert sent("thresholdv", x, threshold=threshold).tolist() == expected


def test_the_rounding_of_the_threshold_lets_nothing_through() -> None:
    """float32(0.1) is above 0.1, float32(0.7) below 0.7: only the first reaches it."""
    assert sent("thresholdv", torch.tensor([0.1]), threshold=0.1).any()
    assert not sent("thresholdv", torch.tensor([0.7]), threshold=0.7).any()


def test_the_error_of_a_threshold_does_not_grow_with_the_gradient() -> None:
    for scale in (1e-6, 1.0, 1e6):
        x = draw_gaussian((5000,)) * scale
        compressor = build("thresholdv", threshold=0.01)
        kappa = math.sqrt(5000) * 0.01
        assert compressor.law(x.shape).kappa == kappa
        assert float((sent("thresholdv", x, threshold=0.01) - x).norm()) <= kappa
    x = torch.full((5000,), math.nextafter(0.01, 0))  # as large as an error can be
    assert float((sent("thresholdv", x, threshold=0.01) - x).norm()) > 0.999 * kappa


def test_an_empty_selection_is_a_payload_of_a_header() -> None:
    for name in ("thresholdv", "adaptive_threshold", "gaussiank", "dgc", "sidco"):
        x = torch.zeros(10_000)
        assert len(build(name).compress(x, make_key())) == 8
    assert len(build("thresholdv", threshold=9.0).compress(draw_gaussian((10_000,)), make_key())) == 8


# adaptive_threshold


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([1.0, -0.5, 0.49999997, 1e-45, 3e-45]), min_size=1
    )
)
def test_twice_the_element_reaches_the_largest(values: list[float]) -> None:
    x = torch.tensor(values)
    largest = max(abs(value) for value in x.tolist())
    expected = [value if 2 * abs(value) >= largest else 0.0 for value in x.tolist()]
    assert sent("adaptive_threshold", x).tolist() == expected


def test_the_contraction_of_the_adaptive_threshold_is_reached() -> None:
    n = 101
    x = torch.full((n,), 0.49999997)
    x[7] = 1.0
    delta = build("adaptive_threshold").law((n,)).delta
    assert delta == 4 / 104
    error = (sent("adaptive_threshold", x) - x).double().square().sum() / x.double().square().sum()
    assert abs(float(error) - (1 - delta)) < 1e-6


def test_of_nan_and_inf_all_are_sent_and_nothing_else() -> None:
    x = draw_gaussian((1000,))
    x[[3, 500, 999]] = torch.tensor([math.nan, -math.inf, math.inf])
    q = sent("adaptive_threshold", x)
    assert q[3].isnan() and q[500] == -math.inf and q[999] == math.inf
    assert q.count_nonzero() == 3


# gaussiank


def by_the_book(x: torch.Tensor, ratio: float, corrections: int) -> torch.Tensor:
    """The mask of Gaussian-k in numpy, in float64."""
    values = x.double().numpy()
    k = max(1, int(len(values) * ratio))
    z = float(torch.special.ndtri(torch.tensor(1 - k / len(values) / 2, dtype=torch.float64)))
    threshold = abs(values.mean()) + z * values.std(ddof=1)
    for _ in range(corrections):
        count = (np.abs(values) >= threshold).sum()
        if count < 2 * k / 3:
            threshold *= 0.5
        elif count > 4 * k / 3:
            threshold *= 1.5
        else:
            break
    return torch.from_numpy(np.abs(values) >= threshold)


@pytest.mark.parametrize("corrections", [0, 1, 3, 20])
@pytest.mark.parametrize("tail", ["normal", "heavy", "light", "shifted"])
def test_gaussian_k_is_the_published_rule(tail: str, corrections: int) -> None:
    x = draw_gaussian((40_000,), 1)
    x = {"normal": x, "heavy": x**5, "light": torch.special.ndtr(x) - 0.5, "shifted": x - 3}[tail]
    expected = by_the_book(x, 0.01, corrections)
    q = sent("gaussiank", x, ratio=0.01, corrections=corrections)
    if expected.any():
        assert torch.equal(q, torch.where(expected, x, 0.0))
    else:
        assert q.count_nonzero() == 1 and q.abs().max() == x.abs().max()


def test_on_normal_numbers_the_first_threshold_is_right() -> None:
    x = draw_gaussian((1_000_000,), 2)
    for ratio in (0.001, 0.01, 0.2):
        count = int(sent("gaussiank", x, ratio=ratio, corrections=0).count_nonzero())
        assert abs(count - ratio * 1e6) < 6 * math.sqrt(ratio * 1e6)


def test_the_sign_of_the_mean_does_not_matter() -> None:
    x = draw_gaussian((5000,), 4) + 2
    assert torch.equal(sent("gaussiank", -x, ratio=0.01), -sent("gaussiank", x, ratio=0.01))


@pytest.mark.parametrize("name", ["gaussiank", "sidco", "redsync_threshold", "redsync_trimmed", "dgc"])
def test_where_nothing_can_be_estimated_the_k_largest_are_sent(name: str) -> None:
    for bad in (math.nan, math.inf):
        x = draw_gaussian((10_000,))
        x[[17, 9000]] = bad
        q = sent(name, x, ratio=0.01, count="ceil")
        assert not q[17].isfinite() and not q[9000].isfinite()
        assert q.isfinite().sum() == 9998
        if name != "dgc":
            assert (q != 0).sum() == 100


@pytest.mark.parametrize("name", ["gaussiank", "sidco", "redsync_threshold", "redsync_trimmed", "dgc"])
def test_a_ratio_of_one_sends_everything(name: str) -> None:
    x = draw_gaussian((3000,))
    x[5] = 0.0
    if name != "redsync_threshold":  # which searches for a threshold all the same
        assert torch.equal(sent(name, x, ratio=1.0), x)


@pytest.mark.parametrize("name", ["gaussiank", "sidco", "redsync_threshold", "redsync_trimmed", "dgc", "thresholdv"])
def test_the_selection_knows_no_places(name: str) -> None:
    """Elements in the opposite order: the same ones are kept (no two have the same magnitude)."""
    x = torch.linspace(0.5, 1.0, 50_000) * draw_gaussian((50_000,), 5).sign()
    x = x[torch.randperm(50_000, generator=torch.Generator().manual_seed(6))] ** 9
    options: dict[str, Any] = {"threshold": 0.5} if name == "thresholdv" else {"ratio": 0.01}
    if name == "dgc":
        options["sample_ratio"] = 1.0
    assert torch.equal(sent(name, x, **options), sent(name, x.flip(0), **options).flip(0))
