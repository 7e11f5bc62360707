"""Exchanges by name; built by trainers/exchange/build.py."""

from __future__ import annotations

import dataclasses

from gradsweep.options.parameters import Checked, InvalidParameter, boolean, choice, integer, number


@dataclasses.dataclass(frozen=True)
class Exchange(Checked):
    """A way in which all workers' payloads become the mean gradient: one covers a layer, a bucket or the model."""

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


RING, RECURSIVE_DOUBLING, RABENSEIFNER = ALLREDUCES = "ring", "recursive_doubling", "rabenseifner"
"""Algorithms of MPI's allreduce."""


@dataclasses.dataclass(frozen=True)
class Overlapping(Exchange):
    """An exchange whose units can leave while backward goes on.

    Args:
        part_mib: MiB of payloads that leave together, at least; None: by the number of workers
            (trainers/mpi/message_sizes.py).
        allreduce: the algorithm of MPI's sums; None: that of the environment, a ring.
        tune: find `overlap`, `part_mib` and `allreduce` in a trial before the first step.
    """

    overlap: bool = boolean(False)
    part_mib: float | None = number(None, 0.0, above=True, optional=True)
    allreduce: str | None = choice(None, *ALLREDUCES, optional=True)
    tune: bool = boolean(False)
    transport: str = choice("mpi", "mpi", "torch")


@dataclasses.dataclass(frozen=True)
class Auto(Overlapping):
    """`gossip` if the algorithm is decentralised; else `allreduce` if the network can sum all payloads,
    `allgather` if it can sum none, and `mixed`."""


@dataclasses.dataclass(frozen=True)
class Allreduce(Overlapping):
    """The network sums the payloads (or does the rounds of a cooperative compressor): only if it can."""


@dataclasses.dataclass(frozen=True)
class Allgather(Overlapping):
    """Every worker receives every payload and decodes them all into the mean."""


@dataclasses.dataclass(frozen=True)
class Mixed(Overlapping):
    """Payloads that the network can sum are sent by allreduce, all others by allgather."""


_SECOND_MEMORIES = ("auto", "none", "residual", "scaled_residual")


@dataclasses.dataclass(frozen=True)
class Sharded(Exchange):
    """Each worker reduces one shard of the units: payloads to the shard's owner, its mean, compressed again, to all."""

    second: str = choice("same", "same", "none")
    second_memory: str = choice("auto", *_SECOND_MEMORIES)


@dataclasses.dataclass(frozen=True)
class Hierarchical(Exchange):
    """Dense sums inside a node, and compressed ones between the first workers of the nodes."""

    workers_per_node: int | None = integer(None, low=1, optional=True)


@dataclasses.dataclass(frozen=True)
class ParameterServer(Exchange):
    """Payloads go to a server, which answers every worker with their mean, or with the newest parameters.

    Args:
        placement: the server is `colocated` with worker 0, or `dedicated`: a rank of its own behind the workers.
        mode: `synchronous`, or `asynchronous`: the server takes a step with every gradient that comes in.
        staleness: with asynchronous, a worker waits where it is more than so many steps ahead of the slowest.
        answer: how the mean goes back: `dense`, or `compressed` again.
        backup: so many messages of a step, the last ones, are dropped.
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
class Gossip(Exchange):
    """Payloads go to the neighbours in `topology` only; each worker mixes what it gets with what it has."""

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
