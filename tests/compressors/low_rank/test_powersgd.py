"""PowerSGD: workers in lockstep against a plain float64 simulation, what becomes of bad steps, the payload."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload, InvalidParameter, Key, build
from compressors.base import Reduction, Sum
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.low_rank.linear_algebra import thin_products as kernels
from compressors.low_rank.powersgd import BatchedPowerSGD, PowerSGD
from compressors.random_key import splitmix64

SHAPES = [(24, 40), (7,), (24, 40), (12, 5, 3, 3), (40, 24), (), (3, 4)]
LOW = [0, 2, 3, 4]


def together(
    workers: Sequence[PowerSGD], gradients: Sequence[Sequence[torch.Tensor]], step: int
) -> tuple[list[list[Reduction]], list[int]]:
    """What the rounds give each worker for its gradients, and how many numbers each round has summed."""
    running = [
        one.rounds([(g, make_key(step, worker=w, unit=unit)) for unit, g in enumerate(units)], w, len(workers))
        for w, (one, units) in enumerate(zip(workers, gradients, strict=True))
    ]
    results: list[list[Reduction]] = []
    sizes: list[int] = []
    requests = [next(rounds) for rounds in running]
    while not results:
        tensors = [request.tensor for request in requests if isinstance(request, Sum)]
        assert len(tensors) == len(workers)
        sizes.append(tensors[0].numel())
        total = torch.stack(tensors).sum(0)
        requests = []
        for rounds, tensor in zip(running, tensors, strict=True):
            try:
                requests.append(rounds.send(tensor.copy_(total)))
            except StopIteration as stop:
                results.append(stop.value)
        assert not results or not requests
    return results, sizes


def decoded(
    compressor: PowerSGD, reductions: Sequence[Reduction], shapes: Sequence[tuple[int, ...]], step: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The means and what this worker has contributed, by unit."""
    means: list[torch.Tensor] = []
    owns: list[torch.Tensor] = []
    for unit, (reduction, shape) in enumerate(zip(reductions, shapes, strict=True)):
        means.append(torch.zeros(shape))
        compressor.decompress_add(reduction.mean, means[-1], make_key(step, unit=unit), reduction.weight)
        owns.append(compressor.decompress(reduction.own, torch.zeros(shape), make_key(step, unit=unit)))
    return means, owns


def local_gradients(workers: int, step: int, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[list[torch.Tensor]]:
    """A part that all workers share and that fades slowly from step to step, and noise."""
    return [
        [
            draw_gaussian(shape, unit) * 0.5 + draw_gaussian(shape, 1000 * step + 100 * worker + unit)
            for unit, shape in enumerate(shapes)
        ]
        for worker in range(workers)
    ]


class Plain:
    """Algorithm 1 in float64, a matrix at a time, with Householder's QR."""

    def __init__(self, rank: int, iterations: int = 1, warm_start: bool = True) -> None:
        self.rank, self.iterations, self.warm_start = rank, iterations, warm_start
        self.q: dict[int, torch.Tensor] = {}

    def step(self, matrices: Sequence[torch.Tensor], unit: int, step: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        wide = [m.double().reshape(m.shape[0], -1) for m in matrices]
        q = self.q.get(unit)
        if q is None or not self.warm_start:
            q = first_q(Key(0, -1, step, unit), self.rank, wide[0].shape[1])
        for _ in range(self.iterations):
            p, _ = torch.linalg.qr(sum(m @ q for m in wide))
            q = sum(m.T @ p for m in wide) / len(wide)
        self.q[unit] = q
        return p @ q.T, [p @ (p.T @ m) for m in wide]


def first_q(stream: Key, rank: int, columns: int) -> torch.Tensor:
    """Drawn as PowerSGD draws it."""
    return kernels.gaussian(splitmix64(stream.mix()), rank, columns, torch.device("cpu")).T.double()


# The mean


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 1},
        {"rank": 4, "iterations": 2},
        {"warm_start": False},
        {"orthogonalisation": "qr", "rank": 3},
        {"error": "local"},
    ],
    ids=str,
)
def test_the_mean_is_that_of_a_plain_computation(workers: int, options: dict[str, object]) -> None:
    ranks = [PowerSGD(**options) for _ in range(workers)]  # type: ignore[arg-type]
    plain = Plain(ranks[0].rank, ranks[0].iterations, ranks[0].warm_start)
    compressed = [unit for unit, shape in enumerate(SHAPES) if ranks[0].payload_bound(shape) < 4 * math.prod(shape)]
    assert 0 in compressed and 1 not in compressed
    for step in range(1, 5):
        gradients = local_gradients(workers, step)
        results, _ = together(ranks, gradients, step)
        for worker, one in enumerate(ranks):
            means, owns = decoded(one, results[worker], SHAPES, step)
            for unit in range(len(SHAPES)):
                if unit not in compressed:
                    every = torch.stack([units[unit] for units in gradients])
                    assert torch.allclose(means[unit], every.mean(0), atol=1e-6)
                    assert torch.equal(owns[unit], gradients[worker][unit])
        for unit in compressed:
            expected, contributed = plain.step([units[unit] for units in gradients], unit, step)
            for worker, one in enumerate(ranks):
                means, owns = decoded(one, results[worker], SHAPES, step)
                own = contributed[worker] if one.error == "local" else expected
                assert torch.allclose(means[unit].double().view(expected.shape), expected, atol=1e-5)
                assert torch.allclose(owns[unit].double().view(expected.shape), own, atol=1e-5)


