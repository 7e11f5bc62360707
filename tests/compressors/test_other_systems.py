"""Compare other systems' rules with ours, as docs/reference/compressors.md states them.

Theirs are written down from their public code, as formulas: GRACE (sands-lab/grace, grace_dl/torch), ATOMO
(hwang595/ATOMO, codings/svd.py), the code of PowerSGD's paper (epfml/powersgd, paper-code).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from compressors import build, memories
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.low_rank.linear_algebra.gram_svd import keep_probabilities
from compressors.low_rank.svd import SVD
from compressors.quantisation.signs import Sign, SignNorm, Signum
from compressors.sparsification.dgc import DGC

Floats = npt.NDArray[np.float64]


def signs(compressor: Sign | Signum | SignNorm, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    return compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))


def test_graces_signum_starts_from_the_first_gradient_and_ours_from_zero() -> None:
    """So a first gradient against all later ones rules for much longer there, with 1 / (1 - beta) times the weight."""
    beta, gradients = 0.9, [-1.0] + [0.5] * 29
    signum, theirs, ours = Signum(beta=beta), gradients[0], 0.0
    turned: dict[str, int] = {}
    for step, gradient in enumerate(gradients):
        theirs = theirs if step == 0 else (1 - beta) * gradient + beta * theirs
        ours = beta * ours + (1 - beta) * gradient
        assert theirs - ours == pytest.approx(beta ** (step + 1) * gradients[0])  # (1 - (1 - beta)) of the first
        sent = signs(signum, torch.full((4,), gradient), step)
        assert torch.equal(sent, torch.full((4,), math.copysign(1.0, ours)))
        for whose, momentum in (("theirs", theirs), ("ours", ours)):
            if momentum > 0:
                turned.setdefault(whose, step)
    assert turned["ours"] < 4 < 10 <= turned["theirs"]


def test_graces_zeros_and_ties_are_plus_and_ours_are_none() -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0]).repeat(2000)
    graces = torch.where(x >= 0, 1.0, -1.0)
    zeros = x == 0
    assert graces[zeros].mean() == 1
    for ours in (signs(Sign(), x), torch.sign(signs(SignNorm(), x))):
        assert torch.equal(ours[~zeros], graces[~zeros])
        assert set(ours[zeros].tolist()) == {1.0, -1.0}
        assert abs(float(ours[zeros].mean())) < 6 / math.sqrt(4000)
    one, other = signs(Sign(), x[~zeros]), signs(Sign(), -x[~zeros])
    mean = (one + other) / 2
    Sign().finish(mean, make_key(), 2)
    assert not mean.any()
    assert torch.where(one + other >= 0, 1.0, -1.0).mean() == 1  # as GRACE


def graces_selection(x: Floats, ratio: float, draw: np.random.Generator) -> int:
    """How many elements GRACE's dgc sends."""
    n, magnitudes = len(x), np.abs(x)
    sample = magnitudes[draw.integers(0, n, max(1, int(n * 0.01)))]
    threshold = np.sort(sample)[-max(1, int(n * ratio * 0.01))]
    for _ in range(10):
        selected = int((magnitudes >= threshold).sum())
        if selected > 1.3 * n * ratio:
            threshold *= 1.3
        elif selected < 0.7 * n * ratio:
            threshold *= 0.7
        else:
            break
    return int((magnitudes >= threshold).sum())


def test_graces_dgc_sends_all_that_reach_the_threshold_and_ours_at_most_k() -> None:
    n, ratio = 50_000, 0.1
    x, draw = draw_gaussian((n,), 3), np.random.default_rng(0)
    theirs = [graces_selection(x.double().numpy(), ratio, draw) for _ in range(30)]
    assert n * ratio < max(theirs) <= 1.3 * n * ratio
    dgc = DGC(ratio=ratio, strided_sample=False, lower_bound=0.7, resample=False)
    for step in range(10):
        sent = dgc.decompress(dgc.compress(x, make_key(step)), x, make_key(step))
        assert int((sent != 0).sum()) <= n * ratio


def test_graces_residual_leaves_the_first_gradient_as_it_is_and_ours_does_not() -> None:
    beta, gamma, gradient = 0.5, 0.25, torch.tensor([4.0, -8.0])
    ours = memories.build("residual", beta=beta, gamma=gamma).compensate(0, gradient)
    residuals: dict[str, torch.Tensor] = {}
    theirs = beta * residuals["a"] + gamma * gradient if "a" in residuals else gradient
    assert torch.equal(ours, gamma * gradient) and torch.equal(theirs, gradient)


def test_spartas_average_of_some_coordinates_is_gossip_of_all_with_randomk() -> None:
    """EXO Gym's SPARTA: the drawn coordinates become the workers' mean, all others stay."""
    randomk, workers = build("randomk", ratio=0.05), 3
    x = [draw_gaussian((400,), worker) for worker in range(workers)]
    for step in range(3):
        keys = [make_key(step, worker=worker) for worker in range(workers)]
        q = [randomk.decompress(randomk.compress(one, key), one, key) for one, key in zip(x, keys, strict=True)]
        mean, drawn = torch.stack(x).mean(0), q[0] != 0
        assert int(drawn.sum()) == 20
        for one, mine in zip(x, q, strict=True):
            mixed = one + sum((other - mine) / workers for other in q)  # dpsgd on the complete graph
            assert torch.allclose(mixed, torch.where(drawn, mean, one), atol=1e-6)
            assert torch.equal(mixed[~drawn], one[~drawn])


def expected(sigma: Floats, p: Floats, again: Callable[[int], bool]) -> Floats:
    """E of the kept sigma / p, exactly, where a draw of so many that it is to be done again is."""
    mean, total = np.zeros_like(sigma), 0.0
    for kept in itertools.product((False, True), repeat=len(sigma)):
        if again(sum(kept)):
            continue
        probability = float(np.prod(np.where(kept, p, 1 - p)))
        total += probability
        mean += probability * np.where(kept, sigma / p, 0)
    return mean / total


@pytest.mark.parametrize(
    ("sigma", "rank"), [([1.0, 1.0, 1.0, 1.0], 1), ([4.0, 3.0, 2.0, 1.0], 2), ([9.0, 1.0, 1.0], 2)]
)
def test_the_published_draws_of_atomo_are_biased_and_ours_is_not(sigma: list[float], rank: int) -> None:
    values = np.array(sigma)
    published = np.minimum(1.0, rank * values / values.sum())
    empty = float(np.prod(1 - published))
    drawn_again = expected(values, published, lambda kept: kept == 0)
    assert drawn_again == pytest.approx(values / (1 - empty))
    exactly = expected(values, published, lambda kept: kept != rank)  # PowerSGD's Atomo
    assert np.allclose(exactly, values, rtol=0.01) == (len(set(sigma)) == 1)  # equal ones are right by symmetry
    p = keep_probabilities(values, rank)
    assert expected(values, p, lambda kept: False) == pytest.approx(values)
    assert p.sum() == pytest.approx(rank)
    if published.max() == 1:  # what is cut off there goes to nobody
        assert published.sum() < rank - 0.2
    else:
        assert empty > 0.01
    draws = np.zeros((4000, len(sigma)))
    for step, row in enumerate(draws):
        kept, divisors = SVD(rank=rank).choose(values, make_key(step))
        row[kept] = values[kept] / divisors
    assert np.all(np.abs(draws.mean(0) - values) <= 6 * draws.std(0) / math.sqrt(len(draws)) + 1e-9)
