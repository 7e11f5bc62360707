"""Exchanges by name; built by trainers/exchange/build.py."""

from __future__ import annotations

import dataclasses

from compressors.base import Compressor
from gradsweep.options.parameters import Checked, InvalidParameter, boolean, choice, integer, number


@dataclasses.dataclass(frozen=True)
class Exchange(Checked):
    """The base of exchanges, which turn all workers' payloads into the mean gradient.

    A payload encodes a layer, a bucket of layers or the whole model (`granularity`). Exchanges of plug-ins have
    `build(setup)`: it returns a `trainers.exchange.base.Exchange` for a `trainers.exchange.base.ExchangeSetup`.
    """

    granularity: str = choice("layer", "layer", "bucket", "model")
    bucket_mib: float = number(4.0, 0.0, above=True)

    @property
    def servers(self) -> int:
        """The number of server ranks, which train nothing, in addition to the workers."""
        return 0

    @property
    def asynchronous(self) -> bool:
        """Whether no worker waits for the gradients of other workers."""
        return False

    def count_contributors(self, workers: int) -> int:
        """Return how many workers contribute to the step of a worker, including itself."""
        return workers

    def explain_unfit(self, compressor: Compressor) -> str | None:
        """Return why an exchange of a plug-in cannot carry a compressor's payloads; None if it can."""
        return None


@dataclasses.dataclass(frozen=True)
class Transported(Exchange):
    """The base of our exchanges.

    Args:
        transport: carries the messages: MPI or torch.distributed.
    """

    transport: str = choice("mpi", "mpi", "torch")


RING, RECURSIVE_DOUBLING, RABENSEIFNER = ALLREDUCES = "ring", "recursive_doubling", "rabenseifner"
"""Algorithms of MPI's allreduce."""


@dataclasses.dataclass(frozen=True)
class Overlapping(Transported):
    """The base of exchanges that can send units during backward.

    Args:
        part_mib: MiB of payloads that are sent together, at least; None: it depends on the number of workers
            (trainers/mpi/message_sizes.py).
        allreduce: the algorithm of MPI's allreduce; None: as environment variables say, which choose a ring.
        tune: find `overlap`, `part_mib` and `allreduce` in a trial before the first step.
    """

    overlap: bool = boolean(False)
    part_mib: float | None = number(None, 0.0, above=True, optional=True)
    allreduce: str | None = choice(None, *ALLREDUCES, optional=True)
    tune: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class Auto(Overlapping):
    """The exchange that fits algorithm and compressor: `gossip` for decentralised algorithms; else `allreduce` if MPI
    can sum all payloads, `allgather` if it can sum none, `mixed` if it can sum some."""


@dataclasses.dataclass(frozen=True)
class Allreduce(Overlapping):
    """MPI sums the payloads by allreduce, or executes the rounds of a cooperative compressor; others are refused."""


@dataclasses.dataclass(frozen=True)
class Allgather(Overlapping):
    """Every worker receives every payload and decodes them all into the mean."""


@dataclasses.dataclass(frozen=True)
class Mixed(Overlapping):
    """Payloads that the network can sum are sent by allreduce, all others by allgather."""


_SECOND_MEMORIES = ("auto", "none", "residual", "scaled_residual", "loco")


@dataclasses.dataclass(frozen=True)
class Sharded(Transported):
    """Each worker owns a shard of the units: it gets their payloads, and sends their mean, compressed again, to all."""

    second: str = choice("same", "same", "none")
    second_memory: str = choice("auto", *_SECOND_MEMORIES)


@dataclasses.dataclass(frozen=True)
class Hierarchical(Transported):
    """Workers of a node sum their gradients uncompressed; the first workers of the nodes exchange compressed sums."""

    workers_per_node: int | None = integer(None, low=1, optional=True)


@dataclasses.dataclass(frozen=True)
class ParameterServer(Transported):
    """Payloads go to a server, which answers every worker with their mean, or with the newest parameters.

    Args:
        placement: the server is `colocated` with worker 0, or `dedicated`: a rank of its own behind the workers.
        mode: `synchronous`, or `asynchronous`: the server takes a step with every gradient that comes in.
        staleness: with asynchronous, a worker that is more than so many steps ahead of the slowest has to wait.
        answer: the server sends the mean uncompressed (`dense`) or `compressed` again.
        backup: number of messages that the server drops in each step: the last ones to arrive.
    """

    placement: str = choice("colocated", "colocated", "dedicated")
    mode: str = choice("synchronous", "synchronous", "asynchronous")
    staleness: int = integer(4, low=0, high=1000)
    answer: str = choice("dense", "dense", "compressed")
    second_memory: str = choice("auto", *_SECOND_MEMORIES)
    backup: int = integer(0, low=0, high=4095)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.asynchronous:
            return
        if self.placement == "colocated":
            raise InvalidParameter(
                "placement", self.placement, "dedicated with mode=asynchronous: a worker is not free to answer"
            )
        if self.answer == "compressed":
            raise InvalidParameter("answer", self.answer, "dense with mode=asynchronous, whose answers are parameters")
        if self.backup:
            raise InvalidParameter("backup", self.backup, "0 with mode=asynchronous, which waits for nobody")

    @property
    def servers(self) -> int:
        return int(self.placement == "dedicated")

    @property
    def asynchronous(self) -> bool:
        return self.mode == "asynchronous"

    def count_contributors(self, workers: int) -> int:
        return 1 if self.asynchronous else workers - self.backup


@dataclasses.dataclass(frozen=True)
class Gossip(Transported):
    """Workers send payloads to their neighbours in `topology` only, and mix received parameters with their own."""

    overlap: bool = boolean(False)


EXCHANGES: dict[str, type] = {
    "auto": Auto,
    "allreduce": Allreduce,
    "allgather": Allgather,
    "mixed": Mixed,
    "sharded": Sharded,
    "hierarchical": Hierarchical,
    "parameter_server": ParameterServer,
    "gossip": Gossip,
}
