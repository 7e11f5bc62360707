"""Dion: workers in lockstep against a plain float64 computation, its bytes, what becomes of bad steps, the payload."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from compressors import Key, build, memories
from compressors.base import Reduction, Sum
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.low_rank.dion import Dion
from compressors.low_rank.linear_algebra.factors import draw
from tests.conftest import read_presets
from trainers.gradients.flat import find_kinds
from trainers.models import build as build_model
from trainers.options.models import GPT

SHAPES = [(24, 40), (7,), (40, 24), (24, 40), (12, 5, 3, 3), (), (32, 32), (1, 5), (0, 3)]
MATRICES = [0, 2, 3, 4, 6, 7]


class Workers:
    """The workers of a run, each with a compressor and a memory, whose rounds are summed as by an allreduce."""

    def __init__(self, workers: int, **options: float) -> None:
        self.compressors = [Dion(**options) for _ in range(workers)]  # type: ignore[arg-type]
        self.memories = [memories.build("residual") for _ in range(workers)]
        self.sizes: list[int] = []

    def step(self, gradients: Sequence[Sequence[torch.Tensor]], step: int) -> list[list[torch.Tensor]]:
        """Return the means of all units on every worker, from the gradients of each; note the size of each sum."""
        running, batches = [], []
        for worker, compressor in enumerate(self.compressors):
            batch = []
            for unit, gradient in enumerate(gradients[worker]):
                key = Key(0, worker, step, unit)
                exact = compressor.is_exact(gradient.shape, key)
                batch.append((self.memories[worker].compensate(unit, gradient, exact), key))
            batches.append(batch)
            running.append(compressor.rounds(batch, worker, len(self.compressors)))
        self.sizes = []
        found = self.run_rounds(running)
        means = []
        for worker, compressor in enumerate(self.compressors):
            means.append([])
            for (x, key), reduction in zip(batches[worker], found[worker], strict=True):
                means[-1].append(torch.full(x.shape, math.nan))
                compressor.decompress_to(reduction.mean, means[-1][-1], key, reduction.weight)
                self.memories[worker].update(key, x, reduction.own, compressor)
        return means

    def run_rounds(self, running: list) -> list[list[Reduction]]:  # type: ignore[type-arg]
        answers: list[torch.Tensor | None] = [None] * len(running)
        while True:
            requests, results = [], []
            for rounds, answer in zip(running, answers, strict=True):
                try:
                    requests.append(rounds.send(answer))
                except StopIteration as stop:
                    results.append(stop.value)
            if results:
                assert not requests
                return results
            assert all(isinstance(request, Sum) for request in requests)
            total = torch.stack([request.tensor for request in requests]).sum(0)
            self.sizes.append(total.numel())
            answers = [request.tensor.copy_(total) for request in requests]


class Plain:
    """The rule of the authors' code in float64, for one matrix: P Q^T and the momenta of all workers."""

    def __init__(self, workers: int, q: torch.Tensor, mu: float) -> None:
        self.momenta, self.q, self.mu = [torch.zeros(())] * workers, q.double(), mu

    def step(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        self.momenta = [m + g.double() for m, g in zip(self.momenta, gradients, strict=True)]
        wide = gradients[0].shape[0] < gradients[0].shape[1]
        tall = [m.T if wide else m for m in self.momenta]
        p, _ = torch.linalg.qr(torch.stack([m @ self.q for m in tall]).mean(0))
        r = torch.stack([m.T @ p for m in tall]).mean(0)
        sent = (1 - self.mu) * p @ r.T
        self.momenta = [m - (sent.T if wide else sent) for m in self.momenta]
        self.q = r / (r.norm(dim=0, keepdim=True) + 1e-8)
        moved = p @ self.q.T
        return moved.T if wide else moved


def find_sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """The longer and the shorter side of a tensor as a matrix."""
    rows, columns = shape[0], math.prod(shape[1:])
    return max(rows, columns), min(rows, columns)


def make_gradients(workers: int, step: int) -> list[list[torch.Tensor]]:
    """A part that all workers share and that stays, and noise."""
    return [
        [
            draw_gaussian(shape, unit) * 0.5 + draw_gaussian(shape, 1000 * step + 100 * worker + unit)
            for unit, shape in enumerate(SHAPES)
        ]
        for worker in range(workers)
    ]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "options", [{}, {"rank": 3}, {"rank_fraction": 1.0, "mu": 0.5}, {"rank_fraction": 0.05}, {"rank_fraction": 0.5}]
)
def test_steps_are_those_of_a_plain_computation(workers: int, options: dict[str, float]) -> None:
    """And so are the momenta that the memories keep: of tall and wide matrices, summed whole or by their factors."""
    run, plain = Workers(workers, **options), {}
    for unit in MATRICES:
        _, short = find_sides(SHAPES[unit])
        rank = min(short, options.get("rank", math.ceil(options.get("rank_fraction", 0.25) * short)))
        first = draw(torch.empty(int(rank), short), Key(0, 0, 1, unit))
        plain[unit] = Plain(workers, first.T, options.get("mu", 0.95))
    for step in range(1, 8):
        gradients = make_gradients(workers, step)
        means = run.step(gradients, step)
        for unit, shape in enumerate(SHAPES):
            every = [units[unit] for units in gradients]
            assert all(torch.equal(means[0][unit], theirs[unit]) for theirs in means)
            if unit not in MATRICES:
                torch.testing.assert_close(means[0][unit], torch.stack(every).mean(0))
                assert run.compressors[0].is_exact(shape, make_key())
                continue
            expected = plain[unit].step([g.reshape(shape[0], -1) for g in every])
            assert torch.allclose(means[0][unit].double().view(expected.shape), expected, atol=2e-4), (step, unit)
            for memory, momentum in zip(run.memories, plain[unit].momenta, strict=True):
                kept = memory.unit_tensors[unit]["residual"].double()  # type: ignore[attr-defined]
                assert torch.allclose(kept.view(momentum.shape), momentum, atol=2e-4), (step, unit)


