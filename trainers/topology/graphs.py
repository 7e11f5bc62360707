"""The graphs of topologies as networkx graphs: a node is the number of a worker; some topologies have loops."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import networkx

from trainers.options import topologies
from trainers.topology import edges

Graph = Any
"""A networkx.Graph, or a DiGraph whose edges go from who sends to who receives; `weight` where a file says it."""


def build(options: Any, workers: int) -> list[Graph]:
    """Return the graphs of a period's steps, usually a single one; `validity.check` must have accepted `options`."""
    if workers == 1:
        return [networkx.empty_graph(1)]
    builder = _BUILDERS.get(type(options))
    found = options.build_graph(workers) if builder is None else builder(options, workers)  # the former: of a plug-in
    return found if isinstance(found, list) else [found]


def list_hops(workers: int) -> list[int]:
    """Return the distances of neighbours in the exponential graphs: 1, 2, 4, ... below `workers`."""
    return [2**power for power in range(math.ceil(math.log2(workers)))]


def compute_sides(options: topologies.Torus, workers: int) -> tuple[int, int]:
    """Return the rows and columns of a torus; without `rows`, the most rows up to the square root of workers."""
    rows = options.rows or max(rows for rows in range(1, math.isqrt(workers) + 1) if workers % rows == 0)
    return rows, workers // rows


def _torus(options: topologies.Torus, workers: int) -> Graph:
    rows, columns = compute_sides(options, workers)
    grid = networkx.grid_2d_graph(rows, columns, periodic=True)
    return networkx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


def _hypercube(options: topologies.Hypercube, workers: int) -> Graph:
    bits = [1 << place for place in range(workers.bit_length() - 1)]
    return networkx.Graph((worker, worker ^ bit) for worker in range(workers) for bit in bits)


def _link_ahead(workers: int, distances: list[int]) -> Graph:
    """Return the graph in which every worker sends to the workers at these distances after it."""
    ways = ((worker, (worker + distance) % workers) for worker in range(workers) for distance in distances)
    return networkx.DiGraph(ways)


def _margulis(options: topologies.Margulis, workers: int) -> Graph:
    side = math.isqrt(workers)
    pairs = networkx.Graph(networkx.margulis_gabber_galil_graph(side))
    return networkx.relabel_nodes(pairs, {(first, second): first * side + second for first, second in pairs})


def _social(options: topologies.Social, workers: int) -> Graph:
    named = networkx.davis_southern_women_graph()
    plain = networkx.Graph((first, second) for first, second in named.edges)
    return networkx.relabel_nodes(plain, {name: number for number, name in enumerate(named)})


def _random_regular(options: topologies.RandomRegular, workers: int) -> Graph:
    """Return a random connected graph; for a dense graph its complement is drawn, which is faster."""
    draws = random.Random(options.draw)
    left_out = workers - 1 - options.degree
    for _ in itertools.count():
        if left_out < options.degree:
            graph = networkx.complement(networkx.random_regular_graph(left_out, workers, seed=draws))
        else:
            graph = networkx.random_regular_graph(options.degree, workers, seed=draws)
        if networkx.is_connected(graph):
            return graph


def _random_pairs(options: topologies.RandomPairs, workers: int) -> list[Graph]:
    """Return a graph of random pairs for each round; all of them together connect the workers."""
    draws = random.Random(options.draw)
    while True:
        orders = [draws.sample(range(workers), workers) for _ in range(options.rounds)]
        rounds = [networkx.empty_graph(workers) for _ in orders]
        for graph, order in zip(rounds, orders, strict=True):
            graph.add_edges_from(zip(order[::2], order[1::2], strict=True))
        if networkx.is_connected(networkx.compose_all(rounds)):
            return rounds


_BUILDERS: dict[type, Callable[[Any, int], Any]] = {
    topologies.Ring: lambda _, workers: networkx.cycle_graph(workers),
    topologies.Complete: lambda _, workers: networkx.complete_graph(workers),
    topologies.Chain: lambda _, workers: networkx.path_graph(workers),
    topologies.Star: lambda _, workers: networkx.star_graph(workers - 1),
    topologies.Torus: _torus,
    topologies.Hypercube: _hypercube,
    topologies.Exponential: lambda _, workers: _link_ahead(workers, list_hops(workers)),
    topologies.OnePeerExponential: lambda _, workers: [_link_ahead(workers, [hop]) for hop in list_hops(workers)],
    topologies.Expander: lambda _, workers: networkx.Graph(networkx.chordal_cycle_graph(workers)),
    topologies.Margulis: _margulis,
    topologies.Social: _social,
    topologies.RandomRegular: _random_regular,
    topologies.RandomPairs: _random_pairs,
    topologies.Edges: edges.build_graph,
}
