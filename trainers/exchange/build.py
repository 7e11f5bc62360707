"""The exchange of a run, built as its config says; only the module of that exchange is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compressors.memories.base import Memory
from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.transport import Transport
from trainers.gradients.flat import Unit
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.options import exchanges as options

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.lanes.server.server_link import Link
    from trainers.topology.mixing import Mixing


def build_exchange(
    config: options.Exchange,
    comm: MPI.Comm,
    units: Sequence[Unit],
    selector: Selector,
    memory: Memory,
    seed: int,
    watch: Stopwatch,
    *,
    link: Link | None = None,
    mixing: Mixing | None = None,
    transport: Transport | None = None,
    collectives: CollectiveQueue | None = None,
) -> Exchange:
    """Build the exchange that `config` names; `auto` has been replaced before. All workers call this.

    Args:
        link: connection to a dedicated server.
        mixing: the neighbours of each worker, for gossip.
        transport: carries the messages; None: as `config` says.
        collectives: the queue of an earlier exchange with the same transport, to be used on; None: a new one.

    Raises:
        UsageError: its transport cannot connect the workers, or this MPI does not support `overlap` or `allreduce`.
    """
    setup = ExchangeSetup(comm, units, selector, memory, seed, watch)
    if hasattr(config, "build"):  # of a plug-in
        built: Exchange = config.build(setup)
        return built
    if transport is None and isinstance(config, options.Transported) and config.transport == "torch":
        from trainers.exchange.torch_transport import TorchTransport, connect

        transport = TorchTransport(connect(comm, units[0].gradient.device), watch)
    if isinstance(config, options.Gossip):
        from trainers.exchange.gossip import Gossip

        assert mixing is not None
        return Gossip(config, setup, mixing, transport)
    if isinstance(config, options.Hierarchical):
        from trainers.exchange.hierarchical import build_hierarchical

        return build_hierarchical(config, setup, transport)
    if isinstance(config, options.Sharded):
        from trainers.exchange.unit_owners import build_sharded

        return build_sharded(config, setup, transport)
    if isinstance(config, options.ParameterServer) and link is not None:
        from trainers.exchange.dedicated_server import build_dedicated

        return build_dedicated(config, setup, link)
    if isinstance(config, options.ParameterServer):
        from trainers.exchange.unit_owners import build_parameter_server

        return build_parameter_server(config, setup, transport)
    assert isinstance(config, options.Overlapping)
    sums = isinstance(config, (options.Allreduce, options.Mixed))
    gathers = isinstance(config, (options.Allgather, options.Mixed))
    if transport is None:
        transport = Transport(comm, watch, algorithm=config.allreduce if sums else None, part_mib=config.part_mib)
    return Exchange(
        *setup,
        sums=sums,
        gathers=gathers,
        overlap=config.overlap,
        part_mib=config.part_mib,
        transport=transport,
        collectives=collectives,
    )
