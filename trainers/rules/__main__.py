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


def _build_table(head: list[str], cells: Callable[[Compressor], list[str]]) -> list[str]:
    lines = ["| compressor | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name in compressors.registry():
        lines.append(f"| {name} | " + " | ".join(cells(compressors.build(name))) + " |")
    return lines


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
        *_build_table([f"exchange={name}" for name in _exchanges()], _describe_exchanges),
        "",
        "The next table has the memories, for the exchanges that the first table allows. A cell names the exchanges "
        f"if only some of them work. With exchange=gossip only memory=none works ({_NUMBERS[MEMORY_RULES[-1]]}).",
        "",
        *_build_table([f"memory={name}" for name in memories.REGISTRY], _describe_memories),
        "",
        *(f"{number}. {rule.describe()}" for rule, number in _NUMBERS.items()),
        "",
        "Other options may break further rules: `compressor.values=fp16` has sums of 16 bits, too. The following "
        "rules hold for every compressor:",
        "",
        *(f"- {rule.describe()}" for rule in others),
        "",
        "These values, which depend on other values, are also refused:",
        "",
        *(f"- {line}" for line in (*check.LINES, *phases.LINES, *validity.LINES)),
        "",
        "The following options have an effect only together with other values. A typed option is refused if it has "
        "no effect at any point of the grid that has it. Presets and defaults may contain such options:",
        "",
        *(f"- {rule.when.words}: {rule.instead}" for rule in idle_options.RULES),
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
