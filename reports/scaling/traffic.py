"""What the exchange of a step sends, with any number of workers: found in the bytes that runs have counted.

The exchanges are described in trainers/lanes: what the network can add goes through allreduce, the rest to all by
allgather, both in parts of some MiB. Which share of a method's payload goes where follows from the bytes that a worker
has sent for a payload of so many: 2 (W - 1) / W for one that is summed, W - 1 for one that is gathered.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from reports.scaling import collectives
from reports.scaling.collectives import COLLECTIVES, DEFAULTS

PART = 1.5 * 2**20
"""Bytes of a usual part of a message: one leaves when it may have 1 MiB, and sums are cut after 2 MiB."""

EAGER = 2**16
"""Bytes above which Open MPI's TCP asks before it sends: request, answer and data are three messages one way."""
RENDEZVOUS = 3

SUMMED = frozenset({"none", "fp16", "bf16", "randomk", "block_randomk", "intsgd", "powersgd", "batched_powersgd"})
"""Compressors whose payloads the network adds where `exchange` is auto: asked for runs of two workers only, whose bytes
do not tell."""
SIZED = frozenset(
    {"adaptive_threshold", "atomo", "dgc", "gaussiank", "qsvd", "redsync_threshold", "redsync_trimmed", "sidco", "svd"}
    | {"thresholdv", "topk"}
)
"""Compressors whose payloads have a size that depends on the data, so that sizes travel first."""
AGREEING = frozenset({"intsgd"})
"""Compressors for which the workers sum a few numbers before they encode."""
ROUNDS = {"powersgd": 2, "batched_powersgd": 2}
"""Sums one after another, where they are more than one."""

_MATCHES = 0.05  # relative difference up to which two amounts of bytes are the same


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a step asks of the network.

    Attributes:
        latencies: times that it waits for the one-way latency.
        messages: one after another.
        bytes: in these messages.
        parts: collectives one after another, of which all but the last can overlap with backward.
    """

    latencies: float = 0.0
    messages: float = 0.0
    bytes: float = 0.0
    parts: float = 0.0


@dataclasses.dataclass(frozen=True)
class Message:
    """`calls` times a collective of `bytes` (what they are says reports.scaling.collectives) among `workers`."""

    collective: str
    bytes: float
    calls: float
    workers: int


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The messages of a step of one method.

    Attributes:
        pattern: `lanes`, `sharded`, `gossip`, or `swaps` between pairs of workers, lg W times.
        summed, gathered: bytes of a worker's payload that go through allreduce, and that every worker gets. With
            `sharded` and `gossip`, and of one swap, `gathered` is the whole message.
        answered: with `sharded`, bytes of the means of all shards.
        rounds: sums one after another into which `summed` is divided.
        is_sized: sizes of payloads travel first.
        agrees: a few numbers are summed before all else.
        degree: neighbours in a gossip; 0: all others.
        every: steps from one exchange to the next.
        grows: lg W neighbours in a gossip, whatever `degree` says.
    """

    pattern: str
    summed: float = 0.0
    gathered: float = 0.0
    answered: float = 0.0
    rounds: int = 1
    is_sized: bool = False
    agrees: bool = False
    degree: float = 0.0
    every: int = 1
    grows: bool = False

    def payloads(self, workers: int) -> int:
        """How many payloads a worker decodes."""
        if self.pattern == "lanes":
            return workers if self.gathered else 1
        if self.pattern == "gossip":
            return 1 + self._degree(workers)
        return max(1, math.ceil(math.log2(workers))) if self.pattern == "swaps" else 1

    def messages(self, workers: int) -> list[Message]:
        """What an exchange of a step sends, in this order."""
        found = [Message("allreduce", 256.0, 1, workers)] if self.agrees else []
        if self.pattern == "sharded":
            tables = [Message("alltoall", 256.0, 1, workers), Message("allgather", 64.0, 1, workers)]
            found += tables if self.is_sized else []
            return [
                *found,
                Message("alltoall", self.gathered, 1, workers),
                Message("allgather", self.answered / workers, 1, workers),
            ]
        if self.pattern == "gossip":
            return [*found, Message("gossip", self.gathered, 1, 1 + self._degree(workers))]
        if self.pattern == "swaps":
            beyond = 2 if workers & (workers - 1) else 0
            return [*found, Message("gossip", self.gathered, workers.bit_length() - 1 + beyond, 2)]
        if self.summed:
            calls = max(self.rounds, math.ceil(self.summed / PART))
            found.append(Message("allreduce", self.summed / calls, calls, workers))
        if self.gathered:
            calls = math.ceil(self.gathered / PART)
            found += [Message("allgather", 64.0, calls, workers)] if self.is_sized else []
            found.append(Message("allgather", self.gathered / calls, calls, workers))
        return found

    @functools.lru_cache(maxsize=65536)  # noqa: B019 - of a frozen dataclass: what is kept is little and the same
    def demand(self, workers: int, alpha: float | None = None, beta: float = 0.0) -> Demand:
        """What a step asks of the network, on average over `every` steps.

        Args:
            alpha, beta: of links for which each collective takes its fastest algorithm; without, it takes that of
                our runs: a ring, and recursive doubling for sums of fewer floats than workers, as in Open MPI.
        """
        if workers < 2:
            return Demand()
        total = [0.0, 0.0, 0.0, 0.0]
        for message in self.messages(workers):
            names = _own_algorithm(message) if alpha is None else list(COLLECTIVES[message.collective])
            found = [_of_call(message, name) for name in names]
            best = min(found, key=lambda one: (alpha or 0.0) * one.latencies + beta * one.bytes)
            values = (best.latencies, best.messages, best.bytes, best.parts)
            total = [had + message.calls * value for had, value in zip(total, values, strict=True)]
        return Demand(*(value / self.every for value in total))

    def _degree(self, workers: int) -> int:
        degree = (workers - 1).bit_length() if self.grows else round(self.degree)
        return min(workers - 1, degree or workers - 1)


