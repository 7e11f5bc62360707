"""A cluster: workers and servers on nodes, and the links that a message goes through."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_AT_ONCE = 1e-30
"""s a byte of a link without a limit: a finite capacity, so that its shares are finite."""


@dataclasses.dataclass(frozen=True)
class Link:
    """A full-duplex link.

    Args:
        latency_s: one-way time of an empty message between two ends that both have such a link.
        s_per_byte: seconds per byte, in each direction; 0: no limit.
    """

    latency_s: float
    s_per_byte: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}={value}: valid is 0 or more")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Workers on nodes, each node with a link to one core switch; servers have nodes of their own after the workers'.

    Endpoints are numbered: workers from 0 on, then servers. Neighbouring workers are on one node.

    Args:
        workers: their number.
        link: the link of each node; of each worker if `per_node` is 1.
        per_node: workers of a node, which share its link when they send to other nodes.
        inner: the link of each worker for messages within its node; required if `per_node` is above 1.
        servers: the number of endpoints that do not train.
        links: exceptions from `link`, by number of the node. The latency between two nodes is the mean of both links'.
        oversubscription: the bandwidths of all nodes together, divided by that of the core, each way; 1 or less: no
            limit.
        eager_bytes: longer messages are announced, and begin when their receiver has answered that it is ready, which
            takes two more latencies (Open MPI over TCP: 65536). None: every message begins when its sender is ready.
        summing_s_per_byte: the time in which a worker adds a received byte to its own sum.

    Raises:
        ValueError: a number is not possible.
    """

    workers: int
    link: Link
    per_node: int = 1
    inner: Link | None = None
    servers: int = 0
    links: Mapping[int, Link] = dataclasses.field(default_factory=dict, hash=False)
    oversubscription: float = 1.0
    eager_bytes: float = math.inf
    summing_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        for name, lowest in (("workers", 1), ("per_node", 1), ("servers", 0)):
            if getattr(self, name) < lowest:
                raise ValueError(f"{name}={getattr(self, name)}: valid is {lowest} or more")
        if self.per_node > 1 and self.inner is None:
            raise ValueError(f"per_node={self.per_node}: wants inner, the link between workers of a node")
        if not 0 < self.oversubscription < math.inf:
            raise ValueError(f"oversubscription={self.oversubscription}: valid is above 0")
        if unknown := [node for node in self.links if not 0 <= node < self.nodes]:
            raise ValueError(f"links: node {unknown[0]}: valid is 0 to {self.nodes - 1}")

    @property
    def endpoints(self) -> int:
        return self.workers + self.servers

    @property
    def nodes(self) -> int:
        return math.ceil(self.workers / self.per_node) + self.servers

    def find_nodes(self, endpoints: Ints) -> Ints:
        """Return the node numbers of endpoints."""
        servers = self.nodes - self.servers + endpoints - self.workers
        return np.where(endpoints < self.workers, endpoints // self.per_node, servers)

    @functools.cached_property
    def s_per_byte(self) -> Floats:
        """Seconds per byte of every shared resource, in the order of `find_paths`: (2 endpoints + 2 nodes + 2,)."""
        inner = np.full(2 * self.endpoints, self.inner.s_per_byte if self.inner else 0.0)
        nodes = np.array([self.links.get(node, self.link).s_per_byte for node in range(self.nodes)])
        with np.errstate(divide="ignore"):
            core = self.oversubscription / np.sum(1 / nodes) if self.oversubscription > 1 else 0.0
        return np.maximum(np.concatenate([inner, nodes, nodes, [core, 0.0]]), _AT_ONCE)

    def find_paths(self, sources: Ints, targets: Ints) -> Ints:
        """Return the resources that each message uses, (messages, 3): positions in `s_per_byte`, the last of which
        costs nothing.

        Within a node, these are the links of sender and receiver; else the sender's node, the core and the receiver's
        node.
        """
        out, into = 2 * self.endpoints, 2 * self.endpoints + self.nodes
        core, free = into + self.nodes, into + self.nodes + 1
        of, to = self.find_nodes(sources), self.find_nodes(targets)
        within = np.stack([sources, self.endpoints + targets, np.full_like(sources, free)], axis=1)
        between = np.stack([out + of, into + to, np.full_like(sources, core)], axis=1)
        return np.where((of == to)[:, None], within, between)

    def get_latencies(self, sources: Ints, targets: Ints) -> Floats:
        """Return one-way latencies in seconds, (messages,)."""
        of, to = self.find_nodes(sources), self.find_nodes(targets)
        own = self._latencies
        return np.where(of == to, self.inner.latency_s if self.inner else 0.0, (own[of] + own[to]) / 2)

    @functools.cached_property
    def _latencies(self) -> Floats:
        return np.array([self.links.get(node, self.link).latency_s for node in range(self.nodes)])
