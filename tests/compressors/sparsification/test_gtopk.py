"""gTop-k with all workers in one process: every round is exchanged by the test."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import pytest
import torch

from compressors import CorruptPayload, build
from compressors.base import Cooperative, Reduction, Sum, Swap
from compressors.conformance.cases import draw_gaussian, make_key

WORKERS = range(1, 10)


def gtopk(**options: Any) -> Cooperative:
    compressor = build("gtopk", **options)
    assert isinstance(compressor, Cooperative)
    return compressor


def exchange(compressor: Cooperative, units: Sequence[Sequence[torch.Tensor]]) -> tuple[list[list[Reduction]], int]:
    """The reductions of all workers for `units[worker][unit]`, and the largest message."""
    workers = len(units)
    running: dict[int, Generator[Any, Any, list[Reduction]]] = {
        worker: compressor.rounds(
            [(x, make_key(7, worker=worker, unit=number)) for number, x in enumerate(units[worker])], worker, workers
        )
        for worker in range(workers)
    }
    answers: dict[int, Any] = dict.fromkeys(range(workers))
    results: dict[int, list[Reduction]] = {}
    largest = 0
    while running:
        requests: dict[int, Swap] = {}
        for worker, rounds in list(running.items()):
            try:
                requests[worker] = rounds.send(answers[worker])
            except StopIteration as done:
                results[worker] = done.value
                del running[worker]
        assert not requests or len(requests) == workers, "all workers go through the same rounds"
        for worker, request in requests.items():
            assert not isinstance(request, Sum)
            largest = max(largest, len(request.payload))
            answers[worker] = request.payload[:0]
            if request.partner is not None:
                assert requests[request.partner].partner == worker
                answers[worker] = requests[request.partner].payload.clone()
    return [results[worker] for worker in range(workers)], largest


def decoded(compressor: Cooperative, payload: torch.Tensor, shape: Sequence[int], weight: float = 1.0) -> torch.Tensor:
    out = torch.zeros(shape)
    compressor.decompress_add(payload, out, make_key(7), weight)
    return out


def cut(x: torch.Tensor, k: int) -> torch.Tensor:
    """Only the k largest elements, the first of equal ones."""
    order = x.abs().sort(descending=True, stable=True).indices[:k]
    return torch.zeros_like(x).index_copy_(0, order, x[order])


def tree(xs: Sequence[torch.Tensor], k: int) -> torch.Tensor:
    """The sum that is left at the root, on dense vectors: neighbours at distance 1, 2, 4, ..."""
    power = 1 << (len(xs).bit_length() - 1)
    nodes = [cut(x, k) for x in xs]
    for extra in range(power, len(xs)):
        nodes[extra - power] = cut(nodes[extra - power] + nodes[extra], k)
    nodes = nodes[:power]
    while len(nodes) > 1:
        nodes = [cut(left + right, k) for left, right in zip(nodes[::2], nodes[1::2], strict=True)]
    return nodes[0]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("indices", ["auto", "int32", "delta", "bitmap"])
def test_the_same_on_all_workers_and_as_the_tree_gives(workers: int, indices: str) -> None:
    n, k = 400, 20
    xs = [draw_gaussian((n,), seed) for seed in range(workers)]
    compressor = gtopk(ratio=k / n, indices=indices)
    results, largest = exchange(compressor, [[x] for x in xs])
    expected = tree(xs, k)
    for [one] in results:
        assert torch.equal(one.mean, results[0][0].mean)
        assert one.weight == 1 / workers
        assert torch.equal(decoded(compressor, one.mean, (n,)), expected)
    assert int((expected != 0).sum()) == k
    assert largest <= compressor.payload_bound((n,)) + math.ceil(k / 8)


@pytest.mark.parametrize("kept", [396, 399, 400])
def test_positions_travel_also_where_all_values_would_be_shorter(kept: int) -> None:
    xs = [draw_gaussian((400,), seed) for seed in range(3)]
    compressor = gtopk(ratio=kept / 400)
    results, _ = exchange(compressor, [[x] for x in xs])
    for [one] in results:
        assert torch.equal(decoded(compressor, one.mean, (400,)), tree(xs, kept))


@pytest.mark.parametrize("workers", WORKERS)
def test_what_the_workers_contributed_is_the_sum(workers: int) -> None:
    """So what is left in the memories is exactly what has not been sent."""
    n = 300
    for spread in (1.0, 0.05):  # nearly the same gradients: nearly the same positions
        common = draw_gaussian((n,), 99)
        xs = [spread * draw_gaussian((n,), seed) + (1 - spread) * common for seed in range(workers)]
        compressor = gtopk(ratio=0.05)
        results, _ = exchange(compressor, [[x] for x in xs])
        own = [decoded(compressor, one.own, (n,)) for [one] in results]
        total = decoded(compressor, results[0][0].mean, (n,))
        assert torch.allclose(sum(own[1:], own[0]), total, atol=1e-5)
        for x, mine in zip(xs, own, strict=True):
            assert torch.equal(mine[mine != 0], x[mine != 0])
            assert int((mine != 0).sum()) <= 15
            assert not mine[total == 0].any()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_what_half_floats_round_away_stays_in_a_memory(workers: int, scale: float) -> None:
    """All get the same sums, and the contributions add up to them as exactly as with float32."""
    n = 300
    spread = torch.logspace(-5, 0, n)  # the smallest are below half float's normal numbers
    common = draw_gaussian((n,), 99)
    xs = [(0.3 * draw_gaussian((n,), seed) + common) * spread * scale for seed in range(workers)]
    half = gtopk(ratio=0.9, values="fp16", indices="bitmap")
    results, largest = exchange(half, [[x] for x in xs])
    total = decoded(half, results[0][0].mean, (n,)).double()
    own = [decoded(half, one.own, (n,)).double() for [one] in results]
    assert all(torch.equal(one.mean, results[0][0].mean) for [one] in results)
    assert ((sum(own[1:], own[0]) - total).abs() <= 1e-6 * workers * total.abs() + 1e-37).all()
    assert not any(mine[total == 0].abs().max() > 1e-37 for mine in own if (total == 0).any())
    exact = tree(xs, 270).double()
    both = (total != 0) & (exact != 0)
    error = (total - exact).abs()[both].max() / exact.abs().max()
    assert 1e-6 < error < 2e-3  # rounded it is
    if workers > 1:
        assert largest <= 8 + 38 + 2 * 270 + 34 < exchange(gtopk(ratio=0.9, indices="bitmap"), [[x] for x in xs])[1]


def test_who_lost_early_keeps_its_element() -> None:
    """Worker 0's element loses in the first merge; its position comes back through workers 2 and 3."""
    xs = [torch.zeros(4) for _ in range(4)]
    xs[0][1], xs[1][0], xs[2][1], xs[3][1] = 1.0, 2.0, 5.0, 5.0
    compressor = gtopk(ratio=0.25)
    results, _ = exchange(compressor, [[x] for x in xs])
    own = [decoded(compressor, one.own, (4,)).tolist() for [one] in results]
    assert decoded(compressor, results[0][0].mean, (4,)).tolist() == [0, 10, 0, 0]
    assert own == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 5, 0, 0], [0, 5, 0, 0]]


