"""Which compressor, exchange, granularity and memory go together: tables of rules, checked before a start.

`python -m trainers.rules.compressors` prints them as Markdown, `--into docs/compatibility.md` puts them into that page.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import compressors
from compressors import Compressor, Key
from compressors.base import Cooperative
from compressors.memories import base as memories
from compressors.memories.base import Memory
from compressors.memories.dgc_momentum import DGC
from gradsweep.parameters import InvalidParameter
from gradsweep.run_directory import UsageError, bad_value
from trainers.config.run_config import GROUPS, RunConfig, name_of
from trainers.options.datasets import DATASETS
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
from trainers.rules import decentralised, idle_options, machine, phases, servers, training

PART = "what goes together"
"""The part of docs/compatibility.md that the tables stand in."""

_SIZES = ("layer", "bucket", "model")


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


def check_together(run: RunConfig) -> None:
    """Refuse parts that do not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    decentralised.check(run)
    training.check(run)
    servers.check(run)
    try:
        run.policy.check(run.compressor)
        run.policy.check_length(min(run.epochs, run.max_steps or run.epochs), run.max_steps)
    except InvalidParameter as error:
        raise bad_value(f"policy.{error.name}", error.value, error.valid, error.meant) from error
    for compressor in (*run.policy.possible(run.compressor), run.policy.relaxed(run.compressor)):
        one = Together(compressor, run.exchange, run.memory)
        try:
            dataclasses.replace(compressor).join(_combined(run))
        except ValueError as error:
            raise UsageError(f"workers={run.workers} with compressor={compressor.name}: {error}") from error
        for rule in (*RULES, *MEMORY_RULES):
            if rule.forbids(one):
                raise UsageError(f"{one.words(rule.parts)}: {rule.why}; valid is {_instead(rule)}")
    for option, given in (("dense_1d", run.policy.dense_1d), ("patterns", bool(run.policy.patterns))):
        if given and run.exchange.granularity != "layer":
            raise UsageError(f"policy.{option} with exchange.granularity={run.exchange.granularity}: {_SINGLE_TENSORS}")
    if isinstance(run.exchange, ParameterServer) and run.exchange.backup >= run.workers:
        valid = f"an integer from 0 to {run.workers - 1} with workers={run.workers}"
        raise bad_value("exchange.backup", run.exchange.backup, valid)
    _check_data(run)
    machine.check(run)
    if run.global_batch < run.workers:
        raise UsageError(
            f"batch.size={run.batch.size}: valid is at least workers={run.workers}, so that every worker has a sample"
        )
    if run.batch.accumulate > run.global_batch // run.workers:
        valid = f"an integer up to the samples of a worker in a step ({run.global_batch // run.workers})"
        raise bad_value("batch.accumulate", run.batch.accumulate, valid)
    phases.check(run)


def _check_data(run: RunConfig) -> None:
    """Refuse a data set that the model cannot be fed with, or that cannot be partitioned so.

    Raises:
        UsageError: names the combination and what would work.
    """
    takes, dataset = run.model.takes, name_of(run.dataset)
    if run.dataset.kind not in takes:
        fitting = [name for name, cls in DATASETS.items() if cls.kind in takes]
        raise UsageError(
            f"model={name_of(run.model)} with dataset={dataset}: the model takes {' or '.join(takes)}, the data set "
            f"has {run.dataset.kind}; valid is dataset={','.join(fitting)}, or another model"
        )
    if run.dataset.kind == "text" and run.partition.scheme not in ("iid", "contiguous"):
        raise UsageError(
            f"partition.scheme={run.partition.scheme} with dataset={dataset}: a text is not sorted into classes; valid "
            f"is iid or contiguous, with which workers read beside each other alike"
        )


def _combined(run: RunConfig) -> int:
    """How many payloads are combined; where only the network can tell, as many as there may be at most."""
    inside = run.exchange.workers_per_node if isinstance(run.exchange, Hierarchical) else None
    return math.ceil(run.workers / (inside or 1))


