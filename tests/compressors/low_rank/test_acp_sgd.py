"""ACP-SGD: workers in lockstep against a plain float64 computation, its bytes, what becomes of bad steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from compressors import CorruptPayload, Key, build, memories
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.low_rank.acp_sgd import ACPSGD
from compressors.low_rank.linear_algebra.factors import draw

SHAPES = [(24, 40), (7,), (24, 40), (12, 5, 3, 3), (40, 24), (), (2, 2), (32, 32)]
LOW = [0, 2, 3, 4, 7]


class Workers:
    """The workers of a run, each with a compressor and a memory, whose payloads are summed as by an allreduce."""

    def __init__(self, workers: int, memory: str = "residual", **options: float) -> None:
        self.compressors = [ACPSGD(**options) for _ in range(workers)]  # type: ignore[arg-type]
        self.memories = [memories.build(memory) for _ in range(workers)]

    def step(self, gradients: Sequence[torch.Tensor], unit: int, step: int) -> torch.Tensor:
        """Return the mean of a unit's gradients, which has the same bits on all workers."""
        payloads = []
        for worker, gradient in enumerate(gradients):
            compressor, memory = self.compressors[worker], self.memories[worker]
            key = Key(0, worker, step, unit)
            exact = compressor.is_exact(gradient.shape, key)
            x = memory.compensate(unit, gradient, exact)
            payloads.append(compressor.compress(x, key).view(torch.float32).clone())
            memory.update(key, x, payloads[-1].view(torch.uint8), compressor)
        total = torch.stack(payloads).sum(0).view(torch.uint8)
        means = []
        for worker, compressor in enumerate(self.compressors):
            means.append(torch.full(gradients[0].shape, math.nan))
            compressor.decompress_to(total, means[-1], Key(0, worker, step, unit), 1.0 / len(gradients))
            compressor.finish(means[-1], Key(0, worker, step, unit), len(gradients))
            assert torch.equal(means[-1].nan_to_num(7.0), means[0].nan_to_num(7.0))
        return means[0]


class Plain:
    """The rule of the authors' code in float64, one matrix, with Householder's QR; all workers begin with one Q."""

    def __init__(self, workers: int, q: torch.Tensor) -> None:
        self.p, self.q, self.odd = torch.empty(0), q.double(), False
        self.errors = [torch.zeros(())] * workers

    def step(self, matrices: Sequence[torch.Tensor]) -> torch.Tensor:
        sums = [m.double() + e for m, e in zip(matrices, self.errors, strict=True)]
        if self.odd:
            self.p, _ = torch.linalg.qr(self.p)
            local = [m.T @ self.p for m in sums]
            self.errors = [m - self.p @ q.T for m, q in zip(sums, local, strict=True)]
            self.q = torch.stack(local).mean(0)
        else:
            self.q, _ = torch.linalg.qr(self.q)
            local = [m @ self.q for m in sums]
            self.errors = [m - p @ self.q.T for m, p in zip(sums, local, strict=True)]
            self.p = torch.stack(local).mean(0)
        self.odd = not self.odd
        return self.p @ self.q.T


def make_gradient(shape: tuple[int, ...], step: int, worker: int, unit: int) -> torch.Tensor:
    """A part that all workers share and that stays, and noise."""
    return draw_gaussian(shape, unit) * 0.5 + draw_gaussian(shape, 1000 * step + 100 * worker + unit)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_the_mean_is_that_of_a_plain_computation(workers: int, rank: int) -> None:
    """With error feedback by what each worker has added to the mean, for seven steps."""
    run, plain = Workers(workers, rank=rank), {}
    for unit in LOW:
        rows, columns = SHAPES[unit][0], math.prod(SHAPES[unit][1:])
        first = draw(torch.empty(min(rank, rows), columns), Key(0, 0, 1, unit))
        plain[unit] = Plain(workers, first.T)
    for step in range(1, 8):
        for unit, shape in enumerate(SHAPES):
            gradients = [make_gradient(shape, step, worker, unit) for worker in range(workers)]
            mean = run.step(gradients, unit, step)
            if unit in LOW:
                expected = plain[unit].step([g.reshape(shape[0], -1) for g in gradients])
                assert torch.allclose(mean.double().view(expected.shape), expected, atol=1e-4), (step, unit)
                for memory, error in zip(run.memories, plain[unit].errors, strict=True):
                    kept = memory.unit_tensors[unit]["residual"].double()  # type: ignore[attr-defined]
                    assert torch.allclose(kept.view(error.shape), error, atol=1e-4), (step, unit)
            else:
                assert torch.allclose(mean, torch.stack(gradients).mean(0), atol=1e-6)
                assert run.compressors[0].is_exact(shape, make_key(step))