@pytest.mark.parametrize("name", ["powersgd", "batched_powersgd"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 3, "iterations": 2},
        {"warm_start": False, "error": "local"},
        {"orthogonalisation": "qr", "rank": 4, "min_compression_rate": 1.0},
        {"epsilon": 0.1, "start_step": 2},
    ],
    ids=str,
)
def test_what_is_lost_is_never_more_than_there_was(name: str, options: dict[str, object]) -> None:
    """omega = 1 with any Q of the past: of other gradients, of fewer dimensions than the rank, of a step with NaN."""
    shape = (24, 40)
    left, right = torch.eye(24), torch.eye(40)
    steps = [
        torch.outer(left[0], right[0]),
        torch.outer(left[1], right[1]),  # orthogonal to the one before, and so to what is remembered
        torch.zeros(shape),
        draw_gaussian(shape),
        draw_gaussian(shape, 1) * torch.logspace(0, -20, 40),
        torch.full(shape, math.nan),
        torch.ones(shape),
        1e30 * torch.outer(left[2], right[2] - right[3]) + draw_gaussian(shape, 2),
    ]
    compressor = build(name, **options)
    for step, x in enumerate(steps):
        lost = compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step)).double() - x.double()
        omega = compressor.law(shape).omega
        assert omega == 1.0
        if not x.isnan().any():
            assert float(lost.norm()) <= (1 + 1e-6) * float(x.double().norm()), step


def test_the_mean_has_the_same_bits_on_all_workers() -> None:
    ranks = [PowerSGD() for _ in range(3)]
    for step in range(1, 4):
        results, _ = together(ranks, local_gradients(3, step), step)
        for unit in range(len(SHAPES)):
            assert torch.equal(results[0][unit].mean, results[1][unit].mean)
            assert torch.equal(results[0][unit].mean, results[2][unit].mean)
            assert results[0][unit].weight == results[1][unit].weight
    for unit in LOW:
        assert torch.equal(ranks[0].unit_tensors[unit]["q"], ranks[2].unit_tensors[unit]["q"])


@pytest.mark.parametrize(("iterations", "expected"), [(1, 2), (3, 6)])
def test_all_units_travel_in_one_sum_per_round(iterations: int, expected: int) -> None:
    compressor = PowerSGD(iterations=iterations)
    _, sizes = together([compressor], local_gradients(1, 1), 1)
    left, right = 2 * (24 + 24 + 12 + 40), 2 * (40 + 40 + 45 + 24)
    assert len(sizes) == expected
    assert sizes == [left + 7 + 1 + 12, right] + [left, right] * (iterations - 1)
    _, sizes = together([compressor], [[torch.zeros(5), torch.zeros(())]], 1)
    assert sizes == [6]
    rounds = compressor.rounds([(torch.zeros(0, 3), make_key())], 0, 1)
    with pytest.raises(StopIteration):
        next(rounds)


def test_a_worker_alone_compresses_what_the_rounds_give() -> None:
    one, other = PowerSGD(), PowerSGD()
    for step in range(3):
        g = draw_gaussian((24, 40), step)
        [[reduction]], _ = together([one], [[g]], step)
        assert torch.equal(reduction.mean, other.compress(g, make_key(step)))


def test_threads_are_given_back_before_a_round() -> None:
    torch.set_num_threads(2)
    rounds = PowerSGD().rounds([(draw_gaussian((24, 40)), make_key())], 0, 1)
    for _ in range(2):
        next(rounds)
        assert torch.get_num_threads() == 2 and torch.is_grad_enabled()


