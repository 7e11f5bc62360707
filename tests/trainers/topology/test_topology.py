"""Graphs of workers, their mixing matrices, and what these promise."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers.config import run_config
from trainers.options.topologies import (
    TOPOLOGIES,
    Chain,
    Complete,
    Edges,
    Expander,
    Exponential,
    Hypercube,
    Margulis,
    OnePeerExponential,
    RandomPairs,
    RandomRegular,
    Ring,
    Social,
    Star,
    Torus,
)
from trainers.rules.resolve import resolve
from trainers.topology import build, check, collect_facts
from trainers.topology.mixing import Mixing

DRAWN = [cls for cls in TOPOLOGIES.values() if cls.__name__ not in ("NoTopology", "Edges")]
WEIGHTS = ("uniform", "metropolis_hastings", "local_degree")


def possible(options: Any, workers: int) -> bool:
    try:
        check(options, workers)
    except UsageError:
        return False
    return True


def distance(x: np.ndarray) -> float:
    return float(np.linalg.norm(x - x.mean()))


@pytest.mark.parametrize(
    ("options", "workers", "gap"),
    [
        (Ring(), 4, 0.6667),
        (Ring(), 8, 0.1953),
        (Ring(), 9, 0.1560),
        (Ring(), 16, 0.0507),
        (Ring(), 32, 0.0128),
        (Ring(), 64, 0.0032),
        (Torus(), 9, 0.6000),
        (Torus(), 16, 0.4000),
        (Torus(), 25, 0.2764),
        (Torus(), 36, 0.2000),
        (Torus(), 64, 0.1172),
        (Social(), 32, 0.0903),
        (Margulis(), 16, 0.4607),
        (Margulis(), 36, 0.3487),
        (Expander(), 7, 0.2950),
        (Expander(), 13, 0.1723),
        (Expander(), 17, 0.1447),
        (Expander(), 23, 0.1217),
    ],
)
def test_gaps_as_published_with_chocosgd(options: Any, workers: int, gap: float) -> None:
    assert build(options, workers).gap == pytest.approx(gap, abs=5e-5)


@pytest.mark.parametrize("workers", [3, 4, 5, 6, 8, 16, 31])
def test_gaps_in_closed_form(workers: int) -> None:
    """Eigenvalues of W = I - L / (d + 1), where the Laplacian's are known."""

    def of(eigenvalues: list[float]) -> float:
        return 1 - max(abs(value) for value in eigenvalues)

    cosines = [math.cos(2 * math.pi * k / workers) for k in range(1, workers)]
    assert build(Ring(), workers).gap == pytest.approx(of([1 / 3 + 2 / 3 * cosine for cosine in cosines]))
    along = [math.cos(math.pi * k / workers) for k in range(1, workers)]
    assert build(Chain(), workers).gap == pytest.approx(of([1 / 3 + 2 / 3 * cosine for cosine in along]))
    assert build(Star(), workers).gap == pytest.approx(1 / workers)
    assert build(Complete(), workers).gap == 1.0
    hops = [2**k for k in range(math.ceil(math.log2(workers)))]
    roots = [np.exp(2j * np.pi * k / workers) for k in range(1, workers)]
    sums = [(1 + sum(root**hop for hop in hops)) / (1 + len(hops)) for root in roots]
    assert build(Exponential(), workers).gap == pytest.approx(of(sums))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6])
def test_the_gap_of_a_hypercube(bits: int) -> None:
    assert build(Hypercube(), 2**bits).gap == pytest.approx(2 / (bits + 1))


@pytest.mark.parametrize("workers", range(2, 40))
def test_the_gap_of_the_exponential_graph(workers: int) -> None:
    """Ying et al. (2021), proposition 1: 2 / (1 + ceil(log2 n)) of an even number, above it of an odd one."""
    bound = 2 / (1 + math.ceil(math.log2(workers)))
    gap = build(Exponential(), workers).gap
    assert gap == pytest.approx(bound) if workers % 2 == 0 else gap > bound + 1e-6


