"""Tell whether a topology exists for a number of workers, by arithmetic: a launcher checks thousands of points."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.targets import describe_error
from trainers.config.groups import GROUPS, get_name
from trainers.options.topologies import (
    TOPOLOGIES,
    Edges,
    Expander,
    Hypercube,
    Margulis,
    NoTopology,
    RandomPairs,
    RandomRegular,
    Social,
    Torus,
)
from trainers.topology import edges

SOCIAL = 32
"""Nodes of Davis's graph."""

MOST = 4096
"""Workers of a run at most (`RunConfig.workers`): larger numbers are not suggested."""

LINES = (
    "topology=torus with a prime number of workers: a prime number has no grid; valid is topology=ring, "
    "topology.rows=1, or another number",
    "topology.rows that does not divide the workers",
    "topology=hypercube if workers is no power of two, margulis if it is no square, expander if it is no prime, "
    f"social if it is not {SOCIAL}",
    "topology=random_pairs with an odd number of workers, or with a single round of more than two",
    "topology=random_regular with as many neighbours as workers, or with degree times workers odd",
    "topology=edges if its file cannot be read, names an unknown worker, gives a link two weights, leaves a worker a "
    "negative own weight, or is not connected",
    "topology=exponential, one_peer_exponential or a directed edges with topology.weights=metropolis_hastings or "
    "local_degree: these weights are for undirected links",
    "topology.weights=local_degree, or weights of a file, if all own weights are 0 and the graph is periodic (a ring "
    "of an even number): valid is topology.lazy=true",
)
"""The rules in words, for docs/reference/compatibility.md."""


@functools.lru_cache(maxsize=4096)
def check(options: Any, workers: int) -> None:
    """Refuse a topology that is impossible with this number of workers.

    Args:
        options: one of `TOPOLOGIES`, of a decentralised run.

    Raises:
        UsageError: one line with the key, its value and what is valid.
    """
    if isinstance(options, NoTopology):
        valid = "one of " + ", ".join(name for name, cls in GROUPS["topology"].items() if cls is not NoTopology)
        raise bad_value("topology", "none", f"{valid} with a decentralised algorithm")
    for cls, rule in _RULES.items():
        if isinstance(options, cls):
            rule(options, workers)
    if type(options) not in TOPOLOGIES.values():
        _check_plugin(options, workers)
    if not options.symmetric and options.weights != "uniform":
        raise UsageError(
            f"topology.weights={options.weights} with topology={get_name(options)}: its links have a direction; valid "
            "is topology.weights=uniform"
        )
    _check_mixes(options, workers)


@functools.lru_cache(maxsize=4096)
def _is_prime(number: int) -> bool:
    return number > 1 and all(number % other for other in range(2, math.isqrt(number) + 1))


def _torus(options: Torus, workers: int) -> None:
    if options.rows is not None and workers % options.rows:
        divisors = ", ".join(str(rows) for rows in range(1, workers + 1) if workers % rows == 0)
        raise bad_value("topology.rows", options.rows, f"a divisor of workers={workers}: {divisors}")
    if options.rows is None and _is_prime(workers):
        other = _find_near(workers, lambda number: number > 3 and not _is_prime(number))
        raise UsageError(
            f"topology=torus with workers={workers}: a prime makes no grid; valid is workers={other}, topology.rows=1 "
            "or topology=ring"
        )


def _require(what: str, test: Callable[[int], bool]) -> Callable[[Any, int], None]:
    """Return a check that the number of workers passes a test; `what` describes valid numbers, such as a prime."""

    def rule(options: Any, workers: int) -> None:
        if not test(workers):
            valid = f"{what}: {_find_near(workers, test)}"
            raise UsageError(f"topology={get_name(options)} with workers={workers}: valid is {valid}")

    return rule


def _social(options: Social, workers: int) -> None:
    if workers != SOCIAL:
        raise UsageError(
            f"topology=social with workers={workers}: the graph has {SOCIAL} nodes; valid is workers={SOCIAL}"
        )


def _random_regular(options: RandomRegular, workers: int) -> None:
    valid = [degree for degree in range(2, workers) if degree * workers % 2 == 0]
    if not valid:
        raise UsageError(f"topology=random_regular with workers={workers}: valid is 3 up, with topology.degree=2")
    if options.degree not in valid:
        near = sorted(sorted(valid, key=lambda degree: abs(degree - options.degree))[:3])
        words = f"less than workers={workers}, and even if that is odd, such as {', '.join(map(str, near))}"
        raise bad_value("topology.degree", options.degree, words)


def _random_pairs(options: RandomPairs, workers: int) -> None:
    _require("an even number", lambda number: number % 2 == 0)(options, workers)
    if options.rounds == 1 and workers > 2:
        raise bad_value(
            "topology.rounds", 1, f"an integer from 2: the same pairs in each step leave workers={workers} apart"
        )


def _check_plugin(options: Any, workers: int) -> None:
    """Refuse a topology of a plug-in that cannot be built, is not connected, or has other nodes than the workers."""
    import networkx

    from trainers.topology import graphs

    where = f"topology={get_name(options)} with workers={workers}"
    try:
        built = graphs.build(options, workers)
        for graph in built:
            if set(graph) != set(range(workers)):
                raise ValueError(f"a graph on {len(graph)} nodes; valid are nodes 0 to {workers - 1}")
        if not networkx.is_connected(networkx.compose_all([networkx.Graph(graph) for graph in built])):
            raise ValueError("its graph is not connected")
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{where}: {describe_error(error)}") from error


_RULES: dict[type, Callable[[Any, int], object]] = {
    Torus: _torus,
    Hypercube: _require("a power of two", lambda number: number & (number - 1) == 0),
    Margulis: _require("a square", lambda number: math.isqrt(number) ** 2 == number),
    Expander: _require("a prime", _is_prime),
    Social: _social,
    RandomRegular: _random_regular,
    RandomPairs: _random_pairs,
    Edges: edges.build_graph,
}


def _find_near(workers: int, test: Callable[[int], bool]) -> str:
    """Return the numbers nearest to `workers` that pass the test, below and above, in words."""
    below = next((number for number in range(workers - 1, 0, -1) if test(number)), None)
    above = next((number for number in range(workers + 1, MOST + 1) if test(number)), None)
    return " or ".join(str(number) for number in (below, above) if number is not None)


def _check_mixes(options: Any, workers: int) -> None:
    """Refuse a topology that leads to no consensus: workers give all weight to neighbours, and parameters only rotate.

    Weight 0 for a worker's own parameters is possible only with weights from a file, and with `local_degree` on graphs
    without loops whose degrees are equal. Other graphs need not be built for this check.
    """
    may_leave_nothing = isinstance(options, Edges) or (
        options.weights == "local_degree" and not isinstance(options, (Expander, Margulis, Social))
    )
    if options.lazy or workers == 1 or not may_leave_nothing:
        return
    import networkx

    from trainers.topology import graphs, weights

    graph = graphs.build(options, workers)[0]
    if weights.build_matrix(graph, options.weights, False).diagonal().any():
        return
    if not networkx.is_aperiodic(graph) if graph.is_directed() else networkx.is_bipartite(graph):
        local = options.weights == "local_degree"
        instead = "topology.weights=uniform" if local else "weights that leave workers something of their own"
        raise UsageError(
            f"topology={get_name(options)} with workers={workers}, topology.weights={options.weights}: workers keep "
            f"nothing of their own, and what they have only goes to and fro; valid is topology.lazy=true or {instead}"
        )