# What it is good for


def spectrum(rows: int, columns: int, sigma: torch.Tensor) -> torch.Tensor:
    u, _ = torch.linalg.qr(draw_gaussian((rows, len(sigma)), 1).double())
    v, _ = torch.linalg.qr(draw_gaussian((columns, len(sigma)), 2).double())
    return ((u * sigma.double()) @ v.T).float()


@pytest.mark.parametrize("rank", [1, 3])
def test_the_warm_start_finds_the_best_approximation(rank: int) -> None:
    """Eckart and Young: the error of the best is the norm of the other singular values."""
    sigma = 0.8 ** torch.arange(30.0)
    m = spectrum(30, 50, sigma)
    best = float(sigma[rank:].norm())
    warm, cold, many = PowerSGD(rank=rank), PowerSGD(rank=rank, warm_start=False), PowerSGD(rank=rank, iterations=40)
    errors: list[list[float]] = []
    for one in (warm, cold):
        errors.append([])
        for step in range(40):
            errors[-1].append(float((one.decompress(one.compress(m, make_key(step)), m, make_key(step)) - m).norm()))
            assert errors[-1][-1] >= best * (1 - 1e-5)
    assert errors[0][-1] < best * 1.001
    assert errors[0][0] == errors[1][0] and min(errors[1]) > best * 1.005
    assert float((many.decompress(many.compress(m, make_key()), m, make_key()) - m).norm()) < best * 1.001


@pytest.mark.parametrize("orthogonalisation", ["gram_schmidt", "qr"])
@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_matrices_of_the_rank_arrive_exactly(rank: int, scale: float, orthogonalisation: str) -> None:
    compressor = PowerSGD(rank=rank, orthogonalisation=orthogonalisation)
    for true_rank in range(1, rank + 1):
        m = spectrum(40, 60, 1.0 + torch.arange(true_rank)) * scale
        for step in range(3):
            sent = compressor.decompress(compressor.compress(m, make_key(step)), m, make_key(step))
            assert float(((sent - m) / scale).norm()) < 1e-5 * float((m / scale).norm())


def test_every_matrix_of_a_batch_is_normalised_by_itself() -> None:
    """Four gradients of rank 1 and one shape, of very different sizes, in one call: each arrives exactly."""
    shapes = [(32, 48)] * 4
    compressor = PowerSGD(rank=1)
    g = [torch.outer(draw_gaussian((32,), i), draw_gaussian((48,), 9 + i)) * 10.0 ** (3 * i - 6) for i in range(4)]
    [reductions], _ = together([compressor], [g], 1)
    means, _ = decoded(compressor, reductions, shapes, 1)
    for mean, m in zip(means, g, strict=True):
        assert float((mean - m).norm() / m.norm()) < 1e-6


def test_the_law_of_a_cold_start_is_tight() -> None:
    """Where all singular values are equal, a projection onto r of k directions keeps r / k of the energy."""
    compressor = PowerSGD(rank=4, warm_start=False)
    m = spectrum(40, 40, torch.ones(40))
    law = compressor.law((40, 40))
    assert law.delta == 0.1 and PowerSGD(rank=4).law((40, 40)).delta is None
    for step in range(20):
        sent = compressor.decompress(compressor.compress(m, make_key(step)), m, make_key(step))
        assert float((sent - m).square().sum()) / 40 == pytest.approx(1 - law.delta, rel=1e-5)


# Steps that leave nothing to start from


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_a_bad_step_has_no_effect_on_the_next(bad: float) -> None:
    """The first step after NaN, Inf or a gradient of zeros starts as a first step does: it finds a rank-2 matrix."""
    ranks = [PowerSGD() for _ in range(2)]
    m = spectrum(24, 40, torch.tensor([2.0, 1.0]))
    for step in (1, 2):
        together(ranks, [[m], [m]], step)
    wrong = torch.zeros(24, 40) if bad == 0.0 else m.clone()
    wrong[3, 4] = bad
    results, _ = together(ranks, [[wrong], [m * bool(bad)]], 3)
    [mean], _ = decoded(ranks[0], results[0], [(24, 40)], 3)
    assert not mean.any() if bad == 0.0 else mean.isnan().all()
    results, _ = together(ranks, [[m], [m]], 4)
    [mean], _ = decoded(ranks[0], results[0], [(24, 40)], 4)
    assert torch.allclose(mean, m, atol=1e-5)


