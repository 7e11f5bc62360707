"""DGC's selection: the sample, the adaptation of its threshold, and the cut by magnitude."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from compressors import Key
from compressors.conformance.cases import compute_critical_z, draw_gaussian, make_key
from compressors.kernels import backend
from compressors.kernels.reference import sampling
from compressors.sparsification import magnitudes
from compressors.sparsification.dgc import DGC


def kept(compressor: DGC, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    """The positions that are sent."""
    q = compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))
    assert torch.equal(q, torch.where(q != 0, x, 0.0))
    return q.nonzero().flatten()


def largest(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.abs().topk(k).indices.sort().values


def told(value: float, **options: Any) -> DGC:
    """With a sample in which all elements are `value`: the threshold to start from."""

    class Told(DGC):
        def _sample(self, x: torch.Tensor, key: Key, taken: int) -> torch.Tensor:
            return torch.full((taken,), value)

    return Told(**options)


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("n", [1, 7, 100, 1000, 2000, 2001, 5999])
def test_small_tensors_send_their_exact_top_k(n: int, strided: bool) -> None:
    """Fewer than 3 ceil(2 / 0.001) elements; ceil(n r) of them."""
    x = draw_gaussian((n,), 1)
    q = DGC(strided_sample=strided)
    assert torch.equal(kept(q, x), largest(x, math.ceil(n / 1000)))
    assert q.count_kept(n) == math.ceil(n / 1000)
    assert q.law((n,)).delta == math.ceil(n / 1000) / n
    assert q.count_kept(6000) is None


@pytest.mark.parametrize("sample_ratio", [0.9, 0.5, 0.34, 0.3, 0.25, 0.24, 0.2, 0.16, 0.1, 0.05])
@pytest.mark.parametrize("count", ["ceil", "drop_ratio"])
def test_the_sample_is_one_of_the_whole_layer(sample_ratio: float, count: str) -> None:
    """A part of the layer has gradients 1000 times as large as the rest. A sample that has too much of that part
    lets too few elements through, one that has too little of it too many. 5 % of them or fewer are seen at a rank
    of 100 or more: a standard deviation of 10 %."""
    thresholds = []

    class Watched(DGC):
        def _adapt(self, x: torch.Tensor, k: int, threshold: int) -> torch.Tensor | None:
            thresholds.append(magnitudes.value_of(threshold))
            return super()._adapt(x, k, threshold)

    n = 20_011
    options = {"ratio": 0.1} if count == "ceil" else {"ratio": 0.9, "count": count}
    q = Watched(sample_ratio=sample_ratio, max_adaptation_iterations=0, **options)
    for large in (n // 2, n // 4):
        x = draw_gaussian((n,), 9) * torch.where(torch.arange(n) < large, 1.0, 1e-3)
        for one in (x, x.flip(0)):
            for step in range(5):
                assert 0.5 * 0.1 * n < len(kept(q, one, step)) <= 0.1 * n + 1
                assert sample_ratio > 1 / 3 or 0.5 < int((one.abs() >= thresholds[-1]).sum()) / (0.1 * n) < 1.6
    assert len(thresholds) == (0 if sample_ratio > 1 / 3 else 20)


@pytest.mark.parametrize(("n", "taken"), [(6000, 2000), (7999, 2666), (8000, 2666), (10_000, 2000), (250_000, 2500)])
def test_the_sample_reaches_from_one_end_to_the_other(n: int, taken: int) -> None:
    q = DGC()
    assert q._sample_size(n) >= taken and q._sample_size(n) < 2 * max(2000, n // 100)
    for step in range(10):
        places = q._sample(torch.arange(n).float(), make_key(step), q._sample_size(n))
        assert places.min() <= 2 * n / taken and places.max() >= n - 1 - 2 * n / taken
        assert places.diff().max() <= n / taken


@pytest.mark.parametrize("strided", [True, False])
def test_what_is_kept_is_about_the_largest_and_never_more_than_k(strided: bool) -> None:
    x = draw_gaussian((300_000,), 2)
    for ratio in (0.001, 0.01):
        q = DGC(ratio=ratio, strided_sample=strided)
        k = math.ceil(300_000 * ratio)
        for step in range(20):
            found = kept(q, x, step)
            assert 0.8 * k <= len(found) <= k
            assert torch.equal(found, largest(x, len(found)))


def test_the_sample_is_a_different_one_at_every_step_and_worker() -> None:
    x = draw_gaussian((300_000,), 3)
    q = DGC(resample=False, upper_bound=2.0)
    counts = {len(kept(q, x, step)) for step in range(30)}
    assert len(counts) > 3
    keys = [make_key(step, worker=worker) for step in range(2) for worker in range(2)]
    samples = [q._sample(x, one, 3000) for one in keys]
    assert len({float(one.sum()) for one in samples}) == 4


@pytest.mark.parametrize("n", [101, 1000, 4096, 10_007])
@pytest.mark.parametrize("taken", [1, 2, 50, 100])
def test_a_strided_sample_is_spread_over_all_positions(n: int, taken: int) -> None:
    x = torch.arange(n).float()
    q = DGC()
    strides, seen = set(), set()
    for step in range(300):
        sample = q._sample(x, make_key(step), taken)
        assert len(sample) == taken
        seen.update(sample[[0, -1]].tolist())
        strides.update(sample.diff().tolist())
    if taken > 1:
        assert len(strides) == 1
        stride = int(strides.pop())
        assert stride % 2 == 1 and n / taken - 2 <= stride <= n / taken
    if n <= 1000 and taken == 100:
        # All starts are possible: with fewer than 15 of them each was missed with a probability below 10^-8.
        starts = n - 99 * stride
        assert starts > 15 or {int(s) for s in seen if s < starts} >= set(range(starts))
    assert max(seen) < n


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_both_samplings_draw_the_same_elements(count: int) -> None:
    x = draw_gaussian((12_345,), 4)
    for seed in range(5):
        compiled = backend.load("sampling", "cpu").sample(x, make_key(seed).mix(), count)
        assert torch.equal(compiled, sampling.sample(x, make_key(seed).mix(), count))


def test_random_positions_are_uniform() -> None:
    """A chi-square statistic of 100 cells is normal enough for a one-sided test at 10^-6."""
    drawn = backend.load("sampling", "cpu").sample(torch.arange(100).float(), make_key().mix(), 100_000)
    seen = torch.bincount(drawn.long(), minlength=100).double()
    chi = float(((seen - 1000) ** 2 / 1000).sum())
    assert abs(chi - 99) / math.sqrt(198) < compute_critical_z(1)


def test_too_many_above_the_threshold_are_cut_by_magnitude_not_by_position() -> None:
    """125 reach the threshold where 100 are wanted. The authors' code takes the first 100 positions."""
    x = torch.linspace(0, 1, 100_000)  # the largest are the last ones
    assert kept(told(float(x[-125])), x).tolist() == list(range(99_900, 100_000))