def test_a_worker_that_others_stand_for_hears_what_became_of_its_elements() -> None:
    xs = [torch.zeros(8) for _ in range(3)]
    xs[0][0], xs[0][1] = 1.0, 2.0
    xs[1][6], xs[1][7] = 4.0, 0.5
    xs[2][1], xs[2][5] = 3.0, 0.25
    compressor = gtopk(ratio=0.25)
    results, _ = exchange(compressor, [[x] for x in xs])
    assert decoded(compressor, results[2][0].mean, (8,)).tolist() == [0, 5, 0, 0, 0, 0, 4, 0]
    assert decoded(compressor, results[2][0].own, (8,)).tolist() == [0, 3, 0, 0, 0, 0, 0, 0]
    assert decoded(compressor, results[0][0].own, (8,)).tolist() == [0, 2, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
@pytest.mark.parametrize("values", ["fp32", "fp16"])
def test_units_travel_together(workers: int, values: str) -> None:
    shapes = [(20, 30), (0,), (7,), (), (3, 5, 2)]
    units = [
        [draw_gaussian(shape, 10 * worker + number) for number, shape in enumerate(shapes)] for worker in range(workers)
    ]
    compressor = gtopk(ratio=0.1, values=values)
    together, _ = exchange(compressor, units)
    for number, shape in enumerate(shapes):
        alone, _ = exchange(compressor, [[unit[number]] for unit in units])
        for worker in range(workers):
            assert torch.equal(together[worker][number].mean, alone[worker][0].mean)
            assert torch.equal(together[worker][number].own, alone[worker][0].own)
            assert decoded(compressor, together[worker][number].mean, shape).shape == shape


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("values", ["fp32", "fp16"])
def test_nan_and_inf_reach_all_workers(workers: int, bad: float, values: str) -> None:
    xs = [draw_gaussian((50,), seed) for seed in range(workers)]
    xs[-1][20] = bad
    xs[0][30] = torch.tensor(-1, dtype=torch.int32).view(torch.float32)  # a NaN with other bits
    compressor = gtopk(ratio=0.1, values=values)
    results, _ = exchange(compressor, [[x] for x in xs])
    for [one] in results:
        assert torch.equal(one.mean, results[0][0].mean)
        out = decoded(compressor, one.mean, (50,))
        assert not out[20].isfinite() and out[30].isnan()


def test_alone_it_is_topk() -> None:
    x = draw_gaussian((500,))
    compressor = gtopk(ratio=0.02)
    expected = build("topk", ratio=0.02).compress(x, make_key())
    assert torch.equal(compressor.compress(x, make_key()), expected)
    assert torch.equal(compressor.reduce_alone([(x, make_key())])[0].own, expected)


def test_gradients_are_only_read() -> None:
    xs = [draw_gaussian((100,), seed) for seed in range(3)]
    before = [x.clone() for x in xs]
    exchange(gtopk(ratio=0.1), [[x] for x in xs])
    assert all(torch.equal(x, y) for x, y in zip(xs, before, strict=True))


@pytest.mark.parametrize("worker", [0, 2])
@pytest.mark.parametrize("values", ["fp32", "fp16"])
def test_messages_that_cannot_be_are_refused(worker: int, values: str) -> None:
    def answered(change: Any) -> None:
        compressor = gtopk(ratio=0.1, values=values)
        rounds = compressor.rounds([(draw_gaussian((100,)), make_key())], worker, 3 if worker else 2)
        request = next(rounds)
        if worker:  # the extra worker gets its answer in the last round
            request = rounds.send(request.payload[:0])
            request = rounds.send(request.payload[:0])
        good = compressor.compress(draw_gaussian((100,), 3), make_key())
        if worker:
            good = torch.cat([good, torch.full((2,), 255, dtype=torch.uint8)])
        rounds.send(change(good))

    with pytest.raises(StopIteration):
        answered(lambda message: message)
    for change in (
        lambda message: message[:0],
        lambda message: message[:-3],
        lambda message: torch.cat([message, message[:1]]),
    ):
        with pytest.raises(CorruptPayload):
            answered(change)