def test_what_is_small_enough_travels_as_factors() -> None:
    """(24, 40) of rank 6 has factors of 384 numbers instead of 960; of rank 15, as many numbers as the matrix."""
    for rank, whole in ((14, False), (15, True)):
        run = Workers(1, rank=rank)
        run.step([[draw_gaussian((24, 40))]], 1)
        assert run.sizes == ([960] if whole else [40 * rank, 24 * rank])
    run = Workers(1)
    run.step(make_gradients(1, 1), 1)
    long = 6 * (40 + 40 + 40) + 3 * 45 + 8 * 32
    short = 6 * (24 + 24 + 24) + 3 * 12 + 8 * 32
    assert run.sizes == [7 + 1 + 5 + long, short], "all units in two rounds; of one row there is nothing to save"
    run = Workers(1)
    run.step([[torch.zeros(3), torch.zeros(0, 3)]], 1)
    assert run.sizes == [3]


@pytest.mark.parametrize(("fraction", "megabytes"), [(1 / 4, 113.2), (1 / 16, 28.31), (1 / 32, 14.16), (1 / 64, 7.08)])
def test_bytes_of_gpt2(fraction: float, megabytes: float) -> None:
    """Of its 48 matrices, 339.7 MB; embeddings, which are the last layer too, and vectors are AdamW's."""
    _, options = read_presets("model")["gpt2"]
    with torch.device("meta"):
        model = build_model(GPT(**options), (1024,), 50_257)
    kinds, tensors = find_kinds(model), dict(model.named_parameters())
    shapes = [tuple(tensors[name].shape) for name, kind in kinds.items() if kind == "matrices"]
    assert len(shapes) == 48 and sum(4 * math.prod(shape) for shape in shapes) / 1e6 == pytest.approx(339.7, abs=0.05)
    sent = sum(Dion(rank_fraction=fraction).payload_bound(shape) for shape in shapes)
    assert sent / 1e6 == pytest.approx(megabytes, rel=5e-4)


@pytest.mark.parametrize(
    ("options", "shape", "rank"),
    [
        ({}, (24, 40), 6),
        ({"rank_fraction": 0.07}, (100, 100), 7),  # 0.07 x 100 is more than 7 in floats
        ({"rank_fraction": 0.071}, (100, 100), 8),
        ({"rank_fraction": 0.01}, (20, 30), 1),
        ({"rank_fraction": 1e-9}, (20, 30), 1),
        ({"rank": 50}, (24, 40), 24),
    ],
)
def test_ranks(options: dict[str, float], shape: tuple[int, int], rank: int) -> None:
    assert Dion(**options).payload_size(shape) == 4 * rank * sum(shape)  # type: ignore[arg-type]


