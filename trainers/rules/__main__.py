"""Which compressor, exchange, granularity and memory go together: the tables of docs/reference/compatibility.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import compressors
from compressors import Compressor, memories
from gradsweep.cli import markdown_sections
from gradsweep.cli.arguments import Parser
from gradsweep.cli.exit_status import run_command
from trainers.config.groups import GROUPS
from trainers.options.exchanges import Exchange, Gossip
from trainers.rules import check, decentralised, idle_options, machine, phases, servers, training
from trainers.rules.compressors import MEMORY_RULES, RULES, Combination
from trainers.rules.rule import Rule
from trainers.topology import validity

PART = "what goes together"
"""The part of docs/reference/compatibility.md that the tables stand in."""

_NUMBERS = {rule: number for number, rule in enumerate((*RULES, *MEMORY_RULES), 1)}


def _list_broken(one: Combination, rules: Iterable[Rule]) -> list[int]:
    return [_NUMBERS[rule] for rule in rules if rule.is_broken(one)]


def _exchanges() -> dict[str, type[Exchange]]:
    return {name: cls for name, cls in GROUPS["exchange"].items() if name != "auto"}


def _describe_exchanges(compressor: Compressor) -> list[str]:
    """Return a table cell for each exchange; if only some granularities work, the cell names them."""
    memory = memories.build("none")
    return [
        _describe(
            {
                size: _list_broken(Combination(compressor, cls(granularity=size), memory), RULES)
                for size in ("layer", "bucket", "model")
            }
        )
        for cls in _exchanges().values()
    ]


def _describe_memories(compressor: Compressor) -> list[str]:
    """Return a table cell for each memory, over the exchanges that can carry the compressor, without gossip."""
    cells = []
    exchanges = {name: cls for name, cls in _exchanges().items() if cls is not Gossip}
    for name in memories.REGISTRY:
        every = {exchange: Combination(compressor, cls(), memories.build(name)) for exchange, cls in exchanges.items()}
        possible = {exchange: one for exchange, one in every.items() if not _list_broken(one, RULES)}
        cells.append(_describe({exchange: _list_broken(one, MEMORY_RULES) for exchange, one in possible.items()}))
    return cells


def _describe(broken: dict[str, list[int]]) -> str:
    """Return `yes`, `no` with the broken rules, or which of the choices work and why others do not."""
    works = [choice for choice, rules in broken.items() if not rules]
    reasons = ", ".join(str(number) for number in sorted({number for rules in broken.values() for number in rules}))
    if not reasons:
        return "yes"
    return f"{', '.join(works)}; else no: {reasons}" if works else f"no: {reasons}"


def _build_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _tell_of_each(head: Iterable[str], cells: Callable[[Compressor], list[str]]) -> list[str]:
    """Return a table with a row for each compressor."""
    rows = ((name, *cells(compressors.build(name))) for name in compressors.registry())
    return _build_table(("compressor", *head), rows)


def build_page() -> str:
    """Return the tables of every compressor with its defaults, the numbered rules and all others, as Markdown."""
    others = (
        *check.RULES,
        *training.RULES,
        *phases.RULES,
        *servers.RULES,
        *decentralised.RULES,
        *decentralised.BEFORE_GOSSIP,
        *decentralised.TOPOLOGY_RULES,
        *decentralised.COMPRESSOR_RULES,
        *machine.RULES,
    )
    lines = [
        "## Compressors and exchanges",
        "",
        *_tell_of_each((f"exchange={name}" for name in _exchanges()), _describe_exchanges),
        "",
        "## Compressors and memories",
        "",
        "A combination is in this table only if the table above allows its exchange. If a memory works with some "
        "exchanges only, the cell names these exchanges. With exchange=gossip, only memory=none works (rule "
        f"{_NUMBERS[MEMORY_RULES[-1]]}).",
        "",
        *_tell_of_each((f"memory={name}" for name in memories.REGISTRY), _describe_memories),
        "",
        "## The rules that the two tables name",
        "",
        "The tables assume the default options of each compressor. Other options may break a further rule. For "
        "example, `compressor.values=fp16` makes a compressor one of 16-bit sums.",
        "",
        *_build_table(
            ("rule", "refused", "reason", "valid instead"),
            ((str(number), *rule.describe()) for rule, number in _NUMBERS.items()),
        ),
        "",
        "## Rules for every compressor",
        "",
        *_build_table(("refused", "reason", "valid instead"), (rule.describe() for rule in others)),
        "",
        "## Values that depend on other values",
        "",
        "The program also refuses:",
        "",
        *(f"- {line}" for line in (*check.LINES, *phases.LINES, *validity.LINES)),
        "",
        "## Options that may have no effect",
        "",
        "With some values, or beside some values of other options, an option has no effect. The right column says "
        "when it has one. A command that sets the option without an effect at any point of its grid is refused. "
        "Presets and defaults may set such an option.",
        "",
        *_build_table(("option", "valid"), ((rule.when.words, rule.instead) for rule in idle_options.RULES)),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or put them into a page, and return the exit status (`gradsweep/cli/exit_status.py`)."""
    parser = Parser("python -m trainers.rules", description="What goes together.")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put it between the comments in this page")
    page = parser.parse_args(arguments).into
    return run_command(parser.prog, lambda: _answer(page))


def _answer(page: Path | None) -> int:
    if page is None:
        print(build_page())
    else:
        markdown_sections.fill(page, PART, build_page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
