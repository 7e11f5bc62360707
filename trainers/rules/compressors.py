"""Which compressor, exchange, granularity and memory go together: tables of rules, checked before a start.

`python -m trainers.rules` prints them as Markdown, `--into docs/reference/compatibility.md` puts them into that page.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

import compressors
from compressors import Compressor, Key
from compressors.base import Cooperative
from compressors.memories.base import Memory
from compressors.memories.dgc_momentum import DGC
from trainers.config.groups import name_of
from trainers.options.exchanges import (
    Allgather,
    Allreduce,
    Exchange,
    Gossip,
    Hierarchical,
    Mixed,
    ParameterServer,
    Sharded,
)


@dataclasses.dataclass(frozen=True)
class Together:
    """What is to work together."""

    compressor: Compressor
    carrier: Exchange
    memory: Memory

    @property
    def exchange(self) -> type:
        return type(self.carrier)

    @property
    def granularity(self) -> str:
        return self.carrier.granularity

    def words(self, parts: Iterable[str]) -> str:
        """These parts as they stand on a command line."""
        given = {
            "compressor": self.compressor.name,
            "exchange": name_of(self.carrier),
            "memory": self.memory.name,
        }
        for field in dataclasses.fields(self.carrier):
            given[f"exchange.{field.name}"] = str(getattr(self.carrier, field.name))
        first, *others = (f"{part}={given[part]}" for part in parts if part in given)
        return f"{first} with {', '.join(others)}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """A combination that cannot work, why, and what would; `parts` are those that make it fail."""

    forbids: Callable[[Together], bool]
    why: str
    instead: str
    parts: tuple[str, ...] = ("compressor", "exchange", "exchange.granularity")


def _reducible(compressor: Compressor) -> bool:
    return compressor.summable or isinstance(compressor, Cooperative)


def _sends_everything(compressor: Compressor) -> bool:
    """It says something about every element in every step."""
    return not compressor.sparse or compressor.law((1024, 1024)).omega == 0.0


def _answers_compressed(carrier: Exchange) -> bool:
    """What was decoded is compressed again before all workers get it."""
    is_sharded = isinstance(carrier, Sharded) and carrier.second == "same"
    return is_sharded or (isinstance(carrier, ParameterServer) and carrier.answer == "compressed")


def _drops(carrier: Exchange) -> bool:
    return isinstance(carrier, ParameterServer) and carrier.backup > 0


def _masks(memory: Memory) -> bool:
    return isinstance(memory, DGC) and memory.momentum_masking and memory.momentum > 0.0


RULES = (
    Rule(
        lambda one: issubclass(one.exchange, Allreduce) and not _reducible(one.compressor),
        "the network cannot add its payloads",
        "exchange=allgather, or exchange=allreduce with compressor={reducible}",
    ),
    Rule(
        lambda one: (
            issubclass(one.exchange, (Allgather, Sharded, ParameterServer)) and isinstance(one.compressor, Cooperative)
        ),
        "its mean takes rounds of its own",
        "exchange=allreduce",
    ),
    Rule(
        lambda one: one.compressor.needs_matrix and one.granularity != "layer",
        "it works on the matrix of a layer",
        "exchange.granularity=layer",
    ),
    Rule(
        lambda one: _answers_compressed(one.carrier) and one.compressor.needs_movement,
        "who gets a mean that is compressed again cannot know its scale",
        "exchange.second=none with exchange=sharded, exchange.answer=dense with exchange=parameter_server",
        ("compressor", "exchange", "exchange.second", "exchange.answer"),
    ),
    Rule(
        lambda one: _drops(one.carrier) and one.compressor.needs_agreement(Key(0, 0, 1, 0)),
        "all workers agree on a scale before they encode, so that none could be left behind",
        "exchange.backup=0",
        ("compressor", "exchange", "exchange.backup"),
    ),
    Rule(
        lambda one: one.carrier.asynchronous and one.compressor.needs_agreement(Key(0, 0, 1, 0)),
        "all workers agree on a scale before they encode, so that they would wait for each other",
        "exchange.mode=synchronous",
        ("compressor", "exchange", "exchange.mode"),
    ),
    Rule(
        lambda one: one.carrier.servers > 0 and one.compressor.needs_movement,
        "a server that trains nothing does not know how far the parameters have moved",
        "exchange.placement=colocated",
        ("compressor", "exchange", "exchange.placement"),
    ),
    Rule(
        lambda one: issubclass(one.exchange, Gossip) and isinstance(one.compressor, Cooperative),
        "its mean takes rounds of all workers, and each has neighbours only",
        "algorithm=sgd, or a compressor without rounds",
        ("compressor", "exchange"),
    ),
    Rule(
        lambda one: (
            issubclass(one.exchange, Gossip)
            and (one.compressor.needs_movement or one.compressor.needs_agreement(Key(0, 0, 1, 0)))
        ),
        "all workers agree on a scale, and each has neighbours only",
        "algorithm=sgd, or a compressor whose scales are a worker's own, such as qsgd",
        ("compressor", "exchange"),
    ),
    Rule(
        lambda one: issubclass(one.exchange, Gossip) and one.compressor.scale_free,
        "it sends directions only, so how far parameters are from each other cannot be told",
        "compressor=sign_norm, or algorithm=sgd",
        ("compressor", "exchange"),
    ),
)

MEMORY_RULES = (
    Rule(
        lambda one: one.compressor.scale_free and one.memory.name != "none",
        "it sends directions only, so what was not sent cannot be told",
        "memory=none",
        ("compressor", "memory"),
    ),
    Rule(
        lambda one: (
            _masks(one.memory)
            and (not one.compressor.lossless or _drops(one.carrier))
            and _sends_everything(one.compressor)
        ),
        "momentum is cleared where something was sent, which is almost everywhere in every step",
        "memory.momentum_masking=false, or a sparsifier ({sparse})",
        ("compressor", "memory"),
    ),
    Rule(
        lambda one: (
            one.memory.name == "ef21"
            and one.compressor.sum_dtype in ("float16", "bfloat16")
            and issubclass(one.exchange, (Allreduce, Mixed, Hierarchical))
        ),
        "the network rounds its sums to 16 bits, and what all workers hold in common would drift away for good from "
        "what each of them has sent",
        "exchange=allgather, or another memory",
        ("compressor", "memory", "exchange"),
    ),
    Rule(
        lambda one: (
            one.memory.name == "ef21"
            and _answers_compressed(one.carrier)
            and one.carrier.second_memory == "none"  # type: ignore[attr-defined]
            and not one.compressor.lossless
        ),
        "what all workers hold in common would drift away for good from what each of them has sent",
        "exchange.second_memory=residual, or another memory",
        ("memory", "exchange", "exchange.second_memory"),
    ),
    Rule(
        lambda one: one.memory.name == "ef21" and _drops(one.carrier),
        "the mean of all estimates takes the messages of all workers",
        "exchange.backup=0, or another memory",
        ("memory", "exchange", "exchange.backup"),
    ),
    Rule(
        lambda one: one.memory.name == "ef21" and one.carrier.asynchronous,
        "the mean of all estimates takes the messages of all workers",
        "exchange.mode=synchronous, or another memory",
        ("memory", "exchange", "exchange.mode"),
    ),
    Rule(
        lambda one: (
            one.compressor.scale_free
            and _answers_compressed(one.carrier)
            and one.carrier.second_memory not in ("auto", "none")  # type: ignore[attr-defined]
        ),
        "it sends directions only, so what was not sent cannot be told",
        "exchange.second_memory=none",
        ("compressor", "exchange", "exchange.second_memory"),
    ),
    Rule(
        lambda one: issubclass(one.exchange, Gossip) and one.memory.name != "none",
        "it keeps what was not sent of gradients, and parameters are sent",
        "memory=none, with algorithm=choco or deep_squeeze, which keep that themselves, or algorithm=sgd",
        ("memory", "exchange"),
    ),
)
"""Numbered on behind RULES."""

_SINGLE_TENSORS = "it looks at single tensors; valid is exchange.granularity=layer"


@functools.cache  # a sweep may ask for thousands of points
def _instead(rule: Rule) -> str:
    def names(test: Callable[[Compressor], bool]) -> str:
        return ",".join(name for name in compressors.registry() if test(compressors.build(name)))

    return rule.instead.format(reducible=names(_reducible), sparse=names(lambda one: one.sparse))
