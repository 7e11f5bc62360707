"""TernGrad beyond the conformance suite: its bytes, its clipping, and the scale that workers share."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from compressors import CorruptPayload
from compressors.conformance.cases import compute_critical_z, draw_gaussian, find_largest_deviation, make_key
from compressors.kernels import backend
from compressors.quantisation.qsgd_terngrad_onebit import TernGrad

both_kernels = pytest.mark.parametrize("kernels", ["numba", "torch"])


def scales(q: TernGrad, payload: torch.Tensor, count: int) -> torch.Tensor:
    buckets = math.ceil(count / (q.bucket_size or count))
    return payload[: 4 * buckets].clone().view(torch.float32)


def clipped(x: torch.Tensor, clip: float) -> torch.Tensor:
    """The paper's f(x), with the population's standard deviation, in float64."""
    limit = clip * x.double().std(correction=0)
    return x.double().clamp(-limit, limit)


def test_the_bytes_are_the_documented_ones() -> None:
    """+-scale and 0 leave nothing to chance."""
    x = torch.tensor([2.0, 0.0, -2.0, 2.0, 0.0, -0.5, 0.0])
    payload = TernGrad(clip=0, bucket_size=5).compress(x, make_key())
    codes = bytes([2 | 1 << 2 | 0 << 4 | 2 << 6, 1, 0 | 1 << 2])
    assert payload.numpy().tobytes() == np.array([2.0, 0.5], "<f4").tobytes() + codes


@both_kernels
@pytest.mark.parametrize("bucket_size", [None, 700, 5000])
@pytest.mark.parametrize("clip", [0, 1.0, 2.5])
def test_the_scale_is_the_largest_magnitude_after_clipping(kernels: str, bucket_size: int | None, clip: float) -> None:
    """The published bug: probabilities from the scale before clipping, which leaves next to nothing to send."""
    x = draw_gaussian((20_000,), 1) * draw_gaussian((20_000,), 2).exp() + 0.3
    q = TernGrad(clip=clip, bucket_size=bucket_size)
    with backend.use(kernels):
        payload = q.compress(x, make_key())
        sent = q.decompress(payload, x, make_key())
    for number, part in enumerate(x.split(bucket_size or len(x))):
        f = clipped(part, clip) if clip else part.double()
        scale = float(scales(q, payload, len(x))[number])
        assert scale == pytest.approx(float(f.abs().max()), rel=1e-6)
        expected, chances = float((f.abs() / scale).sum()), f.abs() / scale
        spread = float((chances * (1 - chances)).sum().sqrt())
        size = bucket_size or len(x)
        kept = sent[number * size : (number + 1) * size]
        assert abs(int(kept.count_nonzero()) - expected) < compute_critical_z(100) * spread + 1
        assert set(kept.abs().tolist()) <= {0.0, scale}
        assert (kept * part >= 0).all()


def test_the_mean_is_the_clipped_tensor() -> None:
    x = draw_gaussian((500,), 4)
    q = TernGrad(clip=1.0)
    samples = torch.stack([q.decompress(q.compress(x, make_key(step)), x, make_key(step)) for step in range(1000)])
    assert find_largest_deviation(samples, clipped(x, 1.0)) < compute_critical_z(500)
    assert (samples.mean(0) - x).abs().max() > 1  # what is clipped is lost, always
    assert not q.law(x.shape).unbiased and TernGrad(clip=0).law(x.shape).unbiased


@both_kernels
@pytest.mark.parametrize("count", [1, 2, 3, 1000, 70_000])
@pytest.mark.parametrize("value", [-0.7, 1e-30, 3e38, 1e-45])
def test_what_does_not_differ_is_not_clipped_away(kernels: str, count: int, value: float) -> None:
    """2.5 standard deviations of equal elements, or of one alone, are 0: taken literally, nothing is ever sent."""
    x = torch.full((count,), value)
    q = TernGrad()
    with backend.use(kernels):
        assert torch.equal(q.decompress(q.compress(x, make_key()), x, make_key()), x)


@pytest.mark.parametrize("n", [4, 100, 2500])
def test_the_variance_is_reached(n: int) -> None:
    """sqrt(n) / 2 - 1 / 2 for one large element and n - 1 small ones: no smaller constant would be true."""
    x = torch.full((n,), 1 / (math.sqrt(n) + 1))
    x[0] = 1.0
    chance = x[1:].double()
    variance = float((chance * (1 - chance)).sum() / x.double().square().sum())
    omega = TernGrad(clip=0).law((n,)).omega
    assert omega is not None and variance == pytest.approx(omega, rel=1e-5)


# The scale that workers share


def agreed(bucket_size: int | None, *inputs: torch.Tensor) -> list[tuple[TernGrad, torch.Tensor]]:
    """Workers and their payloads, after they have agreed."""
    workers = [TernGrad(clip=0, bucket_size=bucket_size, share_scale=True) for _ in inputs]
    keys = [make_key(3, worker=number) for number in range(len(inputs))]
    told = [q.statistics(x, one) for q, x, one in zip(workers, inputs, keys, strict=True)]
    assert all(one.dtype is torch.float32 and one.dim() == 1 for one in told)
    largest = torch.stack(told).amax(0)
    for q, one in zip(workers, keys, strict=True):
        assert q.needs_agreement(one)
        q.agree(one, largest)
    return [(q, q.compress(x, one)) for q, x, one in zip(workers, inputs, keys, strict=True)]


@both_kernels
def test_workers_that_agree_send_the_same_scales(kernels: str) -> None:
    x, y = draw_gaussian((1000,), 1), 3 * draw_gaussian((1000,), 2)
    with backend.use(kernels):
        for bucket_size in (None, 300):
            (first, a), (second, b) = agreed(bucket_size, x, y)
            expected = torch.stack([x, y]).abs().amax(0).split(bucket_size or 1000)
            assert torch.equal(scales(first, a, 1000), torch.stack([part.max() for part in expected]))
            assert torch.equal(scales(first, a, 1000), scales(second, b, 1000))
            one = first.decompress(a, x, make_key())
            assert one.abs().unique().numel() <= 1 + len(expected)


def test_a_shared_scale_is_unbiased_too() -> None:
    x, y = draw_gaussian((300,), 1), 2 * draw_gaussian((300,), 2)
    q = TernGrad(clip=0, share_scale=True)
    samples = []
    for step in range(1500):
        q.agree(make_key(step), torch.maximum(q.statistics(x, make_key(step)), q.statistics(y, make_key(step))))
        samples.append(q.decompress(q.compress(x, make_key(step)), x, make_key(step)))
    assert find_largest_deviation(torch.stack(samples), x) < compute_critical_z(300)


@both_kernels
def test_a_nan_stays_with_the_worker_that_has_it(kernels: str) -> None:
    x, y = draw_gaussian((900,), 1), draw_gaussian((900,), 2)
    x[400] = math.nan
    with backend.use(kernels):
        (first, a), (second, b) = agreed(300, x, y)
        bad, good = first.decompress(a, x, make_key()), second.decompress(b, y, make_key())
    assert bad[300:600].isnan().all() and bad[:300].isfinite().all() and bad[600:].isfinite().all()
    assert good.isfinite().all() and good[300:600].abs().max() == y[300:600].abs().max()


def test_what_was_agreed_holds_for_that_step_and_unit_only() -> None:
    x = draw_gaussian((100,))
    q = TernGrad(share_scale=True)
    alone = TernGrad()
    q.agree(make_key(1, unit=1), torch.tensor([50.0]))
    for other in (make_key(2, unit=1), make_key(1, unit=2)):
        assert torch.equal(q.compress(x, other), alone.compress(x, other))
    assert float(scales(q, q.compress(x, make_key(1, unit=1)), 100)) == 50.0
    assert not alone.needs_agreement(make_key())


# Corruption


@both_kernels
@pytest.mark.parametrize("wrong", [-1.0, math.inf, -math.nan])
def test_a_scale_that_no_encoder_writes_raises(kernels: str, wrong: float) -> None:
    q = TernGrad(bucket_size=100)
    payload = q.compress(draw_gaussian((300,)), make_key())
    bits = 0xFFC00000 if math.isnan(wrong) else int(np.float32(wrong).view(np.uint32))
    payload[4:8] = torch.tensor(list(bits.to_bytes(4, "little")), dtype=torch.uint8)
    with backend.use(kernels), pytest.raises(CorruptPayload, match="scale"):
        q.decompress(payload, torch.zeros(300), make_key())


@both_kernels
def test_the_code_3_raises(kernels: str) -> None:
    q = TernGrad()
    payload = q.compress(draw_gaussian((3000,)), make_key())
    payload[500] |= 0b1100
    with backend.use(kernels), pytest.raises(CorruptPayload, match="code"):
        q.decompress(payload, torch.zeros(3000), make_key())