def _own_algorithm(message: Message) -> list[str]:
    is_short = message.collective == "allreduce" and message.bytes < 4 * message.workers
    return ["recursive_doubling" if is_short else DEFAULTS[message.collective]]


def _of_call(message: Message, algorithm: str) -> Demand:
    cost = collectives.cost(message.collective, algorithm, message.bytes, message.workers)
    each = cost.bytes / cost.steps if cost.steps else 0.0
    return Demand(cost.steps * (RENDEZVOUS if each > EAGER else 1), cost.steps, cost.bytes, 1.0)


@dataclasses.dataclass(frozen=True)
class Counted:
    """What runs with one number of workers have counted a step: bytes of one worker."""

    workers: int
    payload: float
    sent: float


def of_runs(
    compressor: str, exchange: str, counted: Sequence[Counted], *, degree: float = 0.0, every: int = 1
) -> Traffic | str:
    """The traffic of a method, from what its runs have counted; or why it is not modelled, in words.

    Args:
        exchange: its name in the config; `auto` may be any of the first three.
        counted: by ascending number of workers; those with most of them tell most.
        degree: neighbours of a worker, where it gossips; `every`: steps from one exchange to the next.
    """
    if exchange in ("hierarchical", "parameter_server"):
        return f"exchange={exchange} is not in the cost model; the simulator has it"
    known = [one for one in counted if one.workers > 1 and one.payload > 0]
    if not known:
        return "no run of it with two workers or more has sent anything"
    last = known[-1]
    w, payload = last.workers, last.payload * every
    share = (w - 1) / w
    common = {"is_sized": compressor in SIZED, "every": every}
    if exchange == "gossip":
        return Traffic("gossip", gathered=payload, degree=degree, **common)  # type: ignore[arg-type]
    if exchange == "sharded":
        answered = max(0.0, last.sent * every - payload * share) / share
        return Traffic("sharded", gathered=payload, answered=answered, **common)  # type: ignore[arg-type]
    ratio = last.sent / last.payload
    if w > 3 and abs(ratio - 1) < _MATCHES:
        return Traffic("swaps", gathered=payload / math.ceil(math.log2(w)), **common)  # type: ignore[arg-type]
    if w > 2:
        gathered = payload * min(1.0, max(0.0, (ratio - 2 * share) / (w - 1 - 2 * share)))
        gathered = payload if gathered > (1 - _MATCHES) * payload else gathered
        gathered = 0.0 if gathered < _MATCHES * payload else gathered
    else:
        is_summed = exchange == "allreduce" or (exchange != "allgather" and compressor in SUMMED)
        gathered = 0.0 if is_summed else payload
    summed = payload - gathered
    rounds = ROUNDS.get(compressor, 1) if summed else 1
    return Traffic(
        "lanes",
        summed,
        gathered,
        rounds=rounds,
        agrees=compressor in AGREEING,
        **common,  # type: ignore[arg-type]
    )