@pytest.mark.parametrize(("rows", "workers"), [(3, 12), (4, 12), (3, 15), (5, 25), (4, 32), (8, 32)])
def test_the_gap_of_a_torus_is_that_of_its_rows_and_columns(rows: int, workers: int) -> None:
    def cosines(side: int) -> list[float]:
        return [math.cos(2 * math.pi * k / side) for k in range(side)]

    every = [(1 + 2 * a + 2 * b) / 5 for a in cosines(rows) for b in cosines(workers // rows)]
    assert build(Torus(rows=rows), workers).gap == pytest.approx(1 - sorted(map(abs, every))[-2])


@pytest.mark.parametrize(
    ("rows", "workers", "degree"),
    [(1, 7, 2), (7, 7, 2), (1, 2, 1), (2, 4, 2), (2, 2, 1), (2, 10, 3), (5, 10, 3), (3, 6, 3), (None, 6, 3), (3, 9, 4)],
)
def test_a_torus_whose_sides_are_one_or_two_has_each_link_once(rows: int | None, workers: int, degree: int) -> None:
    mixing = build(Torus(rows=rows), workers)
    assert mixing.degree == degree
    assert set(np.unique(mixing.get_matrix(1)).round(12)) <= {0.0, round(1 / (degree + 1), 12)}
    assert mixing.get_matrix(1).sum(axis=1) == pytest.approx(1)
    if degree == 2:
        assert mixing.gap == pytest.approx(build(Ring(), workers).gap)


@given(
    st.sampled_from(DRAWN),
    st.integers(1, 36),
    st.sampled_from(WEIGHTS),
    st.booleans(),
)
def test_every_matrix_conserves_the_mean_and_mixes(cls: type, workers: int, weights: str, lazy: bool) -> None:
    options = cls(weights=weights, lazy=lazy)
    assume(possible(options, workers))
    mixing = build(options, workers)
    assert mixing.doubly_stochastic and mixing.gap > 0
    assert mixing.symmetric or cls in (Exponential, OnePeerExponential)
    x = np.random.default_rng(workers).standard_normal(workers)
    assert mixing.get_matrix(1).sum(axis=0) == pytest.approx(1, abs=1e-12)
    for step in range(1, mixing.period + 1):
        mixed = mixing.get_matrix(step) @ x
        assert mixed.mean() == pytest.approx(x.mean(), abs=1e-12)
        assert distance(mixed) <= distance(x) * (1 + 1e-12) + 1e-14
        x = mixed


@given(
    st.sampled_from([cls for cls in DRAWN if cls not in (OnePeerExponential, RandomPairs)]),
    st.integers(2, 36),
    st.booleans(),
)
def test_a_step_brings_workers_closer_by_the_gap_at_least(cls: type, workers: int, lazy: bool) -> None:
    options = cls(lazy=lazy)
    assume(possible(options, workers))
    mixing = build(options, workers)
    x = np.random.default_rng(workers).standard_normal(workers)
    assert distance(mixing.get_matrix(1) @ x) <= (1 - mixing.gap) * distance(x) + 1e-12


@pytest.mark.parametrize(
    "options", [Ring(), Star(), Torus(rows=2), Social(), Exponential(), RandomRegular(), Ring(lazy=True)]
)
def test_the_gap_is_the_rate_in_the_end(options: Any) -> None:
    mixing = build(options, 32)
    x = np.random.default_rng(0).standard_normal(32)
    for _ in range(2000):
        x = mixing.get_matrix(1) @ x
        x = (x - x.mean()) / distance(x)
    for _ in range(50):  # directed, two eigenvalues of that magnitude take turns
        x = mixing.get_matrix(1) @ x
    assert distance(x) ** (1 / 50) == pytest.approx(1 - mixing.gap, rel=1e-3)


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 32])
def test_one_peer_after_another_is_the_mean_of_a_power_of_two(workers: int) -> None:
    mixing = build(OnePeerExponential(), workers)
    assert mixing.period == math.log2(workers) == mixing.count_steps_to(1e-9)
    assert (mixing.gap, mixing.degree, mixing.messages) == (1.0, 1, 1.0)
    x = np.arange(float(workers))
    for step in range(1, mixing.period + 1):
        x = mixing.get_matrix(step) @ x
    assert x == pytest.approx(np.full(workers, (workers - 1) / 2))


