"""Topologies of decentralised training: graphs, their mixing matrices, and what these promise.

    mixing = build(Ring(), workers=16)
    mixing.matrix(step=1)      # W: x_i becomes sum_j W[i, j] x_j
    facts(mixing)              # spectral gap, degree, messages

`python -m trainers.topology ring --workers 16` prints and draws them.
"""

from __future__ import annotations

import functools
from typing import Any

from trainers.config.run_config import RunConfig
from trainers.topology.mixing import Mixing
from trainers.topology.validity import check

__all__ = ["Mixing", "build", "check", "degree", "facts"]


@functools.lru_cache(maxsize=256)
def build(options: Any, workers: int) -> Mixing:
    """W of a topology (one of `trainers.options.topologies.TOPOLOGIES`).

    It is symmetric and doubly stochastic where links have no direction; of the exponential graphs, doubly stochastic;
    of a file with directions, column-stochastic, which is enough for push-sum (algorithm=sgp) only.

    Raises:
        UsageError: that many workers cannot have this topology, or with these weights it does not mix.
    """
    from trainers.topology import graphs, weights

    check(options, workers)
    built = graphs.build(options, workers)
    found = Mixing(tuple(weights.matrix(graph, options.weights, options.lazy) for graph in built))
    if options.symmetric and not found.symmetric:
        raise AssertionError(f"{options} of {workers} workers: W is not symmetric")
    if not getattr(options, "directed", False) and not found.doubly_stochastic:
        raise AssertionError(f"{options} of {workers} workers: W is not doubly stochastic")
    return found


def facts(mixing: Mixing) -> dict[str, Any]:
    """What result.json says of a topology."""
    return {
        "symmetric": mixing.symmetric,
        "doubly_stochastic": mixing.doubly_stochastic,
        "spectral_gap": mixing.gap,
        "degree": mixing.degree,
        "messages_per_step": mixing.messages,
    }


def degree(run: RunConfig) -> int:
    """Return how many workers' contributions are in what a worker takes a step with, its own included.

    That is its degree in the graph of those who exchange, plus one; where workers differ in it, the largest.
    """
    if not run.decentralised:
        return int(run.exchange.degree(run.workers))
    return build(run.topology, run.workers).degree + 1