def test_workers_keep_the_same_basis() -> None:
    run = Workers(3)
    for step in range(1, 6):
        for unit in LOW:
            run.step([make_gradient(SHAPES[unit], step, worker, unit) for worker in range(3)], unit, step)
            states = [one.unit_tensors[unit] for one in run.compressors]
            assert all(state.keys() == {"p" if step % 2 else "q"} for state in states)
            (first, *others) = (next(iter(state.values())) for state in states)
            assert all(torch.equal(first, other) for other in others)
            assert torch.allclose(first @ first.T, torch.eye(4), atol=1e-5)


@pytest.mark.parametrize("shape", [(24, 40), (64, 10, 3, 3), (50, 50)])
@pytest.mark.parametrize("rank", [1, 4])
def test_two_steps_take_the_bytes_of_one_of_powersgd(shape: tuple[int, ...], rank: int) -> None:
    run, whole = Workers(1, rank=rank), build("powersgd", rank=rank).payload_size(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    sizes = []
    for step in range(1, 5):
        x = draw_gaussian(shape, step)
        sizes.append(len(run.compressors[0].compress(x, make_key(step))))
        run.step([x], 0, step)
    assert sizes == [4 * rank * rows, 4 * rank * columns] * 2
    assert sizes[0] + sizes[1] == whole
    bound, size = ACPSGD(rank=rank).payload_bound(shape), ACPSGD(rank=rank).payload_size(shape)
    assert bound == max(sizes) and size == (bound if rows == columns else None)


def test_what_would_not_shrink_enough_in_two_steps_is_dense() -> None:
    """(20, 30) at rank 3: 60 and 90 instead of 600 numbers, eight times less in the mean."""
    x = draw_gaussian((20, 30))
    for rate, size in ((7.9, 60), (8.0, 600)):
        compressor = ACPSGD(rank=3, min_compression_rate=rate)
        assert len(compressor.compress(x, make_key())) == 4 * size
    assert torch.equal(compressor.decompress(compressor.compress(x, make_key()), x, make_key()), x)


def test_the_warm_start_finds_the_best_approximation() -> None:
    """Eckart and Young: of a gradient that stays, what the best rank 2 leaves is left after some steps."""
    u, _ = torch.linalg.qr(draw_gaussian((30, 10), 1))
    v, _ = torch.linalg.qr(draw_gaussian((50, 10), 2))
    sigma = 0.7 ** torch.arange(10.0)
    m, run = (u * sigma) @ v.T, Workers(1, "none", rank=2)
    errors = [float((run.step([m], 0, step) - m).norm()) for step in range(1, 31)]
    best = float(sigma[2:].norm())
    assert errors[0] > 1.5 * best and errors[-1] == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("at", [3, 4])
def test_a_bad_step_leaves_a_basis_to_go_on_with(bad: float, at: int) -> None:
    """Where P is sent and where Q is: the mean shows it, and after two more steps a matrix of the rank arrives."""
    run = Workers(2, "none", rank=2)
    m = draw_gaussian((24, 2), 1) @ draw_gaussian((2, 40), 2)
    for step in range(1, at + 3):
        wrong = torch.zeros(24, 40) if bad == 0.0 else m.clone()
        wrong[3, 4] = bad
        mean = run.step([wrong, m * bool(bad)] if step == at else [m, m], 0, step)
        if step == at:
            assert not mean.any() if bad == 0.0 else not mean[3, 4].isfinite()
    assert torch.allclose(mean, m, atol=1e-4)


def test_another_shape_starts_anew() -> None:
    run, x = Workers(1), draw_gaussian((24, 50))
    run.step([draw_gaussian((24, 40))], 0, 1)
    run.step([draw_gaussian((24, 40))], 0, 2)
    assert torch.equal(run.compressors[0].compress(x, make_key(3)), ACPSGD().compress(x, make_key(3)))


def test_a_payload_of_the_other_factor_is_refused() -> None:
    run, x = Workers(1), draw_gaussian((24, 40))
    payload = run.compressors[0].compress(x, make_key(1))
    assert run.compressors[0].decompress(payload, x, make_key(1)).any()
    run.step([x], 0, 1)
    with pytest.raises(CorruptPayload, match="the payload has 384 bytes, a tensor of this shape has 640"):
        run.compressors[0].decompress(payload, x, make_key(2))


def test_a_state_goes_on_where_it_was() -> None:
    one, other = Workers(1), Workers(1)
    for step in range(1, 4):
        one.step([draw_gaussian((24, 40), step)], 0, step)
    other.compressors[0].load_state_dict(one.compressors[0].state_dict())
    other.memories[0].load_state_dict(one.memories[0].state_dict())
    for step in range(4, 7):
        x = draw_gaussian((24, 40), step)
        assert torch.equal(one.step([x], 0, step), other.step([x], 0, step))