def test_the_gap_where_matrices_take_turns_is_that_of_a_period() -> None:
    mixing = build(OnePeerExponential(), 6)
    x = np.random.default_rng(0).standard_normal(6)
    distances = []
    for step in range(1, 46):
        x = mixing.get_matrix(step) @ x
        distances.append(distance(x))
    assert 0 < mixing.gap < 1
    assert (distances[-1] / distances[14]) ** (1 / 30) == pytest.approx(1 - mixing.gap, rel=0.01)


def test_who_receives_from_whom() -> None:
    mixing = build(Exponential(), 5)  # 1, 2 and 4 ahead
    assert mixing.find_sources(0, 1) == {1: 0.25, 3: 0.25, 4: 0.25}
    assert mixing.find_targets(0, 1) == [1, 2, 4]
    assert mixing.get_own_weight(0, 1) == 0.25
    peers = build(OnePeerExponential(), 5)
    assert [peers.find_targets(0, step) for step in (1, 2, 3, 4)] == [[1], [2], [4], [1]]
    assert peers.find_sources(0, 2) == {3: 0.5}
    grid = build(Torus(rows=3), 12)
    assert list(grid.find_sources(5, 1)) == [1, 4, 6, 9]
    assert list(grid.find_sources(0, 1)) == [1, 3, 4, 8]
    assert list(build(Hypercube(), 8).find_sources(5, 1)) == [1, 4, 7]
    assert list(build(Star(), 4).find_sources(0, 1)) == [1, 2, 3]
    assert list(build(Chain(), 4).find_sources(3, 1)) == [2]
    assert list(build(Expander(), 7).find_sources(3, 1)) == [2, 4, 5]  # 3 * 5 = 15 = 1


def test_weights_heed_the_degrees_of_both() -> None:
    def row(weights: str, lazy: bool = False) -> list[float]:
        return build(Star(weights=weights, lazy=lazy), 5).get_matrix(1)[1].tolist()

    assert row("uniform") == pytest.approx([0.2, 0.8, 0, 0, 0])
    assert row("metropolis_hastings") == pytest.approx([0.2, 0.8, 0, 0, 0])
    assert row("local_degree") == pytest.approx([0.25, 0.75, 0, 0, 0])
    assert row("uniform", lazy=True) == pytest.approx([0.1, 0.9, 0, 0, 0])
    ends = {weights: build(Chain(weights=weights), 4).get_matrix(1)[0, 0] for weights in WEIGHTS}
    assert ends == pytest.approx({"uniform": 2 / 3, "metropolis_hastings": 2 / 3, "local_degree": 1 / 2})
    wheel = Edges(links="0 1;0 2;0 3;1 2", weights="metropolis_hastings")
    assert build(wheel, 4).get_matrix(1)[1].tolist() == pytest.approx([1 / 4, 5 / 12, 1 / 3, 0])


def test_lazy_leaves_no_negative_eigenvalue() -> None:
    assert np.linalg.eigvalsh(build(Ring(), 8).get_matrix(1)).min() == pytest.approx(-1 / 3)
    assert np.linalg.eigvalsh(build(Ring(lazy=True), 8).get_matrix(1)).min() == pytest.approx(1 / 3)


def test_a_random_graph_is_the_same_wherever_it_is_drawn_and_another_one_for_another_number() -> None:
    def links(draw: int) -> list[tuple[int, int]]:
        found = np.argwhere(np.triu(build(RandomRegular(draw=draw), 6).get_matrix(1), 1))
        return [(int(first), int(second)) for first, second in found]

    assert links(0) == [(0, 1), (0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 4), (3, 5), (4, 5)]
    assert links(1) != links(0)
    for degree in (2, 3, 7, 10, 15):
        mixing = build(RandomRegular(degree=degree), 16)
        assert {len(mixing.find_sources(worker, 1)) for worker in range(16)} == {degree}