def test_a_direction_that_is_lost_is_drawn_anew() -> None:
    """A matrix of rank 1 leaves a Q whose second column says nothing; the next matrix has rank 2."""
    compressor = PowerSGD(rank=2)
    one, two = spectrum(24, 40, torch.ones(1)), spectrum(24, 40, torch.tensor([1.0, 0.5]))
    one[:, 1:] = 0.0  # only the first column: then the rounding of M^T P has no other
    compressor.compress(one, make_key(1))
    assert compressor.unit_tensors[0]["q"].count_nonzero() <= 2
    compressor.decompress(compressor.compress(two, make_key(2)), two, make_key(2))
    sent = compressor.decompress(compressor.compress(two, make_key(3)), two, make_key(3))
    assert torch.allclose(sent, two, atol=1e-5)


def test_another_shape_starts_anew() -> None:
    compressor = PowerSGD()
    compressor.compress(draw_gaussian((24, 40)), make_key(1))
    other = draw_gaussian((24, 50))
    assert torch.equal(compressor.compress(other, make_key(2)), PowerSGD().compress(other, make_key(2)))


# Error feedback


@pytest.mark.parametrize("error", ["mean", "local"])
def test_nothing_is_lost_over_all_workers(error: str) -> None:
    """The sum of the means and the mean of what memories keep are the sum of the mean gradients."""
    ranks = [PowerSGD(error=error, rank=1) for _ in range(3)]
    kept = [[torch.zeros(shape) for shape in SHAPES] for _ in ranks]
    arrived = [torch.zeros(shape) for shape in SHAPES]
    total = [torch.zeros(shape) for shape in SHAPES]
    for step in range(1, 8):
        gradients = local_gradients(3, step)
        for unit in range(len(SHAPES)):
            for worker in range(3):
                total[unit] += gradients[worker][unit] / 3
                kept[worker][unit] += gradients[worker][unit]
        results, _ = together(ranks, kept, step)
        for unit in range(len(SHAPES)):
            for worker, one in enumerate(ranks):
                one.decompress_add(results[worker][unit].own, kept[worker][unit], make_key(step, unit=unit), -1.0)
            ranks[0].decompress_add(results[0][unit].mean, arrived[unit], make_key(step), results[0][unit].weight)
    for unit in range(len(SHAPES)):
        withheld = torch.stack([units[unit] for units in kept]).mean(0)
        assert torch.allclose(arrived[unit] + withheld, total[unit], atol=1e-4)
        assert (unit in LOW) == bool(withheld.any())


# Options and payloads


def test_the_payload_is_p_and_then_q() -> None:
    m = torch.outer(torch.tensor([3.0, 0.0, -4.0, 0.0]), torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0, 0.5]))
    compressor = PowerSGD(rank=1, min_compression_rate=1.0)
    payload = compressor.compress(m, make_key())
    p, q = payload.view(torch.float32)[:4], payload.view(torch.float32)[4:]
    sign = float(p[0].sign())
    assert torch.allclose(sign * p, torch.tensor([0.6, 0.0, -0.8, 0.0]))
    assert torch.allclose(sign * q, 5.0 * torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0, 0.5]))
    ranks = PowerSGD(rank=3, min_compression_rate=1.0)
    factors = ranks.compress(draw_gaussian((24, 40)), make_key()).view(torch.float32)
    left, right = factors[:72].view(3, 24), factors[72:].view(3, 40)
    assert torch.allclose(left @ left.T, torch.eye(3), atol=1e-6)
    assert torch.allclose(right, left @ draw_gaussian((24, 40)), atol=1e-5)


def test_what_would_not_shrink_enough_is_dense() -> None:
    """(20, 30) at rank 3: 150 instead of 600 numbers, four times less."""
    x = draw_gaussian((20, 30))
    for rate, size in ((3.9, 150), (4.0, 600), (8.0, 600)):
        compressor = PowerSGD(rank=3, min_compression_rate=rate)
        assert len(compressor.compress(x, make_key())) == compressor.payload_size((20, 30)) == 4 * size
    assert torch.equal(compressor.decompress(compressor.compress(x, make_key()), x, make_key()), x)
    assert compressor.law((20, 30)).delta == 1.0 and PowerSGD(rank=3).law((20, 30)).delta is None


