"""Signs beyond the conformance suite: the bytes, the coins of zeros, the vote, momentum and the mean magnitude."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import Compressor, CorruptPayload, build
from compressors.conformance.cases import compute_critical_z, draw_gaussian, make_key, renew
from compressors.kernels import backend
from compressors.quantisation.signs import Sign, SignNorm, Signum

OPERATORS = [SignNorm(scale="l2"), SignNorm(zeros="plus"), SignNorm(scale="l2", zeros="plus")]


def sent(compressor: Sign | Signum | SignNorm, x: torch.Tensor, step: int = 0, worker: int = 0) -> torch.Tensor:
    one = make_key(step, worker=worker)
    return compressor.decompress(compressor.compress(x, one), x, one)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.sampled_from([build(name) for name in ("sign", "signum", "sign_norm")] + OPERATORS),
    st.one_of(st.integers(0, 80), st.sampled_from([1023, 1024, 1025, 4095, 4096, 4097, 8200, 10_001])),
    st.integers(0, 2**32),
    st.sampled_from(["normal", "sparse", "zeros", "negative zeros", "wide", "bad"]),
)
def test_kernel_and_reference_give_the_same_bits(method: Compressor, count: int, seed: int, kind: str) -> None:
    x = draw_gaussian((count,), seed)
    if kind == "sparse":
        x *= draw_gaussian((count,), seed + 1) > 1
    elif kind in ("zeros", "negative zeros"):
        x = torch.zeros(count) * (1 if kind == "zeros" else -1)
    elif kind == "wide":
        x *= torch.logspace(-44, 30, count)
    elif kind == "bad" and count:
        x[seed % count] = (math.nan, math.inf, -math.inf)[seed % 3]
    results = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            compressor = renew(method)
            for step in range(2):
                payload, out = compressor.compress(x, make_key(step)), draw_gaussian((count,), 9)
                compressor.decompress_add(payload, out, make_key(step), 0.3)
                results.append((payload, out.nan_to_num(7.0)))
    for step in range(2):
        for compiled, plain in zip(results[step], results[2 + step], strict=True):
            assert torch.equal(compiled, plain)


# The bytes


def test_the_bytes_are_the_documented_ones() -> None:
    x = torch.tensor([1.0, -2.0, 3.0, -4e-45, 5.0, 6.0, -7.0, 8.0, -9.0])
    assert Sign().compress(x, make_key()).tolist() == [0b01001010, 0b001]
    assert Signum().compress(x * 1e30, make_key()).tolist() == [0b01001010, 0b001]
    scaled = SignNorm().compress(x.round(), make_key())
    assert scaled[:4].view(torch.float32).item() == np.float32(41 / 9)
    assert scaled[5:].tolist() == [0b1]


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 8, 9, 1023, 1024, 4097])
def test_a_bit_each_and_two_for_all(count: int) -> None:
    for value, flag in ((0.0, count), (-0.0, count), (math.nan, count + 1), (-math.inf, count + 1)):
        if count or value == 0.0:
            bits = np.unpackbits(Sign().compress(torch.full((count,), value), make_key()).numpy(), bitorder="little")
            assert np.flatnonzero(bits).tolist() == [flag]
            assert len(bits) == 8 * math.ceil((count + 2) / 8)
    assert SignNorm().payload_size((count,)) == 4 + math.ceil(count / 8)


@pytest.mark.parametrize("count", [0, 5, 6, 7, 8, 1030])
def test_only_three_endings_are_accepted(count: int) -> None:
    payload = torch.zeros(math.ceil((count + 2) / 8), dtype=torch.uint8)
    accepted = []
    for ending in range(2 ** (8 * len(payload) - count)):
        whole = (ending << count) | ((1 << count) - 1)
        raw = bytearray(whole.to_bytes(len(payload), "little"))
        try:
            decoded = Sign().decompress(torch.frombuffer(raw, dtype=torch.uint8), torch.zeros(count), make_key())
        except CorruptPayload:
            continue
        expected = torch.full((count,), (-1.0, 0.0, math.nan)[ending])
        assert torch.equal(decoded.nan_to_num(7.0), expected.nan_to_num(7.0))
        accepted.append(ending)
    assert accepted == [0, 1, 2]


@pytest.mark.parametrize("bits", [0x80000000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC00000])
def test_a_mean_magnitude_that_no_encoder_writes_raises(bits: int) -> None:
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            payload = SignNorm().compress(draw_gaussian((20,)), make_key())
            payload[:4] = torch.from_numpy(np.array([bits], "<u4").view(np.uint8).copy())
            with pytest.raises(CorruptPayload, match="mean magnitude"):
                SignNorm().decompress(payload, torch.zeros(20), make_key())


# Zeros


def test_a_zero_among_others_votes_with_a_fair_coin_of_its_own() -> None:
    """z-tests of each coin and of each pair of neighbours over 2000 keys; correct once in 10^6 runs not."""
    x = torch.zeros(100)
    x[::5] = draw_gaussian((20,))
    x[1::5] = -0.0
    for compressor in (Sign(), SignNorm()):
        draws = torch.stack([sent(compressor, x, step) for step in range(2000)]).sign()
        zeros = x == 0
        assert torch.equal(draws[:, ~zeros], x[~zeros].sign().expand(2000, -1))
        coins = draws[:, zeros].double()
        assert (coins.abs() == 1).all()
        z = coins.mean(0) * math.sqrt(2000)
        pairs = (coins[:, 1:] * coins[:, :-1]).mean(0) * math.sqrt(2000)
        assert max(float(z.abs().max()), float(pairs.abs().max())) < compute_critical_z(4 * 80)


def test_workers_flip_different_coins() -> None:
    x = torch.zeros(1000)
    x[0] = 1.0
    assert not torch.equal(sent(Sign(), x, worker=0), sent(Sign(), x, worker=1))


# The vote


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 49, 100])
def test_the_majority_wins_and_a_tie_is_exactly_zero(workers: int) -> None:
    gradients = [draw_gaussian((500,), worker) for worker in range(workers)]
    mean = torch.zeros(500)
    for worker, gradient in enumerate(gradients):
        one = make_key(worker=worker)
        Sign().decompress_add(Sign().compress(gradient, one), mean, one, 1 / workers)
    Sign().finish(mean, make_key(), workers)
    votes = sum(gradient.sign() for gradient in gradients)
    assert isinstance(votes, torch.Tensor) and torch.equal(mean, votes.sign())
    assert bool((mean == 0).any()) == (workers % 2 == 0)


@pytest.mark.parametrize("workers", [1, 2, 3, 6, 49])
def test_the_mean_of_signs_is_exact(workers: int) -> None:
    gradients = [draw_gaussian((500,), worker) for worker in range(workers)]
    mean, compressor = torch.zeros(500), Sign(aggregate="mean")
    for worker, gradient in enumerate(gradients):
        one = make_key(worker=worker)
        compressor.decompress_add(compressor.compress(gradient, one), mean, one, 1 / workers)
    compressor.finish(mean, make_key(), workers)
    assert torch.equal(mean, torch.stack([gradient.sign() for gradient in gradients]).sum(0) / workers)


def test_a_worker_without_a_gradient_abstains() -> None:
    mean = torch.zeros(3)
    for worker, gradient in enumerate([torch.zeros(3), torch.tensor([1.0, -1.0, 1.0]), -torch.zeros(3)]):
        one = make_key(worker=worker)
        Sign().decompress_add(Sign().compress(gradient, one), mean, one, 1 / 3)
    Sign().finish(mean, make_key(), 3)
    assert mean.tolist() == [1.0, -1.0, 1.0]


def test_a_nan_of_one_worker_outlives_the_vote() -> None:
    mean = torch.zeros(3)
    for worker, gradient in enumerate([torch.ones(3), torch.ones(3), torch.tensor([1.0, math.nan, 1.0])]):
        one = make_key(worker=worker)
        Sign().decompress_add(Sign().compress(gradient, one), mean, one, 1 / 3)
    Sign().finish(mean, make_key(), 3)
    assert mean.isnan().all()


# Momentum


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_momentum_is_that_of_the_paper(beta: float) -> None:
    signum = Signum(beta=beta)
    m = torch.zeros(2000).double()
    for step in range(10):
        x = draw_gaussian((2000,), step)
        m = beta * m + (1 - beta) * x.double()
        clear = m.abs() > 1e-6
        assert torch.equal(sent(signum, x, step)[clear].double(), m.sign()[clear])
        assert torch.allclose(signum.unit_tensors[0]["momentum"].double(), m, atol=1e-6)


def test_units_have_their_own_momentum_and_shape() -> None:
    signum = Signum()
    signum.compress(torch.ones(8), make_key(unit=1))
    signum.compress(-torch.ones(9), make_key(unit=2))
    assert signum.unit_tensors[1]["momentum"].tolist() == pytest.approx([0.1] * 8)
    assert signum.unit_tensors[2]["momentum"].tolist() == pytest.approx([-0.1] * 9)
    with pytest.raises(ValueError, match="unit 1 has 9 elements, its momentum 8"):
        signum.compress(torch.ones(9), make_key(unit=1))


def test_a_message_that_is_too_short_leaves_the_momentum_alone() -> None:
    signum = Signum()
    signum.compress(torch.ones(8), make_key())
    before = signum.unit_tensors[0]["momentum"].clone()
    with pytest.raises(ValueError, match="out"):
        signum.compress(torch.ones(8), make_key(1), torch.empty(1, dtype=torch.uint8))
    assert torch.equal(signum.unit_tensors[0]["momentum"], before)


def test_a_nan_stays_in_the_momentum() -> None:
    signum = Signum()
    assert sent(signum, torch.tensor([1.0, math.nan]), 0).isnan().all()
    assert sent(signum, torch.ones(2), 1).isnan().all()


# The mean magnitude


@pytest.mark.parametrize("count", [1, 31, 1500, 5000])
def test_the_error_is_that_of_the_paper(count: int) -> None:
    """||Q(x) - x||^2 = ||x||^2 - ||x||_1^2 / n, whatever the coins of zeros are."""
    for kind in ("normal", "sparse", "one-hot"):
        x = draw_gaussian((count,), 3).abs() + 0.1
        x *= draw_gaussian((count,), 4).sign()
        if kind == "sparse":
            x[::3] = 0.0
        elif kind == "one-hot":
            x[1:] = 0.0
        decoded = sent(SignNorm(), x).double()
        assert torch.allclose(decoded.abs(), x.double().abs().mean(), rtol=1e-6)
        assert (decoded * x >= 0).all()
        energy, norm1 = float(x.double().square().sum()), float(x.double().abs().sum())
        error = float((decoded - x).square().sum())
        assert error == pytest.approx(energy - norm1**2 / count, rel=1e-5, abs=1e-6 * energy)
        if kind == "one-hot":  # for which the law is exact
            delta = SignNorm().law((count,)).delta
            assert delta is not None
            assert error == pytest.approx((1 - delta) * energy, rel=1e-5, abs=1e-6 * energy)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100, 5000])
@pytest.mark.parametrize("scale", ["l1", "l2"])
def test_the_operator_of_deepspeed_and_its_law(scale: str, count: int) -> None:
    """(||x||_2 / sqrt(n)) sign(x) with sign(0) = sign(-0) = +1; the law is exact for one-hot vectors."""
    compressor = SignNorm(scale=scale, zeros="plus")
    for kind in ("normal", "sparse", "one-hot"):
        x = draw_gaussian((count,), 5)
        if kind == "sparse":
            x[1::3] = 0.0
            x[2::3] = -0.0
        elif kind == "one-hot":
            x[1:] = 0.0
        wide, q = x.double(), sent(compressor, x)
        length, norm1 = float(wide.norm()), float(wide.abs().sum())
        size = norm1 / count if scale == "l1" else length / math.sqrt(count)
        assert torch.equal(q, torch.where(x >= 0, 1.0, -1.0) * np.float32(size))
        error = float((q.double() - wide).square().sum())
        assert error == pytest.approx(length**2 - 2 * size * norm1 + count * size**2, rel=1e-5, abs=1e-6 * length**2)
        if kind == "one-hot":
            law = compressor.law((count,))
            worst = 1 - law.delta if law.delta is not None else law.omega
            assert worst is not None and error == pytest.approx(worst * length**2, rel=1e-5, abs=1e-6 * length**2)
            assert (law.delta is None) == (error >= length**2)
        elif kind == "normal" and count == 5000:
            assert error / length**2 == pytest.approx(0.363 if scale == "l1" else 0.404, abs=0.01)


def test_a_mean_magnitude_near_the_ends_of_float32() -> None:
    for value in (3e38, 1e-45):
        x = torch.full((5000,), value)
        x[::2] *= -1
        for compressor in (SignNorm(), SignNorm(scale="l2")):
            assert torch.equal(sent(compressor, x), x)