@pytest.mark.parametrize("options", [Ring(), Torus(), RandomRegular(), Complete()])
def test_the_gap_of_many_matrices_is_that_of_one_of_them_if_they_are_equal(options: Any) -> None:
    mixing = build(options, 16)
    assert Mixing(mixing.matrices * 30).gap == pytest.approx(mixing.gap, rel=1e-3)


def test_random_pairs_are_new_in_every_round_and_depend_on_the_draw() -> None:
    mixing = build(RandomPairs(), 8)
    assert mixing.period == 100 and mixing.symmetric and mixing.degree == 1 and mixing.messages == 1
    pairs = [mixing.get_matrix(step) for step in range(1, 101)]
    assert all({tuple(sorted(row[row > 0])) for row in one} == {(0.5, 0.5)} for one in pairs)
    assert len({one.tobytes() for one in pairs}) > 50  # of 105 possible ones
    assert not np.array_equal(build(RandomPairs(draw=1), 8).get_matrix(1), mixing.get_matrix(1))
    with pytest.raises(UsageError, match="topology=random_pairs with workers=7: valid is an even number: 6 or 8"):
        build(RandomPairs(), 7)
    with pytest.raises(UsageError, match=r"topology.rounds=1: valid is an integer from 2"):
        build(RandomPairs(rounds=1), 8)
    for draw in range(20):
        assert 0 < build(RandomPairs(rounds=2, draw=draw), 8).gap < 1


def test_one_worker_keeps_what_it_has() -> None:
    alone = [cls for cls in DRAWN if possible(cls(), 1)]
    assert {Ring, Complete, Star, Chain, Torus, Hypercube, Exponential, OnePeerExponential, Margulis} == set(alone)
    for cls in alone:
        mixing = build(cls(), 1)
        assert mixing.get_matrix(1).tolist() == [[1.0]]
        assert collect_facts(mixing) | {"spectral_gap": 1.0, "degree": 0, "messages_per_step": 0.0} == collect_facts(
            mixing
        )


def test_facts_are_what_a_result_says() -> None:
    assert collect_facts(build(Star(), 4)) == {
        "symmetric": True,
        "doubly_stochastic": True,
        "spectral_gap": pytest.approx(0.25),
        "degree": 3,
        "messages_per_step": 1.5,
    }


def test_steps_to_a_share() -> None:
    mixing = build(Ring(), 16)
    steps = mixing.count_steps_to(1e-3)
    assert steps is not None
    assert (1 - mixing.gap) ** steps <= 1e-3 < (1 - mixing.gap) ** (steps - 1)
    assert Mixing((np.eye(2),)).count_steps_to(1e-3) is None
    assert build(Complete(), 4).count_steps_to(1e-3) == 1


def test_a_matrix_is_nobodys_to_change() -> None:
    with pytest.raises(ValueError, match="read-only"):
        build(Ring(), 4).get_matrix(1)[0, 0] = 1


