"""The exchange that is dense inside a node and compressed between nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from compressors.policy.policy import Selector
from trainers.exchange.base import Exchange, ExchangeSetup, Traffic
from trainers.exchange.transport import Transport
from trainers.gradients.flat import Unit
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import check_count
from trainers.options import exchanges as options

if TYPE_CHECKING:
    from mpi4py import MPI

LEADER = 0


class Hierarchical(Exchange):
    """An exchange that sums a node's gradients in fp32 on its first worker, the leader.

    The leaders exchange compressed gradients as with `mixed`, and each sends the mean to the workers of its node.

    A leader's gradient is M / W times the sum over its node, for M nodes and W workers. The plain mean over the leaders
    is then the mean over all workers, also if nodes have different numbers of workers.

    Only leaders have memories and compressors with state; a leader's number in `Key.worker` is that of its node.

    `payload_bytes` is the leader's message, on all workers of its node. `sent_bytes` counts all that a worker sends:
    in a node every worker but the leader sends its gradient once, and the leader sends the mean and 16 bytes about its
    message to each of them. MPI may instead send them along a tree of workers, but the sum over the node is the same.

    Args:
        setup: its communicator has all workers, its selector is for as many workers as there are nodes.
        whole: the transport among all workers.
        node: the workers of this node.
        leaders: the first workers of all nodes; on all other workers None.
        nodes: number of nodes.
    """

    def __init__(self, setup: ExchangeSetup, whole: Transport, node: Group, leaders: Group | None, nodes: int) -> None:
        from mpi4py import MPI

        self.node, self.whole, self.nodes = node, whole, nodes
        among = Transport(MPI.COMM_SELF, setup.watch) if leaders is None else whole.restrict(leaders)
        comm: Any = among.group
        super().__init__(*setup._replace(comm=comm), sums=True, gathers=True, transport=among)
        self.runs = find_contiguous_runs(self.units)

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        self._beginning = step, epoch, lr, measure
        self._submitted: list[Unit] = []

    def submit(self, unit: Unit) -> None:
        self._submitted.append(unit)  # leaders encode the sum of the whole node

    def measure_withheld(self) -> float:
        return super().measure_withheld() if self.node.rank == LEADER else math.nan

    def finish(self) -> Traffic:
        with self.watch("communicate"):
            inside = self._reduce()
        figures = np.zeros(2)
        sent = 0.0
        if self.node.rank == LEADER:
            step, epoch, lr, measure = self._beginning
            super().begin(step, epoch=epoch, lr=lr, measure=measure)
            for unit in self._submitted:
                super().submit(unit)
            traffic = super().finish()
            error = np.nan if traffic.compression_error is None else traffic.compression_error
            figures[:] = traffic.payload_bytes, error
            sent = traffic.sent_bytes
        with self.watch("communicate"):
            self.collectives.count("reduce", len(self.runs))
            self.collectives.count("bcast", len(self.runs) + 1)
            for run in self.runs:
                self.node.broadcast(run, LEADER)
            self.node.broadcast(torch.from_numpy(figures), LEADER)
        if self.node.rank == LEADER:
            sent += (self.node.size - 1) * (inside + figures.nbytes)
        else:
            sent += inside
        return Traffic(float(figures[0]), sent, None if np.isnan(figures[1]) else float(figures[1]))

    def _reduce(self) -> int:
        """Sum the node's gradients in its leader; return the bytes of one gradient."""
        inside = 0
        for run in self.runs:
            check_count(run.numel(), "numbers in a sum of a node")
            self.node.reduce(run, LEADER)
            if self.node.rank == LEADER:
                run.mul_(self.nodes / self.whole.group.size)
            inside += run.nbytes
        return inside

    def close(self) -> None:
        super().close()
        self.whole.close()


def find_contiguous_runs(units: Sequence[Unit]) -> list[torch.Tensor]:
    """Join the gradients of units that are adjacent in memory, so that each joined piece needs only one collective."""
    runs: list[torch.Tensor] = []
    for unit in units:
        gradient = unit.gradient.view(-1)
        if runs and _follows(gradient, runs[-1]):
            last = runs.pop()
            gradient = last.as_strided((last.numel() + gradient.numel(),), (1,))
        if gradient.numel():
            runs.append(gradient)
    return runs


def _follows(gradient: torch.Tensor, run: torch.Tensor) -> bool:
    is_next = gradient.storage_offset() == run.storage_offset() + run.numel()
    return is_next and gradient.untyped_storage().data_ptr() == run.untyped_storage().data_ptr()


def build_hierarchical(
    config: options.Hierarchical, setup: ExchangeSetup, transport: Transport | None = None
) -> Hierarchical:
    """Build the exchange; a node is all ranks with common memory, or as many neighbouring ranks as the option says.

    Args:
        transport: carries the messages; None: MPI.
    """
    comm = setup.comm
    whole = Transport(comm, setup.watch) if transport is None else transport
    first = find_first_worker(comm, config.workers_per_node)
    nodes = comm.allreduce(int(first == comm.rank))
    node = whole.group.split(first)
    leaders = whole.group.split(0 if first == comm.rank else None)
    assert node is not None
    among_all = setup.selector
    setup = setup._replace(selector=Selector(among_all.policy, among_all.compressor, among_all.units, nodes))
    return Hierarchical(setup, whole, node, leaders, nodes)


def find_first_worker(comm: MPI.Comm, workers_per_node: int | None) -> int:
    """Return the rank of the first worker of this worker's node."""
    from mpi4py import MPI

    if workers_per_node is not None:
        return comm.rank - comm.rank % workers_per_node
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first: int = node.bcast(comm.rank)
    node.Free()
    return first
