"""Topologies of decentralised training: graphs, their mixing matrices, and facts such as the spectral gap.

    mixing = build(Ring(), workers=16)
    mixing.get_matrix(step=1)      # W: x_i becomes sum_j W[i, j] x_j
    collect_facts(mixing)           # spectral gap, degree, messages

`python -m trainers.topology ring --workers 16` prints and draws them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from trainers.topology.validity import check

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig
    from trainers.topology.mixing import Mixing  # loads numpy, which a launcher does without


@functools.lru_cache(maxsize=256)
def build(options: Any, workers: int) -> Mixing:
    """Return the mixing matrices W of a topology (one of `trainers.options.topologies.TOPOLOGIES`).

    W is symmetric and doubly stochastic if links have no direction. For the exponential graphs it is doubly stochastic.
    For directed links from a file it is column-stochastic, which is enough only for push-sum (algorithm=sgp).

    Raises:
        UsageError: this number of workers cannot have this topology, or its weights do not lead to a consensus.
    """
    from trainers.topology import graphs, weights
    from trainers.topology.mixing import Mixing

    check(options, workers)
    built = graphs.build(options, workers)
    return Mixing(tuple(weights.build_matrix(graph, options.weights, options.lazy) for graph in built))


def collect_facts(mixing: Mixing) -> dict[str, Any]:
    """Return result.json's record of a topology."""
    return {
        "symmetric": mixing.symmetric,
        "doubly_stochastic": mixing.doubly_stochastic,
        "spectral_gap": mixing.gap,
        "degree": mixing.degree,
        "messages_per_step": mixing.messages,
    }


def count_contributors(run: RunConfig) -> int:
    """Return the number of workers whose gradients or parameters are averaged in a worker's step, itself included.

    With a topology, this is the largest degree of a worker plus one.
    """
    if not run.decentralised:
        return int(run.exchange.count_contributors(run.workers))
    return build(run.topology, run.workers).degree + 1