@pytest.mark.parametrize(
    ("options", "workers", "message"),
    [
        (
            Torus(),
            7,
            "topology=torus with workers=7: a prime makes no grid; valid is workers=6 or 8, topology.rows=1 or ",
        ),
        (Torus(), 2, "valid is workers=4, topology.rows=1 or topology=ring"),
        (Torus(rows=5), 12, "topology.rows=5: valid is a divisor of workers=12: 1, 2, 3, 4, 6, 12"),
        (Hypercube(), 6, "topology=hypercube with workers=6: valid is a power of two: 4 or 8"),
        (Hypercube(), 4095, "valid is a power of two: 2048 or 4096"),
        (Social(), 16, "topology=social with workers=16: the graph has 32 nodes; valid is workers=32"),
        (Margulis(), 8, "topology=margulis with workers=8: valid is a square: 4 or 9"),
        (Expander(), 9, "topology=expander with workers=9: valid is a prime: 7 or 11"),
        (
            RandomRegular(degree=3),
            5,
            "topology.degree=3: valid is less than workers=5, and even if that is odd, such as 2, 4",
        ),
        (
            RandomRegular(degree=8),
            8,
            "topology.degree=8: valid is less than workers=8, and even if that is odd, such as 5, ",
        ),
        (RandomRegular(), 2, "topology=random_regular with workers=2: valid is 3 up, with topology.degree=2"),
        (
            Exponential(weights="metropolis_hastings"),
            4,
            "its links have a direction; valid is topology.weights=uniform",
        ),
        (Edges(links="0 1;1 0", directed=True, weights="local_degree"), 2, "its links have a direction; valid is"),
        (
            Ring(weights="local_degree"),
            8,
            "topology=ring with workers=8, topology.weights=local_degree: workers keep noth",
        ),
        (
            Hypercube(weights="local_degree"),
            4,
            "goes to and fro; valid is topology.lazy=true or topology.weights=uniform",
        ),
        (TOPOLOGIES["none"](), 4, "topology=none: valid is one of ring, complete, "),
    ],
)
def test_what_there_is_not_for_so_many_workers(options: Any, workers: int, message: str) -> None:
    for refuses in (check, build):
        with pytest.raises(UsageError) as caught:
            refuses(options, workers)
        assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_ring_of_an_odd_number_mixes_without_anything_of_ones_own() -> None:
    mixing = build(Ring(weights="local_degree"), 5)
    assert mixing.get_own_weight(0, 1) == 0.0 and mixing.gap > 0.1


@pytest.mark.parametrize(
    "text", ["# a square\n0 1\n1 2  # on\n\n2 3\n3,0\n", "0\t1 0.25\n2 1 .25\n2 3 0.25\n0 3 2.5e-1\n1 0 0.25\n"]
)
def test_links_from_a_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "links of mine.txt"
    file.write_text(text)
    mixing = build(Edges(file=str(file)), 4)
    assert mixing.symmetric
    assert list(mixing.find_sources(0, 1)) == [1, 3]
    assert mixing.get_own_weight(0, 1) == pytest.approx(0.5 if "25" in text else 1 / 3)


def test_links_with_a_direction() -> None:
    mixing = build(Edges(links="0 1;1 2;2 0;0 2", directed=True), 3)
    assert mixing.find_targets(0, 1) == [1, 2]
    assert mixing.get_matrix(1).sum(axis=0) == pytest.approx(1)
    assert mixing.get_matrix(1)[:, 0] == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert not mixing.symmetric and not mixing.doubly_stochastic
    weighted = build(Edges(links="0 1 0.5;1 0 0.25", directed=True), 2)
    assert weighted.get_matrix(1).tolist() == [[0.5, 0.25], [0.5, 0.75]]


def test_push_sum_comes_to_the_mean_at_the_rate_of_the_gap() -> None:
    mixing = build(Edges(links="0 1;1 2;2 0;0 2;2 3;3 0", directed=True), 4)
    x, weight = np.array([1.0, -2.0, 5.0, 0.0]), np.ones(4)
    errors = []
    for _ in range(40):
        x, weight = mixing.get_matrix(1) @ x, mixing.get_matrix(1) @ weight
        errors.append(np.linalg.norm(x / weight - 1.0))
    assert (errors[29] / errors[9]) ** (1 / 20) == pytest.approx(1 - mixing.gap, rel=0.05)


