"""Which compressor, exchange, memory and granularity go together: one table, checked before a start.

`python -m trainers.compatibility` prints it as Markdown (docs/compatibility.md is that output).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import compressors
from compressors import Compressor
from sweep.run import UsageError
from trainers.config import GROUPS, Allreduce, RunConfig, name_of


@dataclasses.dataclass(frozen=True)
class Rule:
    """A combination that cannot work, why, and what would."""

    forbids: Callable[[Compressor, type, str], bool]  # compressor, class of the exchange, granularity
    why: str
    instead: str


RULES = (
    Rule(
        lambda compressor, exchange, granularity: issubclass(exchange, Allreduce) and not compressor.summable,
        "the network cannot add its payloads",
        "exchange=allgather, or exchange=allreduce with compressor={summable}",
    ),
    Rule(
        lambda compressor, exchange, granularity: compressor.needs_matrix and granularity != "layer",
        "it works on the matrix of a layer",
        "exchange.granularity=layer",
    ),
)


def _instead(rule: Rule) -> str:
    summable = ",".join(name for name in compressors.registry() if compressors.build(name).summable)
    return rule.instead.format(summable=summable)


def check_together(run: RunConfig) -> None:
    """Refuse parts that do not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    for rule in RULES:
        if rule.forbids(run.compressor, type(run.exchange), run.exchange.granularity):
            raise UsageError(
                f"compressor={name_of(run.compressor)} with exchange={name_of(run.exchange)}, "
                f"exchange.granularity={run.exchange.granularity}: {rule.why}; valid is {_instead(rule)}"
            )
    if run.global_batch < run.workers:
        raise UsageError(
            f"batch.size={run.batch.size}: valid is at least workers={run.workers}, so that every worker has a sample"
        )


def table() -> str:
    """The rules applied to every compressor, exchange and granularity, as a Markdown table."""
    exchanges = {name: cls for name, cls in GROUPS["exchange"].items() if name != "auto"}
    head = [f"{exchange}, {size}" for exchange in exchanges for size in ("layer", "bucket", "model")]
    lines = ["| compressor | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name in compressors.registry():
        compressor = compressors.build(name)
        cells = []
        for cls in exchanges.values():
            for granularity in ("layer", "bucket", "model"):
                reasons = [rule.why for rule in RULES if rule.forbids(compressor, cls, granularity)]
                cells.append("no: " + "; ".join(reasons) if reasons else "yes")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
