"""Rules on compressors, exchanges, granularities and memories that do not go together, also for the tables in docs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import compressors
from compressors import Compressor, Key
from compressors.base import Cooperative
from compressors.memories.base import Memory
from trainers.options.exchanges import Exchange
from trainers.rules.rule import Condition, Rule, has, has_above, has_other, read


@dataclasses.dataclass(frozen=True)
class Combination:
    """A combination of compressor, exchange and memory to check, with the attributes of a RunConfig.

    Args:
        algorithm: of the run; None for a table in the docs, which holds for any algorithm.
    """

    compressor: Compressor
    exchange: Exchange
    memory: Memory
    algorithm: Any = None


def list_compressors(test: Callable[[Compressor], bool]) -> str:
    """Return the names, separated by commas, of all compressors that pass a test with their default options."""
    return ",".join(name for name in compressors.registry() if test(compressors.build(name)))


def is_reducible(compressor: Compressor) -> bool:
    """Tell whether the network can compute the mean of the payloads."""
    return compressor.summable or isinstance(compressor, Cooperative)


def choose_exchange(possible: Iterable[Compressor]) -> str:
    """Return the name of the exchange of all workers that `exchange=auto` stands for with these compressors."""
    sums = {is_reducible(compressor) for compressor in possible}
    return "mixed" if len(sums) == 2 else "allreduce" if sums == {True} else "allgather"


def _sends_everything(one: Combination) -> bool:
    """Tell whether each step's payloads carry information on every element of the gradient."""
    return not one.compressor.sparse or one.compressor.law((1024, 1024)).omega == 0.0


def _compressor(words: str, test: Callable[[Compressor], bool]) -> Condition:
    return Condition(f"a compressor {words}", lambda one: test(one.compressor), "{compressor=}")


_COOPERATIVE = _compressor("whose mean takes rounds", lambda compressor: isinstance(compressor, Cooperative))
_AGREES = _compressor("whose scale all agree on", lambda compressor: compressor.needs_agreement(Key(0, 0, 1, 0)))
_MOVES = _compressor("that needs to know how far parameters move", lambda compressor: compressor.needs_movement)
_UNSENT = _compressor("whose scale is not sent", lambda compressor: not compressor.sends_scale)
_FOLLOWS = _compressor("that follows the mean of all workers", lambda compressor: compressor.follows_mean)
_SCALE_FREE = _compressor("of directions only", lambda compressor: compressor.scale_free)
_SENDERS = Condition(
    "compressor.mean=senders", lambda one: one.compressor.averages, "{compressor=}, {compressor.mean=}"
)

_SIZES = "{exchange=}, {exchange.granularity=}"
_SECOND_MEMORY = "{exchange=}, {exchange.second_memory=}"
_ANSWERS_COMPRESSED = Condition(
    "exchange.second=same or exchange.answer=compressed",
    lambda one: read(one, "exchange.second") == "same" or read(one, "exchange.answer") == "compressed",
    "{exchange=}, {exchange.second=}{exchange.answer=}",
)
_DROPS = has_above("exchange.backup", 0, "{exchange=}, {exchange.backup=}")
_ASYNCHRONOUS = has("exchange.mode", "asynchronous", shown="{exchange=}, {exchange.mode=}")
_GOSSIP = has("exchange", "gossip")
_ESTIMATES = has("memory", "ef21", "econtrol")
_A_MEMORY = has_other("memory", "none")

_AGREEMENT = "all workers agree on a scale before they encode, so that"
_DRIFTS = "the common mean of the estimates would drift away from the sent values"
_NO_REST = "it sends directions only, so what was not sent cannot be told"
_SUM_OF_ALL = "the mean of all estimates takes the messages of all workers"

RULES = (
    Rule(
        _compressor("whose payloads cannot be added", lambda compressor: not is_reducible(compressor)),
        has("exchange", "allreduce", shown=_SIZES),
        "the network cannot add its payloads",
        f"exchange=allgather, or exchange=allreduce with compressor={list_compressors(is_reducible)}",
    ),
    Rule(
        _COOPERATIVE,
        has("exchange", "allgather", "sharded", "parameter_server", shown=_SIZES),
        "its mean takes rounds of its own",
        "exchange=allreduce",
    ),
    Rule(
        _FOLLOWS,
        has("exchange", "sharded", "parameter_server", shown=_SIZES),
        "workers need the exact mean to encode the next step, and here only the rank that forms it has it",
        "exchange=allreduce",
    ),
    Rule(
        _compressor("of matrices", lambda compressor: compressor.needs_matrix),
        has("exchange.granularity", "bucket", "model", shown=_SIZES),
        "it works on the matrix of a layer",
        "exchange.granularity=layer",
    ),
    Rule(
        _UNSENT,
        _ANSWERS_COMPRESSED,
        "a worker cannot know the scale of a mean that is compressed again",
        "exchange.second=none with exchange=sharded, exchange.answer=dense with exchange=parameter_server; or "
        "compressor.sums=false with compressor=thc",
    ),
    Rule(
        Condition(
            "compressor.aggregate=mean",
            lambda one: read(one, "compressor.aggregate") == "mean",
            "{compressor=}, {compressor.aggregate=}",
        ),
        _ANSWERS_COMPRESSED,
        "the mean would become signs again, a vote",
        "compressor.aggregate=vote, exchange.second=none or exchange.answer=dense",
    ),
    Rule(_AGREES, _DROPS, f"{_AGREEMENT} none could be left behind", "exchange.backup=0"),
    Rule(_AGREES, _ASYNCHRONOUS, f"{_AGREEMENT} they would wait for each other", "exchange.mode=synchronous"),
    Rule(
        _UNSENT,
        has("exchange.placement", "dedicated", shown="{exchange=}, {exchange.placement=}"),
        "a server that trains nothing does not know the scale of the workers",
        "exchange.placement=colocated, or compressor.sums=false with compressor=thc",
    ),
    Rule(
        _COOPERATIVE,
        _GOSSIP,
        "its mean takes rounds of all workers, and each has neighbours only",
        "algorithm=sgd, or a compressor without rounds",
    ),
    Rule(
        _FOLLOWS,
        _GOSSIP,
        "all workers encode the next step by the same mean, and each has neighbours only",
        "algorithm=sgd, or a compressor whose payloads can be decoded alone, such as truncated_svd",
    ),
    Rule(
        Condition(
            "a compressor whose scale all agree on", lambda one: _MOVES.test(one) or _AGREES.test(one), "{compressor=}"
        ),
        _GOSSIP,
        "all workers agree on a scale, and each has neighbours only",
        "algorithm=sgd, or a compressor whose scales are a worker's own, such as qsgd",
    ),
    Rule(
        _SCALE_FREE,
        _GOSSIP,
        "it sends directions only, so how far parameters are from each other cannot be told",
        "compressor=sign_norm, or algorithm=sgd",
    ),
    Rule(
        _SENDERS,
        has("exchange", "sharded", "parameter_server", "gossip"),
        "who has sent an element counts only where every worker decodes the payloads of all",
        "exchange=allgather, mixed or hierarchical, or compressor.mean=all",
    ),
)

