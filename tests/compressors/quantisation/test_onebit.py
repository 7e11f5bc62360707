"""1-bit quantisation beyond the conformance suite: its bytes, its means and its law."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload, memories
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.quantisation.qsgd_terngrad_onebit import OneBit

both_kernels = pytest.mark.parametrize("kernels", ["numba", "torch"])


@both_kernels
def test_the_bytes_are_the_documented_ones(kernels: str) -> None:
    x = torch.tensor([1.0, -2.0, 2.0, -0.0, 0.0, -4.0, 3.0, 8.0, -1.0, -5.0])
    with backend.use(kernels):
        payload = OneBit(bucket_size=9).compress(x, make_key())
    means = np.array([14 / 5, -7 / 4, 0.0, -5.0], "<f4").tobytes()
    assert payload.numpy().tobytes() == means + bytes([0b00101010, 0b1, 0b1])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 9000), st.one_of(st.none(), st.integers(1, 5000)), st.integers(0, 2**32), st.booleans())
def test_the_means_are_those_of_the_signs(count: int, bucket_size: int | None, seed: int, shifted: bool) -> None:
    """Against two loops over the buckets in float64; every kernel."""
    x = draw_gaussian((count,), seed) + 2 * shifted
    bucket_size = bucket_size if bucket_size is None or count / bucket_size < 300 else 300
    q = OneBit(bucket_size=bucket_size)
    expected = x.double()
    for part in expected.split(bucket_size or count):
        negative = part < 0
        for one in (negative, ~negative):
            part[one] = part[one].mean()
    payloads = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            payloads.append(q.compress(x, make_key()))
            assert torch.allclose(q.decompress(payloads[-1], x, make_key()).double(), expected, rtol=1e-6, atol=0)
    assert torch.equal(*payloads)


@pytest.mark.parametrize("n", [1, 2, 17, 2048])
def test_the_contraction_is_reached(n: int) -> None:
    """One element that is not zero: of its energy exactly 1 / n arrives."""
    x = torch.zeros(n)
    x[n // 2] = 3.0
    q = OneBit()
    error = (q.decompress(q.compress(x, make_key()), x, make_key()) - x).double().square().sum()
    delta = q.law((n,)).delta
    assert delta == 1 / n
    assert float(error) == pytest.approx((1 - delta) * 9, abs=1e-5)


def test_small_elements_keep_their_mean_beside_huge_ones() -> None:
    """The negative sum as a difference of other sums would be lost in their rounding."""
    x = torch.full((4096,), 1e30)
    x[::2] = -1e-30
    sent = OneBit(bucket_size=None).decompress(OneBit(bucket_size=None).compress(x, make_key()), x, make_key())
    assert torch.equal(sent, x)


def test_with_error_feedback_nothing_is_lost() -> None:
    """The mean of what is sent tends to the gradient; without a memory every step is as far off as the first."""
    x = draw_gaussian((3000,))
    kept, q = memories.build("residual"), OneBit()
    total = torch.zeros_like(x)
    errors = []
    for step in range(1, 801):
        y = kept.compensate(0, x)
        payload = q.compress(y, make_key(step))
        total += q.decompress(payload, y, make_key(step))
        kept.update(make_key(step), y, payload, q)
        errors.append(float((total / step - x).norm() / x.norm()))
    assert errors[0] > 0.5
    assert errors[799] < 0.05 and errors[799] < errors[99] / 2


@both_kernels
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
def test_only_the_bucket_of_a_nan_becomes_nan(kernels: str, bad: float) -> None:
    x = draw_gaussian((3 * 500,))
    x[700] = bad
    q = OneBit(bucket_size=500)
    with backend.use(kernels):
        sent = q.decompress(q.compress(x, make_key()), x, make_key())
    assert sent[500:1000].isnan().all() and sent[:500].isfinite().all() and sent[1000:].isfinite().all()


@both_kernels
@pytest.mark.parametrize(
    ("which", "bits"),
    [(0, 0xBF800000), (1, 0x3F800000), (0, 0x7F800000), (1, 0xFF800000), (0, 0x7FC00000), (1, 0xFFC00000)],
)
def test_means_that_no_encoder_writes_raise(kernels: str, which: int, bits: int) -> None:
    """Of the other sign, infinite, or one of them NaN."""
    q = OneBit(bucket_size=100)
    payload = q.compress(draw_gaussian((300,)), make_key())
    at = 8 + 4 * which
    payload[at : at + 4] = torch.tensor(list(bits.to_bytes(4, "little")), dtype=torch.uint8)
    with backend.use(kernels), pytest.raises(CorruptPayload, match="mean"):
        q.decompress(payload, torch.zeros(300), make_key())
