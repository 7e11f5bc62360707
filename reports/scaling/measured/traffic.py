"""Infer the traffic of a step's exchange, for any number of workers, from the bytes that runs have counted.

The exchanges are described in trainers/lanes: payloads that the network can add go through allreduce, others to all by
allgather, both in parts of some MiB. Runs have counted the calls (`collectives_per_step` of result.json); for runs of
older versions they are estimated. The share of a payload that is summed follows from the bytes that a worker has sent
for it: 2 (W - 1) / W for a payload that is summed, W - 1 for one that is gathered.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

from reports.scaling.measured.collectives import COLLECTIVES

GROWING_FROM = 32
"""Workers above which the parts of messages and the segments of sums grow in proportion to the workers, as in
trainers.mpi.message_sizes; a ring's messages then stay at 64 KiB."""
PART = 1.5 * 2**20
"""Bytes of a usual part of a message of layers with few workers: a part leaves at 1 MiB or more, and sums are cut after
2 MiB.

This and the next two constants only serve to estimate the calls of runs that have not counted them."""
DENSE_PART = 3 * 2**20
"""Bytes of the gradient in a part if a payload may be as long as the gradient: a large layer is a part then."""
SEGMENT = 2**21
"""Bytes of a sum if units are longer than that."""
TUNED_PARTS = (4.0, 16.0, 64.0)
"""Parts that a trial of exchange=tuned tries beside usual ones, over the usual ones of few workers (1 MiB)."""


def compute_growth(workers: int) -> float:
    """Return the length of parts and segments with this many workers, relative to few workers."""
    return max(workers, GROWING_FROM) / GROWING_FROM


EAGER = 2**16
"""Bytes above which Open MPI over TCP asks before it sends: request, answer and data are three one-way messages."""
RENDEZVOUS = 3

DENSE_BOUNDS = frozenset({"adaptive_threshold", "gaussiank", "none", "redsync_threshold", "sidco", "svd", "thresholdv"})
"""Compressors whose payloads may be as long as the gradient, which decides when a part leaves."""
SUMMED = frozenset(
    {"none", "fp16", "bf16", "randomk", "block_randomk", "intsgd", "thc", "powersgd", "batched_powersgd", "acp_sgd"}
    | {"dion"}
)
"""Compressors whose payloads the network adds if `exchange` is auto; used for runs of two workers, whose bytes are
ambiguous."""
SIZED = frozenset(
    {"adaptive_threshold", "atomo", "dgc", "gaussiank", "qsvd", "redsync_threshold", "redsync_trimmed", "sidco", "svd"}
    | {"thresholdv", "topk", "chunk_topk", "demo"}
)
"""Compressors whose payloads have a size that depends on the data, so that sizes travel first."""
AGREEING = frozenset({"intsgd", "thc"})
"""Compressors for which the workers sum a few numbers before they encode."""
ROUNDS = {"powersgd": 2, "batched_powersgd": 2, "dion": 2}
"""Sums one after another, for compressors with more than one."""

_MATCHES = 0.05  # relative difference up to which two amounts of bytes are the same


@dataclasses.dataclass(frozen=True)
class Demand:
    """The demands of a step on the network.

    Attributes:
        latencies: the number of one-way latencies for which it waits.
        messages: the number of messages that a worker sends on the critical path.
        bytes: the bytes of these messages.
    """

    latencies: float = 0.0
    messages: float = 0.0
    bytes: float = 0.0


