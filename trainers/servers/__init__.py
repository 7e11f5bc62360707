"""A dedicated parameter server: the rank after those of the workers, which use trainers/lanes/server_link.py.

base          the server's loop, which answers messages in the order in which they come
synchronous   forms the mean of a step's gradients and sends it to all workers
asynchronous  takes a step with every gradient and sends the newest parameters back
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainers.config.run_config import RunConfig
from trainers.lanes.server.server_link import Link

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Link", "serve"]


def serve(config: RunConfig, world: MPI.Comm) -> dict[str, Any]:
    """Serve the workers of a run until they are done; return status, reason and steps as worker 0 sends them.

    The server computes on the CPU, also for workers on GPUs: payloads arrive in main memory.

    Raises:
        UsageError: options do not go together; it is raised on the workers, too.
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
