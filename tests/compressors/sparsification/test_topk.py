"""Top-k and the selection kernels: the same elements as sorting gives, however the values lie."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend

quick = settings(max_examples=100, deadline=None, derandomize=True)
both_kernels = pytest.mark.parametrize("kernel", ["auto", "torch"])


def selection(kernel: str) -> ModuleType:
    with backend.use(kernel):
        return backend.load("selection", "cpu")


def bits(number: float) -> int:
    return int(torch.tensor(number).view(torch.int32))


def sorted_topk(x: torch.Tensor, k: int, side: int = 0) -> list[int]:
    """By Python's sort: NaN before Inf before numbers by size, then by position."""
    magnitudes = [(int(b) & 0x7FFFFFFF, (int(b) < 0)) for b in x.view(torch.int32)]
    eligible = [
        at for at, (size, negative) in enumerate(magnitudes) if not side or (size > 0 and negative == (side < 0))
    ]
    return sorted(sorted(eligible, key=lambda at: (-magnitudes[at][0], at))[:k])


@both_kernels
@quick
@given(
    st.lists(
        st.one_of(
            st.floats(width=32, allow_nan=False),
            st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45]),
        ),
        max_size=50,
    ),
    st.integers(0, 60),
    st.sampled_from([0, 1, -1]),
)
def test_the_same_as_sorting(kernel: str, values: list[float], k: int, side: int) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    found = selection(kernel).topk(x, k, side)
    assert found.dtype is torch.int64
    assert found.tolist() == sorted_topk(x, k, side)


def test_of_equal_magnitudes_the_first_are_kept() -> None:
    x = torch.tensor([1.0, -2.0, 2.0, -1.0, 2.0, 0.0])
    for kernel in ("auto", "torch"):
        assert selection(kernel).topk(x, 2).tolist() == [1, 2]
        assert selection(kernel).topk(x, 4).tolist() == [0, 1, 2, 4]
        assert selection(kernel).topk(torch.zeros(5), 3).tolist() == [0, 1, 2]


N = 200_000
HARD = {
    "normal": lambda: draw_gaussian((N,)),
    "all equal": lambda: torch.full((N,), -0.7),
    "zeros": lambda: torch.zeros(N),
    "few are not zero": lambda: draw_gaussian((N,)) * (torch.arange(N) % 997 == 0),
    "ties": lambda: (draw_gaussian((N,)) * 3).round(),
    "the large ones together": lambda: draw_gaussian((N,)) * torch.where(torch.arange(N) < N // 50, 1e6, 1.0),
    "ascending": lambda: torch.arange(N).float(),
    "descending": lambda: -torch.arange(N, 0, -1).float(),
    "nan and inf": lambda: torch.where(torch.arange(N) % 500 == 3, math.nan, draw_gaussian((N,))).index_fill_(
        0, torch.arange(0, N, 300), math.inf
    ),
}


@pytest.mark.parametrize("values", HARD)
@pytest.mark.parametrize("k", [1, 20, 2000, 30_000, 150_000, N - 1])
def test_large_tensors(values: str, k: int) -> None:
    x = HARD[values]()
    for side in (0, 1, -1):
        assert torch.equal(selection("auto").topk(x, k, side), selection("torch").topk(x, k, side))


@pytest.mark.parametrize("above", [0.0, 1e6])
def test_a_sample_that_misleads_is_survived(above: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate so high that nothing reaches it, or so low that everything does."""
    from compressors.kernels.cpu import selection as cpu

    asked = []

    def wrong(*arguments: object) -> int:
        asked.append(arguments)
        return bits(above + 1e-30)

    x = draw_gaussian((N,))
    monkeypatch.setattr(cpu, "_estimate", wrong)
    found = cpu.topk(x, 2000)
    assert asked and torch.equal(found, selection("torch").topk(x, 2000))


@both_kernels
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 5000])
@pytest.mark.parametrize("side", [0, 1, -1])
def test_what_reaches_a_threshold(kernel: str, n: int, side: int) -> None:
    kernels = selection(kernel)
    x = (draw_gaussian((n,)) * 4).round() / 4
    signed = x.abs() if side == 0 else x * side
    expected = (signed >= 0.75).nonzero().flatten()
    threshold = bits(0.75)
    assert kernels.count_above(x, threshold, side) == len(expected)
    assert torch.equal(kernels.collect_above(x, threshold, len(expected), side), expected)
    assert torch.equal(kernels.collect_above(x, threshold, n, side), expected)
    if len(expected):
        assert kernels.collect_above(x, threshold, len(expected) - 1, side) is None
    assert kernels.largest(x, side) == (bits(max(0.0, float(signed.max()))) if n else 0)


@both_kernels
def test_nan_reaches_every_threshold(kernel: str) -> None:
    x = torch.tensor([1.0, math.nan, -math.inf])
    assert selection(kernel).collect_above(x, bits(math.inf), 3).tolist() == [1, 2]
    assert selection(kernel).count_above(x, bits(3e38)) == 2
    assert not selection(kernel).is_finite(x)
    assert not selection(kernel).is_finite(x[2:])
    assert selection(kernel).is_finite(x[:1]) and selection(kernel).is_finite(x[:0])


def test_topk_keeps_k_elements_as_they_are() -> None:
    x = draw_gaussian((1000,))
    for rule, expected in (("ceil", 13), ("floor_plus_one", 13), ("at_least_one_floor", 12), ("drop_ratio", 987)):
        compressor = build("topk", ratio=0.0125, count=rule)
        decoded = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
        assert int((decoded != 0).sum()) == expected
        assert decoded[decoded != 0].abs().min() >= x[decoded == 0].abs().max()
        assert torch.equal(decoded[decoded != 0], x[decoded != 0])


def test_topk_is_the_best_contraction_of_equal_elements() -> None:
    """delta = k / n is reached, so it could not be larger."""
    x = torch.ones(200)
    compressor = build("topk", ratio=0.1)
    error = (compressor.decompress(compressor.compress(x, make_key()), x, make_key()) - x).square().sum()
    assert float(error) == pytest.approx((1 - compressor.law((200,)).delta) * 200)


def test_more_nans_than_k_are_not_forgotten() -> None:
    """Those that are not sent are in what the memory keeps."""
    x = draw_gaussian((100,))
    x[::10] = math.nan
    compressor = build("topk", ratio=0.05)
    decoded = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    assert decoded.isnan().nonzero().flatten().tolist() == [0, 10, 20, 30, 40]
    assert (x - decoded).isnan().sum() == 10
