"""RedSync's selections against the pseudo-code of the paper, and the threshold that is used again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.sparsification.redsync import RedSyncThreshold, RedSyncTrimmed
from compressors.sparsification.sparsifier import Sparsifier


def sent(compressor: Sparsifier, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    return compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))


def kept(compressor: Sparsifier, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    """The positions that are sent."""
    q = sent(compressor, x, step)
    assert torch.equal(q, torch.where(q != 0, x, 0.0))
    return q.nonzero().flatten()


# redsync_trimmed


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.sampled_from([0.001, 0.013, 0.2, 0.9]), st.sampled_from(["normal", "heavy", "ties"]))
def test_trimming_selects_the_exact_top_k(n: int, ratio: float, kind: str) -> None:
    x = draw_gaussian((n,), n)
    x = {"normal": x, "heavy": x**7, "ties": (2 * x).round()}[kind]
    k = min(int(n * ratio) + 1, n)
    expected = torch.from_numpy(np.sort(np.argsort(-x.abs().numpy(), kind="stable")[:k]))
    assert torch.equal(RedSyncTrimmed(ratio=ratio).select(x, make_key()), expected)


@pytest.mark.parametrize("side", [0, 1, -1])
@pytest.mark.parametrize(("n", "k"), [(400_000, 400), (400_000, 4000), (2000, 5), (2000, 1500)])
def test_survivors_are_those_of_the_first_step_that_lets_k_through(n: int, k: int, side: int) -> None:
    """The steps one by one, in float64; the bisection must end at the same one."""
    x = draw_gaussian((n,), 1)
    sizes = (x.abs() if side == 0 else (x * side).clamp(min=0)).double()
    expected = None
    for p in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0):
        above = sizes >= sizes.mean() + p * (sizes.max() - sizes.mean())
        if above.sum() >= k:
            expected = above.nonzero().flatten()
            break
    survivors = RedSyncTrimmed()._survivors(x, k, side)
    if expected is None or len(expected) > max(1024, n // 64):
        assert survivors is None
    else:
        assert survivors is not None and torch.equal(survivors, expected)
        assert len(survivors) >= k


def test_the_number_is_floor_plus_one() -> None:
    for n, expected in ((1, 1), (999, 1), (1000, 2), (1999, 2), (10_000, 11)):
        assert RedSyncTrimmed().bound_kept(n) == expected == len(kept(RedSyncTrimmed(), draw_gaussian((n,))))


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_same_sign_quantisation_sends_the_mean_of_the_top_of_one_sign(step: int) -> None:
    x = draw_gaussian((5000,), 2) + 0.3
    q = sent(RedSyncTrimmed(ratio=0.01, values="mean"), x, step)
    expected = (x if step % 2 else -x).topk(51).indices.sort().values
    assert torch.equal(q.nonzero().flatten(), expected)
    mean = float(x[expected].double().mean())
    assert torch.allclose(q[expected], torch.tensor(mean), rtol=1e-6)
    assert (mean > 0) == (step % 2 == 1)


# redsync_threshold


def searched(x: torch.Tensor, k: int, accept: str, precision: float) -> float:
    """The search in plain float64."""
    sizes = x.abs().double()
    low, high = 0.0, 1.0
    while True:
        p = low + (high - low) / 2
        threshold = float(sizes.mean() + p * (sizes.max() - sizes.mean()))
        count = int((sizes >= threshold).sum())
        if (k <= count < 2 * k) if accept == "double" else (k / 2 < count < 1.5 * k):
            return threshold
        if count < (k if accept == "double" else k / 2 + 0.25):
            high = p
        else:
            low = p
        if high - low <= precision:
            return threshold


@pytest.mark.parametrize("accept", ["double", "half"])
@pytest.mark.parametrize("precision", [0.1, 1e-4])
@pytest.mark.parametrize("power", [1, 3, 0.2])
def test_the_search_is_that_of_the_paper(accept: str, precision: float, power: float) -> None:
    for n in (50, 3000, 200_000):
        for ratio in (0.001, 0.02, 0.3):
            x = draw_gaussian((n,), n).abs() ** power * draw_gaussian((n,), 5).sign()
            q = RedSyncThreshold(ratio=ratio, accept=accept, precision=precision)
            k = int(n * ratio) + 1
            expected = (x.abs() >= searched(x, k, accept, precision)).nonzero().flatten()
            if not len(expected):
                expected = x.abs().argmax().view(1)
            assert torch.equal(kept(q, x), expected)


def test_a_fine_search_finds_a_number_that_is_accepted() -> None:
    x = draw_gaussian((100_000,), 3)
    for ratio in (0.0001, 0.001, 0.01, 0.1):
        k = int(100_000 * ratio) + 1
        assert k <= len(kept(RedSyncThreshold(ratio=ratio, precision=1e-6), x)) < 2 * k
        assert k / 2 < len(kept(RedSyncThreshold(ratio=ratio, precision=1e-6, accept="half"), x)) < 1.5 * k


def test_equal_elements_end_the_search() -> None:
    for x in (torch.full((5000,), 0.3), torch.ones(5000).cumsum(0).clamp(max=4000)):
        assert len(kept(RedSyncThreshold(precision=1e-6), x)) >= 1


def test_a_threshold_is_used_for_so_many_steps() -> None:
    q = RedSyncThreshold(ratio=0.01, reuse=3)
    x = draw_gaussian((20_000,), 4)
    first = len(kept(q, x, 10))
    assert torch.equal(kept(q, 0.9 * x, 11), (0.9 * x.abs() >= used(q)).nonzero().flatten())
    assert first < len(kept(q, 1.1 * x, 12)) <= 2 * 2 * 201  # two steps later
    assert q.unit_tensors[0]["both"].tolist()[0] == 10
    assert len(kept(q, 1.1 * x, 13)) == first  # the scale does not matter to a search
    assert q.unit_tensors[0]["both"].tolist()[::2] == [13, first]


def used(q: RedSyncThreshold, side: str = "both") -> float:
    return float(np.int32(q.unit_tensors[0][side][1]).view(np.float32))


def test_a_threshold_that_nothing_reaches_is_searched_for_again() -> None:
    q = RedSyncThreshold(ratio=0.01)
    x = draw_gaussian((20_000,), 4)
    first = kept(q, x, 0)
    assert torch.equal(kept(q, 1e-3 * x, 1), first)
    assert q.unit_tensors[0]["both"][0] == 1


@pytest.mark.parametrize(("accept", "most", "fewest"), [("double", 400, 200), ("half", 300, 101)])
def test_a_threshold_that_the_gradient_has_outgrown_is_searched_for_again(accept: str, most: int, fewest: int) -> None:
    """k = 200 of elements at 0, 1, 2, ...: moving them by one lets one more reach the threshold."""
    n = 19_999
    x = torch.arange(n).float()
    q = RedSyncThreshold(ratio=0.01, accept=accept, precision=1e-6, reuse=1000)
    first = len(kept(q, x))
    assert fewest <= first < most
    for more, again in ((2 * most - first, False), (2 * most - first + 1, True)):
        q.unit_tensors.clear()
        kept(q, x)
        found = kept(q, x + more, 1)
        assert q.unit_tensors[0]["both"][0] == again
        assert fewest <= len(found) < most if again else len(found) == 2 * most
    for fewer, again in ((first - (fewest + 1) // 2, False), (first - (fewest + 1) // 2 + 1, True)):
        q.unit_tensors.clear()
        kept(q, x)
        found = kept(q, (x - fewer).clamp(min=0), 1)
        assert q.unit_tensors[0]["both"][0] == again
        assert fewest <= len(found) < most if again else len(found) == (fewest + 1) // 2


def test_error_feedback_does_not_make_the_payload_dense() -> None:
    """A gradient that grows tenfold between two steps, and one that adds up what is not sent."""
    x = draw_gaussian((20_000,), 4)
    q = RedSyncThreshold(ratio=0.01, precision=1e-4)
    assert [len(kept(q, 10.0**step * x, step)) < 2 * 201 for step in range(4)] == [True] * 4
    q, left = RedSyncThreshold(ratio=0.01, precision=1e-4, reuse=1000), torch.zeros(20_000)
    for step in range(100):
        left += draw_gaussian((20_000,), step)
        found = sent(q, left, step)
        left -= found
        assert int(found.count_nonzero()) <= 4 * 201


def test_what_a_coarse_search_has_found_is_used_although_it_is_not_accepted() -> None:
    """One element far above the others: all thresholds that a search with so few steps tries are above these."""
    x = draw_gaussian((20_000,), 4)
    x[7] = 1e4
    q = RedSyncThreshold(ratio=0.01)
    for step in range(10):
        assert kept(q, x, step).tolist() == [7]
        assert q.unit_tensors[0]["both"].tolist()[::2] == [0, 1]


def test_every_unit_and_every_sign_has_its_own_threshold() -> None:
    q = RedSyncThreshold(ratio=0.01, values="mean", precision=1e-4)
    x = draw_gaussian((20_000,), 5)
    x = torch.where(x > 0, 3 * x, x)
    for step in range(2):
        q.compress(x, make_key(step))
    assert set(q.unit_tensors[0]) == {"above", "below"}
    assert used(q, "above") > 2 * used(q, "below")
    q.compress(10 * x, make_key(2, unit=7))
    assert set(q.unit_tensors) == {0, 7} and set(q.unit_tensors[7]) == {"below"}


def test_the_state_is_that_of_the_last_search() -> None:
    q, other = RedSyncThreshold(ratio=0.01), RedSyncThreshold(ratio=0.01)
    x = draw_gaussian((20_000,), 6)
    q.compress(x, make_key(0))
    state = q.state_dict()
    assert {unit: list(named) for unit, named in state.items()} == {"0": ["both"]}
    other.load_state_dict(state)
    louder = 1.1 * x
    assert torch.equal(kept(other, louder, 4), kept(q, louder, 4))
    assert not torch.equal(kept(RedSyncThreshold(ratio=0.01), louder, 4), kept(q, louder, 4))


@pytest.mark.parametrize("name", ["mean", "fp32"])
def test_nothing_but_zeros_on_a_side_is_an_empty_selection(name: str) -> None:
    for kind in (RedSyncThreshold, RedSyncTrimmed):
        q = kind(values=name)
        x = torch.zeros(3000)
        assert not sent(q, x).any()
        if name == "mean":
            assert not sent(kind(values=name), draw_gaussian((3000,)).abs(), step=0).any()
            assert sent(kind(values=name), draw_gaussian((3000,)).abs(), step=1).any()


@pytest.mark.parametrize("options", [{}, {"values": "mean"}], ids=str)
def test_kernels_agree_over_many_steps(options: dict[str, Any]) -> None:
    results = []
    for kernels in ("auto", "torch"):
        with backend.use(kernels):
            q = RedSyncThreshold(ratio=0.02, reuse=4, **options)
            payloads = [
                q.compress(draw_gaussian((9001,), step) * (1 + math.sin(step)), make_key(step)) for step in range(15)
            ]
            results.append((payloads, q.state_dict()))
    for compiled, plain in zip(*(payloads for payloads, _ in results), strict=True):
        assert torch.equal(compiled, plain)
    assert str(results[0][1]) == str(results[1][1])
