"""The closed forms against schedules that are written out message by message, and against published figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from reports.scaling.measured.collectives import CollectiveCost
from tests.reports.scaling.closed_forms import FORMS, compute_cost, compute_time, count_steps

Round = list[tuple[int, int, float]]
"""What is sent at once: from whom, to whom, bytes."""

N = 2.0**20


def ring_allreduce(w: int) -> list[Round]:
    return [[(rank, (rank + 1) % w, N / w) for rank in range(w)] for _ in range(2 * (w - 1))]


def doubling_allreduce(w: int) -> list[Round]:
    power = 2 ** (w.bit_length() - 1)
    rounds = [[(rank, rank ^ 2**bit, N) for rank in range(power)] for bit in range(power.bit_length() - 1)]
    if power < w:
        folded = range(power, w)
        rounds = [[(r, r - power, N) for r in folded], *rounds, [(r - power, r, N) for r in folded]]
    return rounds


def rabenseifner(w: int) -> list[Round]:
    power = 2 ** (w.bit_length() - 1)
    bits = power.bit_length() - 1
    halving = [[(r, r ^ 2**bit, N / 2 ** (bit + 1)) for r in range(power)] for bit in range(bits)]
    rounds = [*halving, *reversed(halving)]
    if power < w:
        folded = range(power, w)
        rounds = [[(r, r - power, N) for r in folded], *rounds, [(r - power, r, N) for r in folded]]
    return rounds


def ring_allgather(w: int) -> list[Round]:
    return [[(rank, (rank + 1) % w, N) for rank in range(w)] for _ in range(w - 1)]


def bruck_allgather(w: int) -> list[Round]:
    rounds, have = [], 1
    while have < w:
        passed = min(have, w - have)
        rounds.append([(rank, (rank - have) % w, N * passed) for rank in range(w)])
        have += passed
    return rounds


def pairwise_alltoall(w: int) -> list[Round]:
    return [[(rank, (rank + step) % w, N / w) for rank in range(w)] for step in range(1, w)]


def bruck_alltoall(w: int) -> list[Round]:
    rounds, bit = [], 1
    while bit < w:
        blocks = sum(1 for distance in range(w) if distance & bit)
        rounds.append([(rank, (rank + bit) % w, N * blocks / w) for rank in range(w)])
        bit *= 2
    return rounds


def binomial_bcast(w: int) -> list[Round]:
    rounds, have = [], 1
    while have < w:
        rounds.append([(rank, rank + have, N) for rank in range(have) if rank + have < w])
        have *= 2
    return rounds


def incast(w: int) -> list[Round]:
    return [[(rank, 0, N) for rank in range(1, w)]]


SCHEDULES: dict[tuple[str, str], Callable[[int], list[Round]]] = {
    ("allreduce", "ring"): ring_allreduce,
    ("allreduce", "recursive_doubling"): doubling_allreduce,
    ("allreduce", "rabenseifner"): rabenseifner,
    ("allgather", "ring"): ring_allgather,
    ("allgather", "bruck"): bruck_allgather,
    ("alltoall", "pairwise"): pairwise_alltoall,
    ("alltoall", "bruck"): bruck_alltoall,
    ("bcast", "binomial"): binomial_bcast,
    ("gather", "linear"): incast,
}


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 7, 8, 13, 16])
@pytest.mark.parametrize(("collective", "algorithm"), SCHEDULES)
def test_form_is_what_the_schedule_sends(collective: str, algorithm: str, workers: int) -> None:
    rounds = SCHEDULES[collective, algorithm](workers)
    longest = 0.0
    for one in rounds:
        out, into = Counter[int](), Counter[int]()
        for source, target, size in one:
            out[source] += size  # type: ignore[assignment]
            into[target] += size  # type: ignore[assignment]
        longest += max(*out.values(), *into.values())
    found = compute_cost(collective, algorithm, N, workers)
    assert count_steps(found) == len(rounds)
    assert found.bytes == pytest.approx(longest)
    assert found.wire == pytest.approx(sum(size for one in rounds for _, _, size in one))


@pytest.mark.parametrize("workers", [4, 8, 64])
def test_forms_of_thakur_et_al_for_powers_of_two(workers: int) -> None:
    """Table of section 4: the terms in alpha, n beta and n gamma."""
    lg, share = workers.bit_length() - 1, (workers - 1) / workers
    terms = {
        ("allreduce", "rabenseifner"): (2 * lg, 2 * share, share),
        ("allreduce", "recursive_doubling"): (lg, lg, lg),
        ("reduce", "binomial"): (lg, lg, lg),
        ("alltoall", "bruck"): (lg, lg / 2, 0),
    }
    for (collective, algorithm), (alpha, beta, gamma) in terms.items():
        found = compute_cost(collective, algorithm, 1.0, workers)
        assert (count_steps(found), found.bytes, found.reduced) == pytest.approx((alpha, beta, gamma)), algorithm


@pytest.mark.parametrize(
    ("rate", "alpha", "measured"),
    [
        (1e8, 0.22e-3, {2: 3.743, 4: 5.659, 8: 6.576}),
        (1e9, 0.037e-3, {2: 0.378, 4: 0.579, 8: 0.703}),
        (1e9, 10.18e-3, {2: 0.438, 4: 0.757, 8: 1.116}),
    ],
)
def test_ring_takes_what_was_measured(rate: float, alpha: float, measured: dict[int, float]) -> None:
    """Allreduce of 44 MB on emulated links, s by hosts; each message waits for three one-way times (2 cores)."""
    beta = 8 / (rate * 1448 / 1514)
    for hosts, seconds in measured.items():
        assert compute_time("allreduce", "ring", 44e6, hosts, 3 * alpha, beta) == pytest.approx(seconds, rel=0.09)
        if rate == 1e9 and alpha > 1e-3:
            assert compute_time("allreduce", "ring", 44e6, hosts, alpha, beta) < 0.91 * seconds


@pytest.mark.parametrize("collective", FORMS)
def test_one_worker_sends_nothing_and_more_workers_never_less(collective: str) -> None:
    for algorithm in FORMS[collective]:
        assert compute_cost(collective, algorithm, N, 1) == CollectiveCost()
        wires = [compute_cost(collective, algorithm, N, workers).wire for workers in range(1, 40)]
        assert wires == sorted(wires), algorithm