@pytest.mark.parametrize(
    ("links", "given", "message"),
    [
        (
            "0 1;1 2;x 2",
            {},
            "topology.links, line 3: x 2: valid is two numbers of workers, from 0, and optionally a weight",
        ),
        ("0 1;1 -2", {}, "line 2: 1 -2: valid is two numbers"),
        ("0 1;1 2 .1 3", {}, "line 2: 1 2 .1 3: valid is two numbers"),
        ("0 1;1 3", {}, "line 2: 1 3: valid with workers=3 is a number from 0 to 2"),
        ("0 1;1 1", {}, "line 2: 1 1: valid is a link of two workers; what is left to 1 is a worker's own weight"),
        ("0 1 0.3;1 2 0.3;1 0 0.2", {}, "line 3: 1 0 0.2: valid is the weight that line 1 gives this link, or another"),
        ("0 1 0.3;1 2", {}, "line 2: 1 2: valid is a weight in every line, or in none"),
        ("0 1 0.3;1 2 nan", {}, "line 2: 1 2 nan: valid is a weight above 0 and up to 1"),
        ("0 1 0.3;1 2 0", {}, "line 2: 1 2 0: valid is a weight above 0 and up to 1"),
        ("0 1 0.6;1 2 0.6", {}, "topology.links: the weights of worker 1 make 1.2; valid is a sum up to 1"),
        ("0 1", {}, "topology.links with workers=3: worker 2 cannot be reached from worker 0; valid are links that"),
        ("0 1;1 2", {"directed": True}, "worker 1 cannot reach worker 0; valid are links that connect all workers"),
        ("0 1 0.3;1 2 0.3", {"weights": "local_degree"}, "it has its own; valid is topology.weights=uniform"),
        (
            "0 1 1;1 2 1;2 0 1",
            {"directed": True},
            "valid is topology.lazy=true or weights that leave workers something",
        ),
        ("0 1 0.5\x1b[2J;1 2 0.5", {}, "line 1: '0 1 0.5\\x1b[2J': valid is"),
    ],
)
def test_links_that_cannot_be(links: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(Edges(links=links, **given), 3)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


SOME = ["0 1", "1 2", "2 0", "1 0 .5", "1,2 .5", "0 2 .6", "2 1 1", "", "# 3", "3 0", "1 1", "x 1", "0 1 nan", "-1 é"]


@given(st.lists(st.sampled_from(SOME), max_size=5), st.booleans())
def test_whatever_is_in_a_file_is_a_graph_or_one_line(lines: list[str], directed: bool) -> None:
    options = Edges(links=";".join(lines) or "#", directed=directed)
    try:
        mixing = build(options, 3)
    except UsageError as error:
        assert str(error).isprintable() and "valid" in str(error)
    else:
        assert mixing.gap > 0 and mixing.symmetric >= (not directed)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").write_text("# nothing\n")
    os.mkfifo(tmp_path / "pipe")
    for file, message in [
        ("", "topology.file=: valid is a text file with two numbers of workers a line"),
        (str(tmp_path / "none"), "No such file or directory"),
        (str(tmp_path), "Is a directory"),
        (str(tmp_path / "bytes"), "this is no text"),
        (str(tmp_path / "empty"), "worker 1 cannot be reached from worker 0"),
        (str(tmp_path / "pipe"), "this is a pipe"),
    ]:
        with pytest.raises(UsageError, match=message):
            check(Edges(file=file), 3)


def test_a_run_keeps_the_links_and_not_only_the_name_of_their_file(tmp_path: Path) -> None:
    file = tmp_path / "links.txt"
    file.write_text("0 1\n# the last\n1 2\n")
    changes = {"algorithm": "dpsgd", "workers": 3, "batch": {"size": 8}}
    resolved = resolve(compose_config(**changes, topology={"name": "edges", "file": str(file)}))
    file.unlink()
    assert resolved["topology"]["links"] == "0 1;;1 2"
    options = run_config.parse(resolved).topology
    assert build(options, 3).degree == 2
    assert resolve(resolved) == resolved
    with pytest.raises(UsageError, match="links.txt, line 3: 1 2: valid with workers=2"):
        check(options, 2)


def test_without_a_decentralised_algorithm_a_topology_is_not_looked_at() -> None:
    resolved = resolve(compose_config(topology={"name": "edges", "file": "/nowhere"}))
    assert resolved["topology"] == {"name": "none"}


def test_options_are_told_apart_by_their_topology() -> None:
    same = [Ring(), Complete(), Chain(), Star()]
    assert len({dataclasses.astuple(options) for options in same}) == 1
    assert [build(options, 6).degree for options in same] == [2, 5, 2, 5]