def test_singular_values_of_a_step_are_at_most_about_one() -> None:
    """P is orthonormal and columns of Q have length 1; as Q settles, it is orthonormal, too: all of the rank are 1."""
    run = Workers(2, rank=5)
    u, _ = torch.linalg.qr(draw_gaussian((30, 30), 1))
    v, _ = torch.linalg.qr(draw_gaussian((50, 30), 2))
    m = (u * 0.7 ** torch.arange(30.0)) @ v.T
    for step in range(1, 40):
        means = run.step([[m], [m]], step)
    expected = torch.tensor([1.0] * 5 + [0.0])
    torch.testing.assert_close(torch.linalg.svdvals(means[0][0])[:6], expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("fraction", [0.25, 1.0])
def test_zeros_move_nothing_and_change_no_basis(fraction: float) -> None:
    run, x = Workers(2, rank_fraction=fraction), draw_gaussian((24, 40))
    run.step([[x], [x]], 1)
    before = run.compressors[0].unit_tensors[0]["q"].clone()
    for memory in run.memories:
        memory.unit_tensors[0]["residual"].zero_()  # type: ignore[attr-defined]
    means = run.step([[torch.zeros_like(x)], [torch.zeros_like(x)]], 2)
    assert not means[0][0].any() and torch.equal(run.compressors[1].unit_tensors[0]["q"], before)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_step_is_seen_and_leaves_a_basis(bad: float) -> None:
    """The memory, which is the momentum, has it for good; without it, the next step is a step again."""
    run, x = Workers(2), draw_gaussian((24, 40))
    run.step([[x], [x]], 1)
    wrong = x.clone()
    wrong[3, 4] = bad
    means = run.step([[wrong], [x]], 2)
    assert means[0][0].isnan().all()
    assert all(one.unit_tensors[0]["q"].isfinite().all() for one in run.compressors)
    run.memories = [memories.build("residual") for _ in range(2)]
    assert run.step([[x], [x]], 3)[0][0].isfinite().all()


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_the_payload_is_p_and_then_r(shape: tuple[int, int]) -> None:
    x, compressor = draw_gaussian(shape), Dion(rank=3, mu=0.8)
    values = compressor.compress(x, make_key()).view(torch.float32)
    p, r = values[:120].view(3, 40).T, values[120:].view(3, 24).T
    tall = x if shape[0] == 40 else x.T
    torch.testing.assert_close(p.T @ p, torch.eye(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(r, tall.T @ p)
    expected = p @ (r / (r.norm(dim=0) + 1e-8)).T
    found = compressor.decompress(values.view(torch.uint8), x, make_key())
    torch.testing.assert_close(found, expected if shape[0] == 40 else expected.T)
    rest = x.clone()
    compressor.remove_sent(values.view(torch.uint8), rest, make_key())
    sent = 0.2 * p @ r.T
    torch.testing.assert_close(x - rest, sent if shape[0] == 40 else sent.T)
    vector = draw_gaussian((9,))
    rest = vector.clone()
    compressor.remove_sent(compressor.compress(vector, make_key()), rest, make_key())
    assert not rest.any()


def test_a_state_goes_on_where_it_was() -> None:
    one, other = Workers(1), Workers(1)
    for step in range(1, 4):
        one.step(make_gradients(1, step), step)
    other.compressors[0].load_state_dict(one.compressors[0].state_dict())
    other.memories[0].load_state_dict(one.memories[0].state_dict())
    for step in range(4, 7):
        ours, theirs = (run.step(make_gradients(1, step), step)[0] for run in (one, other))
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_another_shape_starts_anew() -> None:
    compressor, x = Dion(), draw_gaussian((24, 50))
    compressor.compress(draw_gaussian((30, 40)), make_key(1))
    assert torch.equal(compressor.compress(x, make_key(2)), build("dion").compress(x, make_key(2)))
