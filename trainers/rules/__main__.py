"""Which compressor, exchange, granularity and memory go together: the tables of docs/reference/compatibility.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import compressors
from compressors import Compressor, memories
from trainers.config.groups import GROUPS
from trainers.options.exchanges import Exchange, Gossip
from trainers.rules import decentralised, idle_options, phases, servers, training
from trainers.rules.compressors import _SINGLE_TENSORS, MEMORY_RULES, RULES, Rule, Together, _instead

PART = "what goes together"
"""The part of docs/reference/compatibility.md that the tables stand in."""

_SIZES = ("layer", "bucket", "model")


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
    parser = argparse.ArgumentParser("python -m trainers.rules", description="What goes together.")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put it between the comments in this page")
    page = parser.parse_args(arguments).into
    if page is None:
        print(table())
        return 0
    from gradsweep import errors
    from gradsweep.cli import markdown_sections

    try:
        markdown_sections.fill(page, PART, table())
    except errors.UsageError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