@dataclasses.dataclass(frozen=True)
class CollectiveCall:
    """`calls` successive calls of a collective with `bytes` among `workers` (bytes as in
    reports.scaling.measured.collectives).
    """

    collective: str
    bytes: float
    calls: float
    workers: int


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The messages of a step of one method.

    Attributes:
        pattern: `lanes`, `sharded`, `gossip`, or `swaps` between pairs of workers, lg W times.
        summed: bytes of a worker's payload that go through allreduce.
        gathered: bytes of a worker's payload that every worker gets; with `sharded` and `gossip`, and for each of the
            `swaps`, the whole message.
        answered: with `sharded`, bytes of the means of all shards.
        sums, gathers: the numbers of successive calls into which `summed` and `gathered` are divided, with `lanes` and
            up to GROWING_FROM workers (see `count_calls`).
        rounds: the number of sums that wait for the result of the previous sum.
        sizes: the number of exchanges of payload sizes, before the payloads.
        agreements: the number of sums of a few numbers, before all else.
        early: the number of sums and gathers that leave during backward if the exchange overlaps with it; rounds,
            swaps, shards, and calls that wait for an agreement are none of them.
        degree: the number of neighbours in a gossip; 0: all other workers.
        every: the number of steps from one exchange to the next.
        grows: in a gossip a worker has lg W neighbours, whatever `degree` says.
        part: with `lanes`, the length of the calls' parts, relative to the usual parts of few workers.
        allreduce: the algorithm of sums, if it is not left to MPI's settings; empty: a ring.
        is_tuned: a trial chooses the parts and the algorithm (exchange=tuned).
        is_fixed: parts have the same length with any number of workers.
    """

    pattern: str
    summed: float = 0.0
    gathered: float = 0.0
    answered: float = 0.0
    sums: float = 1.0
    gathers: float = 1.0
    rounds: int = 1
    sizes: float = 0.0
    agreements: float = 0.0
    early: float = 0.0
    degree: float = 0.0
    every: int = 1
    grows: bool = False
    part: float = 1.0
    allreduce: str = ""
    is_tuned: bool = False
    is_fixed: bool = False

    def count_calls(self, workers: int) -> Traffic:
        """Return the traffic with the number of calls for this many workers, with which parts may be longer."""
        return self if self.is_fixed else self.change_parts(max(self.part, compute_growth(workers)))

    def list_settings(self, workers: int) -> list[Traffic]:
        """Return the traffic with each setting that a trial may choose with this many workers; without a trial, only
        its own.
        """
        if not self.is_tuned:
            return [self.count_calls(workers)]
        parts = dict.fromkeys((compute_growth(workers), *TUNED_PARTS))
        algorithms = list(COLLECTIVES["allreduce"]) if self.summed else [self.allreduce]
        return [dataclasses.replace(self.change_parts(part), allreduce=name) for part in parts for name in algorithms]

    def change_parts(self, part: float) -> Traffic:
        """Return the traffic with parts of another length, `part` times the usual one of few workers, and so other call
        counts.

        The number of calls after backward stays the same, unless fewer calls are left; rounds are not cut into parts.
        """
        growth = part / self.part
        if self.pattern != "lanes" or growth == 1:
            return self
        rounds = self.rounds if self.rounds > 1 else 0
        parts = max(0.0, self.sums - rounds)
        sums = rounds + _change_count(parts, growth, self.summed / part) if self.summed else self.sums
        gathers = _change_count(self.gathers, growth, self.gathered / part) if self.gathered else self.gathers
        fewer = self.sums - sums + self.gathers - gathers
        return dataclasses.replace(
            self,
            sums=sums,
            gathers=gathers,
            sizes=self.sizes * gathers / self.gathers,
            early=max(0.0, self.early - fewer),
            part=part,
        )

    @property
    def early_share(self) -> float:
        """The share of an exchange that can overlap with computation.

        For a gossip it is 1, since its message is complete before the computation begins (trainers/exchange/gossip.py);
        else it is the share that leaves during backward.
        """
        if self.pattern == "gossip":
            return 1.0
        parts = (self.sums if self.summed else 0.0) + (self.gathers if self.gathered else 0.0)
        return min(1.0, self.early / parts) if self.pattern == "lanes" and parts else 0.0

    def compute_overlap(self, work: float, encode: float) -> float:
        """Return the seconds of `work` and encoding that overlap with the exchange, which begins when its first part
        leaves.
        """
        return work if self.pattern == "gossip" else (work + encode) * self.early / (self.early + 1)

    def count_payloads(self, workers: int) -> int:
        """Return how many payloads a worker decodes."""
        if self.pattern == "lanes":
            return workers if self.gathered else 1
        if self.pattern == "gossip":
            return 1 + self._count_neighbours(workers)
        return max(1, math.ceil(math.log2(workers))) if self.pattern == "swaps" else 1

    def list_calls(self, workers: int) -> list[CollectiveCall]:
        """Return the collective calls of a step's exchange, in order, with their numbers in this traffic."""
        found = [CollectiveCall("allreduce", 256.0, self.agreements, workers)] if self.agreements else []
        if self.pattern == "sharded":
            tables = [CollectiveCall("alltoall", 256.0, 1, workers), CollectiveCall("allgather", 64.0, 1, workers)]
            found += tables if self.sizes else []
            return [
                *found,
                CollectiveCall("alltoall", self.gathered, 1, workers),
                CollectiveCall("allgather", self.answered / workers, 1, workers),
            ]
        if self.pattern == "gossip":
            return [*found, CollectiveCall("gossip", self.gathered, 1, 1 + self._count_neighbours(workers))]
        if self.pattern == "swaps":
            beyond = 2 if workers & (workers - 1) else 0
            return [*found, CollectiveCall("gossip", self.gathered, workers.bit_length() - 1 + beyond, 2)]
        if self.summed:
            found.append(CollectiveCall("allreduce", self.summed / self.sums, self.sums, workers))
        if self.sizes:
            found.append(CollectiveCall("allgather", 64.0, self.sizes, workers))
        if self.gathered:
            found.append(CollectiveCall("allgather", self.gathered / self.gathers, self.gathers, workers))
        return found

    def _count_neighbours(self, workers: int) -> int:
        degree = (workers - 1).bit_length() if self.grows else round(self.degree)
        return min(workers - 1, degree or workers - 1)