def test_steps_before_the_start_are_dense() -> None:
    x = draw_gaussian((24, 40))
    compressor = PowerSGD(start_step=3)
    assert compressor.payload_size(x.shape) is None and compressor.payload_bound(x.shape) == 4 * x.numel()
    payloads = [compressor.compress(x, make_key(step)) for step in range(1, 5)]
    assert [len(payload) for payload in payloads] == [3840, 3840, 512, 512]
    assert torch.equal(compressor.decompress(payloads[1], x, make_key(2)), x)
    for payload, step in ((payloads[1], 3), (payloads[2], 2)):
        with pytest.raises(CorruptPayload):
            compressor.decompress(payload, x, make_key(step))
    assert not compressor.unit_tensors or list(compressor.unit_tensors) == [0]


def test_epsilon_is_added_to_the_norm() -> None:
    m = draw_gaussian((24, 40))
    q = first_q(Key(0, -1, 0, 0), 1, 40)
    norm = float((m.double() @ (q / q.norm())).norm())
    plain, damped = PowerSGD(rank=1), PowerSGD(rank=1, epsilon=2.0)
    factor = (norm / (norm + 2.0)) ** 2
    expected = plain.decompress(plain.compress(m, make_key()), m, make_key()) * factor
    assert torch.allclose(damped.decompress(damped.compress(m, make_key()), m, make_key()), expected, atol=1e-5)
    with pytest.raises(InvalidParameter, match="epsilon=2.0: valid is 0 with orthogonalisation=qr"):
        PowerSGD(epsilon=2.0, orthogonalisation="qr")


@pytest.mark.parametrize("count", [60, 61, 71, 72, 1000])
def test_a_batched_unit_is_a_padded_square(count: int) -> None:
    """72 elements are 8 rows of 9, and 61 7 rows of 8 and 5 elements: rows of nothing but padding don't travel."""
    x = draw_gaussian((count,))
    side = math.ceil(math.sqrt(count))
    batched, plain = BatchedPowerSGD(rank=1), PowerSGD(rank=1, min_compression_rate=1.0)
    payload = batched.compress(x, make_key())
    rows = math.ceil(count / side)
    assert len(payload) == 4 * (rows + side) == batched.payload_size((count,))
    square = torch.zeros(side * side)
    square[:count] = x
    square = square.view(side, side)
    expected = plain.decompress(plain.compress(square, make_key()), square, make_key()).view(-1)[:count]
    assert torch.allclose(batched.decompress(payload, x, make_key()), expected, atol=1e-5)
    assert not BatchedPowerSGD.needs_matrix and PowerSGD.needs_matrix


def test_the_first_q_is_the_same_on_all_workers_and_gaussian() -> None:
    """Moments of 200 000 numbers: each within 6 standard errors, once in 10^8 runs beyond."""
    z = kernels.gaussian(make_key(3).mix(), 100, 2000, torch.device("cpu")).double()
    for power, (mean, deviation) in enumerate([(0.0, 1.0), (1.0, 2**0.5), (0.0, 15**0.5), (3.0, 96**0.5)], start=1):
        assert abs(float(z.pow(power).mean()) - mean) < 6 * deviation / z.numel() ** 0.5
    assert float((z @ z.T / 2000 - torch.eye(100)).abs().max()) < 0.2
    one, other = PowerSGD(), PowerSGD()
    x = draw_gaussian((24, 40))
    assert torch.equal(one.compress(x, make_key(worker=0)), other.compress(x, make_key(worker=5)))


# The arithmetic


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(6, 60), st.integers(0, 1000), st.sampled_from([1e-36, 1.0, 1e36]), st.data())
def test_bases_are_orthonormal_and_span_the_same(
    rank: int, size: int, seed: int, scale: float, data: st.DataObject
) -> None:
    """Also of rows that are almost or altogether dependent, of zeros, and far from one in size."""
    rows = draw_gaussian((2, rank, size), seed) * scale
    for row in range(1, rank):
        kind = data.draw(st.sampled_from(["free", "near", "same", "zero"]))
        if kind == "near":
            rows[:, row] = rows[:, row - 1] + 1e-5 * rows[:, row]
        elif kind == "same":
            rows[:, row] = rows[:, 0] * 0.3
        elif kind == "zero":
            rows[:, row] = 0.0
    wide = rows.double() / scale
    for library in (kernels.Library, kernels.products(rows.device)):
        basis = rows.clone()
        lengths = library.orthonormal(basis)
        gram = basis.double() @ basis.double().mT
        assert torch.allclose(gram, torch.diag_embed((lengths > 0).double()), atol=3e-6)
        rest = wide - wide @ basis.double().mT @ basis.double()
        assert float(rest.norm()) < 1e-5 * float(wide.norm())
        assert torch.allclose(lengths[:, 0] / scale, wide[:, 0].norm(dim=1), rtol=1e-6)