def _broken(one: Together, rules: Iterable[Rule], first: int) -> list[str]:
    return [str(number) for number, rule in enumerate(rules, first) if rule.forbids(one)]


def _exchanges() -> dict[str, type[Exchange]]:
    return {name: cls for name, cls in GROUPS["exchange"].items() if name != "auto"}


def _of_exchanges(compressor: Compressor) -> list[str]:
    """A cell for each exchange; where only some granularities work, they are named."""
    cells = []
    for cls in _exchanges().values():
        broken = {
            size: _broken(Together(compressor, cls(granularity=size), memories.build("none")), RULES, 1)
            for size in _SIZES
        }
        cells.append(_cell(broken))
    return cells


def _of_memories(compressor: Compressor) -> list[str]:
    """A cell for each memory, over the exchanges that can carry the compressor, but for gossip, which has none."""
    cells = []
    exchanges = {name: cls for name, cls in _exchanges().items() if cls is not Gossip}
    for name in memories.registry():
        every = {exchange: Together(compressor, cls(), memories.build(name)) for exchange, cls in exchanges.items()}
        possible = {exchange: one for exchange, one in every.items() if not _broken(one, RULES, 1)}
        cells.append(
            _cell({exchange: _broken(one, MEMORY_RULES, 1 + len(RULES)) for exchange, one in possible.items()})
        )
    return cells


def _cell(broken: dict[str, list[str]]) -> str:
    """`yes`, `no` with the rules that are broken, or which of the choices work, and why the others do not."""
    works = [choice for choice, rules in broken.items() if not rules]
    reasons = ", ".join(sorted({number for rules in broken.values() for number in rules}, key=int))
    if not reasons:
        return "yes"
    return f"{', '.join(works)}; else no: {reasons}" if works else f"no: {reasons}"


def _markdown(head: list[str], cells: Callable[[Compressor], list[str]]) -> list[str]:
    lines = ["| compressor | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name in compressors.registry():
        lines.append(f"| {name} | " + " | ".join(cells(compressors.build(name))) + " |")
    return lines


def table() -> str:
    """The rules applied to every compressor with its defaults: Markdown tables, the numbered reasons, other rules."""
    lines = [
        *_markdown([f"exchange={name}" for name in _exchanges()], _of_exchanges),
        "",
        "And with the memories, as far as the first table allows; where only some exchanges work, they are named. With "
        f"exchange=gossip only memory=none works ({len(RULES) + len(MEMORY_RULES)}).",
        "",
        *_markdown([f"memory={name}" for name in memories.registry()], _of_memories),
        "",
        *(f"{n}. {rule.why}; valid is {_instead(rule)}" for n, rule in enumerate((*RULES, *MEMORY_RULES), 1)),
        "",
        "Options can change that: `compressor.values=fp16` has sums of 16 bits, too. Whatever the compressor is:",
        "",
        "- exchange.backup with as many workers as there are, or more: valid is one less at most",
        f"- policy.dense_1d or policy.patterns with exchange.granularity=bucket or model: {_SINGLE_TENSORS}",
        *(f"- {line}" for line in (*training.LINES, *phases.LINES, *servers.LINES, *decentralised.lines())),
        "",
        "Options that decide nothing where another has some value are refused where they are typed and decide nothing "
        "at any point of the grid that has them; in a preset, and as a default, they may stand:",
        "",
        *(f"- {line}" for line in idle_options.lines()),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or put them into a page; 2 where that cannot be."""
    parser = argparse.ArgumentParser("python -m trainers.rules.compressors", description="What goes together.")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put it between the comments in this page")
    page = parser.parse_args(arguments).into
    if page is None:
        print(table())
        return 0
    from compressors.commands import method_specs
    from gradsweep.cli import markdown_sections

    try:
        markdown_sections.fill(page, PART, table())
    except method_specs.UsageError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
