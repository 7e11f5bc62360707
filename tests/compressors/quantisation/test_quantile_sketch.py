"""The quantile sketch beyond the conformance suite: the bytes, the means, the balance of its buckets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.kernels.reference.primitives.packing import unpack
from compressors.quantisation.quantile_sketch import QuantileSketch, Statistical


def parts(q: QuantileSketch, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The means and the number of each element's bucket."""
    payload = q.compress(x, make_key())
    count = max(2, min(q.bins, x.numel()))
    return payload[: 4 * count].view(torch.float32), unpack(payload[4 * count :], x.numel(), (count - 1).bit_length())


def sent(q: QuantileSketch, x: torch.Tensor) -> torch.Tensor:
    return q.decompress(q.compress(x, make_key()), x, make_key())


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.one_of(st.integers(2, 20), st.integers(2, 256)),
    st.one_of(st.integers(0, 50), st.integers(0, 5000)),
    st.integers(0, 2**32),
    st.sampled_from(["normal", "wide", "sparse", "ties", "bad"]),
)
def test_kernel_and_reference_give_the_same_bits(bins: int, count: int, seed: int, kind: str) -> None:
    x = draw_gaussian((count,), seed)
    if kind == "wide":
        x *= torch.logspace(-44, 30, count)
    elif kind == "sparse":
        x *= draw_gaussian((count,), seed + 1) > 2
    elif kind == "ties":
        x = x.round()
    elif kind == "bad" and count:
        x[seed % count] = (math.nan, math.inf, -math.inf)[seed % 3]
    results = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            q = QuantileSketch(bins=bins)
            payload, out = q.compress(x, make_key()), draw_gaussian((count,), 9)
            q.decompress_add(payload, out, make_key(), 0.3)
            results.append((payload, out.nan_to_num(7.0)))
    for compiled, plain in zip(*results, strict=True):
        assert torch.equal(compiled, plain)


def test_the_bytes_are_the_documented_ones() -> None:
    payload = QuantileSketch(bins=2).compress(torch.tensor([3.0, -2.0, 1.0, -1.0]), make_key()).numpy().tobytes()
    assert payload == np.array([-1.5, 2.0], "<f4").tobytes() + bytes([0b0101])
    payload = QuantileSketch(bins=3).compress(torch.tensor([0.5, 0.0, 8.0, -1.0, 0.0]), make_key()).numpy().tobytes()
    # one bucket for the negative; the share of the others is that of the zeros, which count as one
    assert payload == np.array([-1.0, 0.0, 4.25], "<f4").tobytes() + (2 | 1 << 2 | 2 << 4 | 0 << 6 | 1 << 8).to_bytes(
        2, "little"
    )
    assert QuantileSketch().compress(torch.tensor([-7.0]), make_key()).numpy().tobytes() == bytes(
        np.array([-7.0, 0.0], "<f4").tobytes() + b"\0"
    )


@pytest.mark.parametrize(("bins", "width"), [(2, 1), (3, 2), (4, 2), (5, 3), (16, 4), (17, 5), (200, 8), (256, 8)])
def test_codes_take_the_fewest_bits(bins: int, width: int) -> None:
    assert len(QuantileSketch(bins=bins).compress(draw_gaussian((1000,)), make_key())) == 4 * bins + 125 * width


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 256), st.integers(1, 3000), st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 3.0]))
def test_levels_are_the_means_of_ascending_buckets(bins: int, count: int, seed: int, shift: float) -> None:
    x = draw_gaussian((count,), seed) * draw_gaussian((count,), seed + 1).exp() + shift
    means, codes = parts(QuantileSketch(bins=bins), x)
    end = -math.inf
    for number, mean in enumerate(means):
        members = x[codes == number].double()
        if not len(members):
            assert mean == 0
            continue
        assert float(mean) == np.float32(math.fsum(members.tolist()) / len(members))
        assert members.min() > end
        assert (members < 0).all() or (members >= 0).all()
        end = float(members.max())


@pytest.mark.parametrize("bins", [4, 16, 64])
def test_buckets_hold_about_as_many_elements_each(bins: int) -> None:
    _, codes = parts(QuantileSketch(bins=bins), draw_gaussian((200_000,)))
    counts = torch.bincount(codes, minlength=bins) * bins / 200_000
    assert counts.min() > 0.85 and counts.max() < 1.15


def test_many_zeros_cost_one_bucket() -> None:
    x = draw_gaussian((50_000,))
    x[draw_gaussian((50_000,), 1) > -1.5] = 0.0
    means, codes = parts(QuantileSketch(bins=32), x)
    assert len(codes[x != 0].unique()) >= 30
    assert (sent(QuantileSketch(bins=32), x)[x == 0].abs() < 1e-2).all() and (means == 0).sum() <= 2