@pytest.mark.parametrize("size", [5, 8, 255, 700])
@pytest.mark.parametrize("scale", [1e-41, 1.0, 1e37])
def test_bases_have_the_same_bits_in_kernels_and_plain_torch(size: int, scale: float) -> None:
    rows = draw_gaussian((3, 4, size)) * scale
    rows[1, 2], rows[2, 3], rows[2, 1] = rows[1, 0], 0.0, math.nan
    found = []
    for choice in ("auto", "torch"):
        with backend.use(choice):
            basis = rows.clone()
            live = kernels.orthonormal(basis, 1e-3)
            found.append((basis.nan_to_num(7.0), live))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert not found[0][1][2, 1:].any() and found[0][1][0].all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(0, 60), st.integers(0, 1000), st.sampled_from([1e-36, 1.0, 1e36]), st.data())
def test_reflections_give_whole_bases_that_span_the_same(
    rank: int, more: int, seed: int, scale: float, data: st.DataObject
) -> None:
    """Orthonormal whatever the rows are, dependent ones and zeros included; square matrices, too."""
    rows = draw_gaussian((2, rank, rank + more), seed) * scale
    for row in range(rank):
        kind = data.draw(st.sampled_from(["free", "near", "same", "zero"]))
        if kind == "zero" or (kind != "free" and not row):
            rows[:, row] = 0.0
        elif kind != "free":
            rows[:, row] = rows[:, row - 1] * 0.3 + (1e-5 * rows[:, row] if kind == "near" else 0.0)
    wide = rows.double() / scale
    for library in (kernels.Library, kernels.products(rows.device)):
        basis = rows.clone()
        library.householder(basis)
        gram = basis.double() @ basis.double().mT
        assert torch.allclose(gram, torch.eye(rank, dtype=torch.float64).expand(2, -1, -1), atol=3e-6)
        rest = wide - wide @ basis.double().mT @ basis.double()
        assert float(rest.norm()) <= 1e-5 * float(wide.norm()) + 1e-43 / scale  # denormals have few bits


@pytest.mark.parametrize("size", [4, 8, 255, 1700])
@pytest.mark.parametrize("scale", [1e-41, 1.0, 1e37])
def test_reflections_have_the_same_bits_in_kernels_and_plain_torch(
    size: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no linear algebra library has a part in them: each worker does them for itself, on whatever host."""
    monkeypatch.delattr(torch.linalg, "qr")
    rows = draw_gaussian((4, 4, size)) * scale
    rows[1, 2], rows[2, 3], rows[2, 1], rows[3, 0] = rows[1, 0], 0.0, math.nan, 0.0
    found = []
    for choice in ("auto", "torch"):
        with backend.use(choice):
            basis = rows.clone()
            kernels.orthonormal_by_qr(basis)
            found.append(basis.nan_to_num(7.0))
    assert torch.equal(found[0], found[1])
    assert torch.allclose(found[0][0] @ found[0][0].T, torch.eye(4), atol=1e-6)
    assert bool((found[0][2, 1] == 7.0).all()) and not found[0][3].isnan().any()


@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize(("count", "columns"), [(600, 30), (601, 30), (29, 30), (5000, 1100), (7 * 2300 + 1200, 2300)])
def test_kernels_and_libraries_multiply_alike(rank: int, count: int, columns: int) -> None:
    x = draw_gaussian((count,))
    rows = -(-count // columns)  # the last one incomplete, or even the only one
    matrix = torch.nn.functional.pad(x, (0, rows * columns - count)).view(rows, columns).double()
    left, right = draw_gaussian((rank, rows), 1), draw_gaussian((rank, columns), 2)
    for products in (kernels.Library, kernels.products(x.device)):
        out = torch.empty(rank, rows)
        products.multiply_left(x, right, out)
        assert torch.allclose(out.double(), right.double() @ matrix.T, atol=1e-4)
        out = torch.empty(rank, columns)
        products.multiply_right(x, left, out)
        assert torch.allclose(out.double(), left.double() @ matrix, atol=1e-4)
        total = x.clone()
        products.add_product(left, right, -0.5, total)
        expected = matrix - 0.5 * left.double().T @ right.double()
        assert torch.allclose(total.double(), expected.view(-1)[:count], atol=1e-5)


def test_options_are_found_by_name() -> None:
    assert build("powersgd", rank=4) == PowerSGD(rank=4) != BatchedPowerSGD(rank=4)