MEMORY_RULES = (
    Rule(
        _compressor(
            "of directions only, of which the sender does not know the rest",
            lambda compressor: compressor.scale_free and not compressor.knows_rest,
        ),
        _A_MEMORY,
        _NO_REST,
        "memory=none",
    ),
    Rule(
        has("compressor", "demo"),
        has("memory", "dgc"),
        "the memory of DeMo is its momentum, and this one would add the error to a second momentum",
        "memory=scaled_residual memory.decay=0.999",
    ),
    Rule(
        Condition(
            "compressor.signs=true",
            lambda one: bool(read(one, "compressor.signs", False)),
            "{compressor=}, {compressor.signs=}",
        ),
        _ESTIMATES,
        "receivers know the signs only, and cannot form the sender's estimate",
        "memory=scaled_residual",
    ),
    Rule(
        Condition(
            "a compressor that says something about every element",
            lambda one: (not one.compressor.lossless or _DROPS.test(one)) and _sends_everything(one),
            "{compressor=}",
        ),
        Condition(
            "memory.momentum_masking=true and memory.momentum above 0",
            lambda one: read(one, "memory.momentum_masking", False) and one.memory.momentum > 0.0,
            "{memory=}",
        ),
        "momentum is cleared for sent elements, which are almost all elements in every step",
        f"memory.momentum_masking=false, or a sparsifier ({list_compressors(lambda compressor: compressor.sparse)})",
    ),
    Rule(
        _compressor("of 16-bit sums", lambda compressor: compressor.sum_dtype in ("float16", "bfloat16")),
        Condition(
            f"{_ESTIMATES.words}, and exchange=allreduce or mixed or hierarchical",
            lambda one: _ESTIMATES.test(one) and read(one, "exchange") in ("allreduce", "mixed", "hierarchical"),
            "{memory=}, {exchange=}",
        ),
        f"the network rounds its sums to 16 bits, and {_DRIFTS}",
        "exchange=allgather, or another memory",
    ),
    Rule(
        Condition(
            f"a lossy compressor and {_ESTIMATES.words}",
            lambda one: _ESTIMATES.test(one) and not one.compressor.lossless,
            "{memory=}",
        ),
        Condition(
            "a mean that is compressed again without exchange.second_memory",
            lambda one: _ANSWERS_COMPRESSED.test(one) and one.exchange.second_memory == "none",
            _SECOND_MEMORY,
        ),
        _DRIFTS,
        "exchange.second_memory=residual, or another memory",
    ),
    Rule(
        _SENDERS,
        _ESTIMATES,
        "the mean of all estimates is not that of those that have changed",
        "compressor.mean=all, or memory=residual",
    ),
    Rule(_ESTIMATES, _DROPS, _SUM_OF_ALL, "exchange.backup=0, or another memory"),
    Rule(
        has("memory", "loco"),
        _DROPS,
        "it keeps the errors of what is sent, not gradients that the server drops",
        "exchange.backup=0, or another memory",
    ),
    Rule(_ESTIMATES, _ASYNCHRONOUS, _SUM_OF_ALL, "exchange.mode=synchronous, or another memory"),
    Rule(
        _SCALE_FREE,
        Condition(
            "exchange.second_memory=residual or scaled_residual or loco",
            lambda one: _ANSWERS_COMPRESSED.test(one) and one.exchange.second_memory not in ("auto", "none"),
            _SECOND_MEMORY,
        ),
        _NO_REST,
        "exchange.second_memory=none",
    ),
    Rule(
        _A_MEMORY,
        _GOSSIP,
        "it keeps the unsent part of gradients, but parameters are sent",
        "memory=none, with algorithm=choco or deep_squeeze, which keep that themselves, or algorithm=sgd",
    ),
)
"""Numbered on behind RULES."""