def _change_count(count: float, growth: float, size: float) -> float:
    """Return the number of parts that are `growth` times as long; `size` is the bytes of all parts, divided by `part`.

    Shorter parts are at most as many as parts of PART bytes would be, since a layer is not cut.
    """
    return math.ceil(count / growth) if growth > 1 else min(count / growth, max(count, math.ceil(size / PART)))


@functools.lru_cache(maxsize=65536)
def compute_demand(traffic: Traffic, workers: int, alpha: float | None = None, beta: float = 0.0) -> Demand:
    """Return the demands of a step on the network, as a mean over `every` steps.

    Args:
        alpha, beta: figures of links, for which each collective takes its fastest algorithm. Without them, it takes the
            algorithm of our runs: a ring, and recursive doubling for sums of fewer floats than workers, as in Open MPI.
    """
    if workers < 2:
        return Demand()
    total = [0.0, 0.0, 0.0]
    for message in traffic.list_calls(workers):
        algorithms = COLLECTIVES[message.collective]
        if alpha is None:
            is_short = message.collective == "allreduce" and message.bytes < 4 * message.workers
            usual = next(iter(algorithms))
            asked = traffic.allreduce if message.collective == "allreduce" else ""
            name = "recursive_doubling" if is_short else asked or usual
            algorithms = {name: algorithms[name]}
        costs = [compute(message.bytes, message.workers) for compute in algorithms.values()]
        found = [(cost.count_latencies(EAGER, RENDEZVOUS), cost.messages, cost.bytes) for cost in costs]
        best = min(found, key=lambda one: (alpha or 0.0) * one[0] + beta * one[2])
        total = [had + message.calls * value for had, value in zip(total, best, strict=True)]
    return Demand(*(value / traffic.every for value in total))


