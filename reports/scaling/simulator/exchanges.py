"""The exchanges of training by name, as clusters and steps to simulate: docs/guide/simulator.md."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from reports.scaling.simulator import graphs, schedules
from reports.scaling.simulator.cluster import Cluster
from reports.scaling.simulator.schedules import Schedule
from reports.scaling.simulator.step import Asynchronous, Compute, Step


@dataclasses.dataclass(frozen=True)
class SimulatedTraining:
    """The work of a training step, independent of the exchange and the number of workers.

    Args:
        compute: the times to compute a gradient.
        payload_bytes: the size of a worker's message.
        dense_bytes: the size of uncompressed messages: sums within nodes, answers of an asynchronous server.
        encode_s, decode_s: the times for one payload.
        update_s: the time to update the parameters.
        staleness: the staleness of the exchange `asynchronous`.
        part_bytes: returns, for a number of workers, the largest part of a collective: longer messages are sent in
            equal parts, one after another, each a collective of its own, as in training (trainers/lanes). Messages to
            neighbours and servers are not divided.
    """

    compute: Compute
    payload_bytes: float
    dense_bytes: float
    encode_s: float = 0.0
    decode_s: float = 0.0
    update_s: float = 0.0
    staleness: int = 4
    part_bytes: Callable[[int], float] = lambda workers: math.inf

    def cut_into_parts(self, workers: int, make: Callable[[int, float], Schedule]) -> Schedule:
        """Return the schedule of a payload sent in parts; `make` returns the schedule of one part, given workers and
        bytes.
        """
        parts = max(1, math.ceil(self.payload_bytes / self.part_bytes(workers)))
        return make(workers, self.payload_bytes / parts) * parts


@dataclasses.dataclass(frozen=True)
class SimulatedExchange:
    """The schedules by which an exchange sends payloads.

    Args:
        summary: a description.
        schedule: a function that returns the schedule for a cluster and a training; not called if asynchronous.
        payloads: a function that returns the number of payloads that a worker decodes.
        servers: the number of dedicated servers.
    """

    summary: str
    schedule: Callable[[Cluster, SimulatedTraining], Schedule | list[Schedule]]
    payloads: Callable[[Cluster], int] = lambda cluster: 1
    servers: int = 0
    is_asynchronous: bool = False

    def make_step(self, cluster: Cluster, training: SimulatedTraining) -> Step | Asynchronous:
        """Return a step of a training on a cluster, for `simulate`.

        Raises:
            ValueError: the cluster does not fit the exchange.
        """
        work = {
            "encode_s": training.encode_s,
            "decode_s": training.decode_s * self.payloads(cluster),
            "update_s": training.update_s,
        }
        if not self.is_asynchronous:
            return Step(training.compute, self.schedule(cluster, training), **work)
        # the server decodes and updates; it answers with parameters
        return Asynchronous(
            training.compute,
            push_bytes=training.payload_bytes,
            pull_bytes=training.dense_bytes,
            staleness=training.staleness,
            encode_s=training.encode_s,
            server_s=training.decode_s + training.update_s,
        )


_Made = Callable[[int, float], Schedule]


def _make_collective(make: _Made) -> Callable[[Cluster, SimulatedTraining], Schedule]:
    return lambda cluster, training: training.cut_into_parts(cluster.workers, make)


def _make_gossip(graph: Callable[[int], graphs.Neighbours]) -> SimulatedExchange:
    return SimulatedExchange(
        f"messages to the neighbours in a graph: {graph.__name__}",
        lambda cluster, training: schedules.gossip(graph(cluster.workers), training.payload_bytes),
        lambda cluster: len(graph(cluster.workers)[0]),
    )


def _make_one_peer(cluster: Cluster, training: SimulatedTraining) -> list[Schedule]:
    turns = graphs.one_peer_exponential(cluster.workers)
    return [schedules.gossip(one, training.payload_bytes) for one in turns] or [Schedule()]


def _make_hierarchical(cluster: Cluster, training: SimulatedTraining) -> Schedule:
    leaders = training.cut_into_parts(cluster.workers // cluster.per_node, schedules.allgather_ring)
    return schedules.hierarchical(cluster.workers, cluster.per_node, training.dense_bytes, leaders)


def _make_server(cluster: Cluster, training: SimulatedTraining) -> Schedule:
    return schedules.server(cluster.workers, training.payload_bytes, training.dense_bytes, dedicated=True)


EXCHANGES: dict[str, SimulatedExchange] = {
    "ring": SimulatedExchange("an allreduce round a ring", _make_collective(schedules.allreduce_ring)),
    "doubling": SimulatedExchange("an allreduce by recursive doubling", _make_collective(schedules.allreduce_doubling)),
    "rabenseifner": SimulatedExchange(
        "an allreduce by Rabenseifner's algorithm", _make_collective(schedules.allreduce_rabenseifner)
    ),
    "allgather": SimulatedExchange(
        "every payload to all, round a ring",
        _make_collective(schedules.allgather_ring),
        lambda cluster: cluster.workers,
    ),
    "hierarchical": SimulatedExchange(
        "dense sums in nodes, their leaders' payloads to all leaders", _make_hierarchical, lambda cluster: cluster.nodes
    ),
    "server": SimulatedExchange(
        "a synchronous parameter server, which answers with dense means", _make_server, servers=1
    ),
    "asynchronous": SimulatedExchange(
        "a server that takes one gradient after another (stale synchronous parallel)",
        lambda cluster, training: Schedule(),
        servers=1,
        is_asynchronous=True,
    ),
    "gossip_ring": _make_gossip(graphs.ring),
    "gossip_torus": _make_gossip(graphs.torus),
    "gossip_exponential": _make_gossip(graphs.exponential),
    "gossip_one_peer": SimulatedExchange("the exponential graph, one neighbour a step", _make_one_peer),
}
