"""From a graph to a mixing matrix: how much what comes from a neighbour counts."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np


def build_matrix(graph: Any, rule: str, lazy: bool) -> np.ndarray:
    """W of a graph, (n, n): rows receive, columns send. Symmetric unless its links have directions; columns sum to 1.

    Args:
        rule: `Topology.weights`; weights of the graph's own, which it then has for all links, come before it.
    """
    workers = range(len(graph))
    linked = networkx.to_numpy_array(graph, nodelist=workers, weight=None) > 0
    loops = np.diag(linked).copy()
    np.fill_diagonal(linked, False)
    if networkx.get_edge_attributes(graph, "weight"):
        shares = networkx.to_numpy_array(graph, nodelist=workers)
    elif graph.is_directed():  # by the links that leave who sends, so that columns sum to 1: the matrix of push-sum
        shares = np.broadcast_to(1.0 / (1.0 + linked.sum(axis=1, keepdims=True)), linked.shape)
    else:
        shares = _SHARES[rule](linked.sum(axis=1), loops)
    given = np.where(linked, shares, 0.0)
    if graph.is_directed():  # networkx has who sends in rows
        given = given.T
    kept = 1.0 - given.sum(axis=0)
    kept[np.abs(kept) < 1e-12] = 0.0  # where everything is given away, rounding would leave less than nothing
    found = given + np.diag(kept)
    return (np.eye(len(graph)) + found) / 2 if lazy else found


def _uniform(degree: np.ndarray, loops: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + degree.max()))


def _metropolis_hastings(degree: np.ndarray, loops: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.maximum.outer(degree, degree))


def _local_degree(degree: np.ndarray, loops: np.ndarray) -> np.ndarray:
    heeding = np.maximum(degree + loops, 1)  # one worker alone has none
    return 1.0 / np.maximum.outer(heeding, heeding)


_SHARES = {"uniform": _uniform, "metropolis_hastings": _metropolis_hastings, "local_degree": _local_degree}
