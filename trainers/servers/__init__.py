"""A parameter server that is a rank of its own, behind those of the workers.

link          what a worker says to it, and how
base          the server's loop: what comes in is answered, in the order in which it comes
synchronous   it forms the mean of a step's gradients and sends that to all
asynchronous  it takes a step with every gradient and sends the newest parameters back
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainers.config.run_config import RunConfig
from trainers.lanes.server_link import Link

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Link", "serve"]


def serve(config: RunConfig, world: MPI.Comm) -> dict[str, Any]:
    """Serve the workers of a run until they are done; returns what worker 0 says of its end: status, reason, steps.

    It computes on the CPU, whatever the workers do: payloads come through main memory.

    Raises:
        UsageError: the data set or an option cannot be used with the rest, as on the workers.
    """
    from mpi4py import MPI

    from compressors.kernels import backend
    from trainers import data
    from trainers.optimizers.update import build_update_setup
    from trainers.replica.replica import Replica
    from trainers.servers.base import Server

    feed = data.build_feed(config, 0, config.workers)
    backend.choose("auto" if config.kernels == "triton" else config.kernels)
    replica = Replica(config, feed.shape, feed.classes, MPI.COMM_SELF)  # with the workers' initial parameters
    setup = build_update_setup(config, replica.flat)
    server: Server
    if config.exchange.asynchronous:
        from trainers.servers.asynchronous import AsynchronousServer

        server = AsynchronousServer(world, config.workers, replica.flat, setup, config.seed, config.exchange.staleness)
    else:
        from trainers.servers.synchronous import SynchronousServer

        server = SynchronousServer(world, config, setup)
    return server.run()