def test_too_few_lower_the_threshold_by_the_factor() -> None:
    """On 0 ... 1 the number above t is (1 - t) n: 0.99951 gives 50 of 100, below 80. Times 0.8 gives 20 039, which is
    above 130: the exact top-k."""
    x = torch.linspace(0, 1, 100_000)
    assert len(kept(told(0.99951, max_adaptation_iterations=0), x)) == 50
    assert kept(told(0.99951), x).tolist() == list(range(99_900, 100_000))
    gently = told(0.99951, lower_bound=0.9999, max_adaptation_iterations=2)
    assert len(kept(gently, x)) == int((x >= 0.99951 * 0.9999**2).sum()) == 69


def test_too_many_raise_the_threshold_without_resampling() -> None:
    """Pareto-like: n t^-2 reach t. 1000 reach 10, 592 reach 13, 350 reach 16.9, ...; 1.3 k = 130 ends it at 37.1."""
    n = 100_000
    x = (torch.arange(1, n + 1).double() / n).pow(-0.5).float()
    x = x[torch.randperm(n, generator=torch.Generator().manual_seed(7))]
    for iterations in range(4):
        q = told(10.0, resample=False, max_adaptation_iterations=iterations)
        assert torch.equal(kept(q, x), largest(x, 100))  # still too many: the k largest of them
    # 10, 20, 40: 1000, 250, 62; with resampling, the exact k largest at once
    assert len(kept(told(10.0, resample=False, upper_bound=2.0, lower_bound=0.1), x)) == int((x >= 40).sum()) == 62
    assert len(kept(told(10.0, upper_bound=2.0, lower_bound=0.1), x)) == 100


@pytest.mark.parametrize("resample", [True, False])
def test_a_useless_sample_still_sends_the_largest(resample: bool) -> None:
    """Nearly all elements are zero, so that the sample holds nothing else."""
    x = torch.zeros(200_000)
    x[[5, 77_777]] = torch.tensor([1e-3, -2e-3])
    assert kept(DGC(resample=resample), x).tolist() == [5, 77_777]
    x[1000:3000] = 1.0
    found = kept(DGC(resample=resample), x)  # of equal ones the first
    assert found.tolist() == list(range(1000, 1200 if resample else 1001))  # no threshold tells 200 of them apart


@pytest.mark.parametrize(
    "options",
    [{}, {"strided_sample": False}, {"resample": False}, {"lower_bound": 0.1, "max_adaptation_iterations": 0}],
    ids=str,
)
def test_the_contraction_is_that_of_the_sample(options: dict[str, Any]) -> None:
    """All magnitudes equal is the worst case; a few spikes between them mislead the sample as much as can be."""
    n = 100_000
    q = DGC(ratio=0.01, sample_ratio=0.01, **options)
    delta = q.law((n,)).delta
    assert delta == (11 / n if q.strided_sample and q.resample else 1 / n)  # of the 1010 at every 99th position
    spikes = torch.ones(n)
    spikes[::101] = 2.0
    for x in (torch.ones(n), spikes, draw_gaussian((n,), 8)):
        for step in range(10):
            q_x = q.decompress(q.compress(x, make_key(step)), x, make_key(step))
            error = (q_x - x).double().square().sum()
            assert float(error) <= (1 - delta) * float(x.double().square().sum()) * (1 + 1e-9)