@dataclasses.dataclass(frozen=True)
class CountedTraffic:
    """The counts of runs with one number of workers: bytes that a worker sends in a step, and its collective calls by
    kind.

    `calls` and `early` are `collectives_per_step` and `early_collectives_per_step` of result.json; None: not counted.
    """

    workers: int
    payload: float
    sent: float
    calls: Mapping[str, float] | None = None
    early: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The bytes of a gradient in fp32, and of a unit that one payload covers; 0: a unit is a layer."""

    bytes: float = 0.0
    unit: float = 0.0


UNKNOWN_GRADIENT = Gradient()


def infer_traffic(
    compressor: str,
    exchange: str,
    counted: Sequence[CountedTraffic],
    *,
    degree: float = 0.0,
    every: int = 1,
    gradient: Gradient = UNKNOWN_GRADIENT,
) -> Traffic | str:
    """Infer the traffic of a method from the counts of its runs; return the reason if the model cannot describe it.

    Args:
        exchange: its name in the config; `auto` may be any of the first three.
        counted: the counts by ascending number of workers; the last ones tell most.
        degree: the number of a worker's neighbours in a gossip; `every`: steps from one exchange to the next.
        gradient: for estimating the number of calls if runs have not counted them.
    """
    if exchange in ("hierarchical", "parameter_server"):
        return f"exchange={exchange} is not in the cost model; the simulator has it"
    known = [one for one in counted if one.workers > 1 and one.payload > 0]
    if not known:
        return "no run of it with two workers or more has sent anything"
    last = known[-1]
    w, payload = last.workers, last.payload * every
    share = (w - 1) / w
    if exchange == "gossip":
        return Traffic("gossip", gathered=payload, degree=degree, every=every)
    if exchange == "sharded":
        answered = max(0.0, last.sent * every - payload * share) / share
        sizes = 2.0 * (compressor in SIZED) if last.calls is None else last.calls.get("sizes", 0.0) * every
        return Traffic("sharded", gathered=payload, answered=answered, sizes=sizes, every=every)
    ratio = last.sent / last.payload
    if _is_swapped(last, ratio):
        return Traffic("swaps", gathered=payload / math.ceil(math.log2(w)), every=every)
    if last.calls is not None and "allgather" not in last.calls:
        gathered = 0.0
    elif last.calls is not None and not {"allreduce", "rounds"} & last.calls.keys():
        gathered = payload
    elif w > 2:
        gathered = payload * min(1.0, max(0.0, (ratio - 2 * share) / (w - 1 - 2 * share)))
        gathered = payload if gathered > (1 - _MATCHES) * payload else gathered
        gathered = 0.0 if gathered < _MATCHES * payload else gathered
    else:
        is_summed = exchange == "allreduce" or (exchange != "allgather" and compressor in SUMMED)
        gathered = 0.0 if is_summed else payload
    traffic = Traffic("lanes", payload - gathered, gathered, every=every)
    if last.calls is None:
        return _estimate_calls(traffic, compressor, gradient)
    return _apply_counts(traffic, last.calls, last.early)


def _is_swapped(last: CountedTraffic, ratio: float) -> bool:
    """Tell whether a worker swaps its payload with one partner after another."""
    if last.calls is None:
        return last.workers > 3 and abs(ratio - 1) < _MATCHES
    return "swaps" in last.calls and not {"allreduce", "allgather"} & last.calls.keys()


def _apply_counts(traffic: Traffic, a_step: Mapping[str, float], early_of_it: Mapping[str, float]) -> Traffic:
    """Return the traffic of one exchange with its calls as runs have counted them."""
    calls, early = ({kind: n * traffic.every for kind, n in one.items()} for one in (a_step, early_of_it))
    rounds = calls.get("rounds", 0.0)
    return dataclasses.replace(
        traffic,
        sums=max(1.0, calls.get("allreduce", 0.0) + rounds),
        gathers=max(1.0, calls.get("allgather", 0.0)),
        rounds=max(1, round(rounds)),
        sizes=calls.get("sizes", 0.0),
        agreements=calls.get("agreement", 0.0),
        early=early.get("allreduce", 0.0) + early.get("allgather", 0.0),
    )


def _estimate_calls(traffic: Traffic, compressor: str, gradient: Gradient) -> Traffic:
    """Return the traffic with estimated calls, assuming that in each lane all but the last leave during backward."""
    is_dense = compressor in DENSE_BOUNDS and gradient.bytes > 0
    bound = gradient.bytes if is_dense else traffic.gathered
    unit = gradient.unit * bound / gradient.bytes if gradient.bytes else 0.0
    gathers = math.ceil(bound / max(DENSE_PART if is_dense and not unit else PART, unit)) if traffic.gathered else 0
    sums = math.ceil(traffic.summed / (SEGMENT if unit > SEGMENT else PART))
    rounds = ROUNDS.get(compressor, 1) if traffic.summed else 1
    is_late = rounds > 1 or compressor in AGREEING or 0 < gradient.bytes <= gradient.unit
    return dataclasses.replace(
        traffic,
        sums=max(1, sums, rounds),
        gathers=max(1, gathers),
        rounds=rounds,
        sizes=float(gathers) if compressor in SIZED else 0.0,
        agreements=float(compressor in AGREEING),
        early=0.0 if is_late else float(max(0, sums - 1) + max(0, gathers - 1)),
    )
