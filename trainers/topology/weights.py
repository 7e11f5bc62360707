"""Compute the mixing matrix of a graph: the weights of neighbours' parameters."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np


def build_matrix(graph: Any, rule: str, lazy: bool) -> np.ndarray:
    """Return the mixing matrix W of a graph, (n, n): rows are receivers, columns are senders.

    W is symmetric unless the links have directions; its columns sum to 1.

    Args:
        rule: `Topology.weights`; it is ignored if the graph's links have weights of their own.
        lazy: use (I + W) / 2 instead.
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
        shares = _compute_shares(rule, linked.sum(axis=1), loops)
    given = np.where(linked, shares, 0.0)
    if graph.is_directed():  # networkx has who sends in rows
        given = given.T
    kept = 1.0 - given.sum(axis=0)
    kept[np.abs(kept) < 1e-12] = 0.0  # where everything is given away, rounding would leave less than nothing
    matrix = given + np.diag(kept)
    return (np.eye(len(graph)) + matrix) / 2 if lazy else matrix


def _compute_shares(rule: str, degree: np.ndarray, loops: np.ndarray) -> np.ndarray:
    """Return the weight of a link between any two workers, (n, n), or () if all links have the same weight."""
    if rule == "uniform":
        return np.asarray(1.0 / (1.0 + degree.max()))
    if rule == "metropolis_hastings":
        return 1.0 / (1.0 + np.maximum.outer(degree, degree))
    links = np.maximum(degree + loops, 1)  # local_degree; one worker alone has none
    return 1.0 / np.maximum.outer(links, links)