def test_few_values_are_sent_exactly() -> None:
    x = torch.tensor([1.0, -3.0, 0.0, 1e30, -1e-30])[torch.arange(1000) % 5]
    assert torch.equal(sent(QuantileSketch(bins=16), x), x)


def test_the_error_is_orthogonal_to_what_is_sent() -> None:
    for bins in (2, 7, 256):
        x = draw_gaussian((5000,), 5) ** 3
        q = sent(QuantileSketch(bins=bins), x).double()
        error = float((q - x).square().sum())
        assert error == pytest.approx(float(x.double().square().sum() - q.square().sum()), rel=1e-4)


def test_quantiles_are_better_than_even_levels_where_tails_are_heavy() -> None:
    """The point of the method: 4 bits each."""
    x = draw_gaussian((20_000,)) ** 5
    sketch, even = QuantileSketch(bins=16), build("int8", bits=4, bucket_size=20_000)
    small = x.abs() < x.abs().median()

    def error(q: torch.Tensor) -> float:
        return float((q - x)[small].norm() / x[small].norm())

    assert error(sent(sketch, x)) < 0.5 < error(even.decompress(even.compress(x, make_key()), x, make_key()))


def test_a_sum_of_more_than_a_run_is_exact() -> None:
    """Counts and sums share 64 bits for 2^23 elements at a time."""
    last = float(np.nextafter(np.float32(2.0), np.float32(1.0)))
    x = torch.full((2**23 + 5,), last)
    x[-1] = -last
    means, codes = parts(QuantileSketch(bins=2), x)
    assert means.tolist() == [-last, last] and codes.sum() == 2**23 + 4


def test_a_nan_makes_everything_nan() -> None:
    for bad in (math.nan, math.inf, -math.inf):
        x = draw_gaussian((1000,))
        x[500] = bad
        payload = QuantileSketch().compress(x, make_key())
        assert (payload[:1024].view(torch.int32) == 0x7FC00000).all() and not payload[1024:].any()
        assert QuantileSketch().decompress(payload, x, make_key()).isnan().all()


@pytest.mark.parametrize("kernels", ["numba", "torch"])
def test_what_no_encoder_writes_raises(kernels: str) -> None:
    with backend.use(kernels):
        q = QuantileSketch(bins=3)
        payload = q.compress(draw_gaussian((40,)), make_key())
        wrong = payload.clone()
        wrong[-1] |= 0b11000000
        with pytest.raises(CorruptPayload, match="bucket"):
            q.decompress(wrong, torch.zeros(40), make_key())
        for value in (math.inf, -math.inf):
            wrong = payload.clone()
            wrong[4:8] = torch.tensor([value]).view(torch.uint8)
            with pytest.raises(CorruptPayload, match="infinite"):
                q.decompress(wrong, torch.zeros(40), make_key())
        means = payload[:12].view(torch.float32)
        for others in (means.flip(0), means.where(means < 0, math.nan)):
            wrong = payload.clone()
            wrong[:12] = others.view(torch.uint8)
            with pytest.raises(CorruptPayload, match="ascending"):
                q.decompress(wrong, torch.zeros(40), make_key())


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("normal", 2.3e-4, 2.9e-4), ("laplace", 6.5e-3, 9e-3), ("student", 6e-2, 1.2e-1)]
)
def test_the_energy_that_the_statistical_codebook_loses(kind: str, least: float, most: float) -> None:
    count = 1 << 19
    normal = draw_gaussian((count,))
    if kind == "laplace":
        uniform = torch.rand(count, generator=torch.Generator().manual_seed(1)).clamp(min=1e-12)
        normal = -uniform.log() * normal.sign()
    elif kind == "student":
        normal = normal / draw_gaussian((3, count), 1).square().mean(0).sqrt()
    q = Statistical()
    found = q.decompress(q.compress(normal, make_key()), normal, make_key())
    assert least < float((found - normal).double().square().sum() / normal.double().square().sum()) < most


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_the_statistical_codebook_keeps_the_sum(bits: int) -> None:
    x = draw_gaussian((100_003,)) + 0.3
    q = Statistical(bits=bits)
    found = q.decompress(q.compress(x, make_key()), x, make_key())
    assert float(found.double().sum()) == pytest.approx(float(x.double().sum()), rel=1e-6)
    # hivemind's rule, for elements: only those within a cell of the edge of a bin may be in another one.
    places = ((x.double() - x.double().mean()) / (6 * x.double().std() / 2**bits)).round() + 2 ** (bits - 1)
    places = places.clamp(0, 2**bits - 1).long()
    count = torch.bincount(places).clamp(min=1)
    means = torch.zeros(len(count), dtype=torch.float64).index_add_(0, places, x.double()) / count
    assert float((means[places] - found).norm() / (x - x.mean()).norm()) < {2: 0.05, 5: 0.03, 8: 0.01}[bits]
