"""Which compressor, exchange, memory and granularity go together: one table, checked before a start.

`python -m trainers.compatibility` prints it as Markdown (docs/compatibility.md is that output).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import compressors
from compressors import Compressor
from compressors.base import Cooperative
from compressors.parameters import InvalidParameter
from sweep.run import UsageError, bad_value
from trainers.config import GROUPS, Allgather, Allreduce, RunConfig, name_of


@dataclasses.dataclass(frozen=True)
class Rule:
    """A combination that cannot work, why, and what would."""

    forbids: Callable[[Compressor, type, str], bool]  # compressor, class of the exchange, granularity
    why: str
    instead: str


RULES = (
    Rule(
        lambda compressor, exchange, granularity: issubclass(exchange, Allreduce) and not _reducible(compressor),
        "the network cannot add its payloads",
        "exchange=allgather, or exchange=allreduce with compressor={reducible}",
    ),
    Rule(
        lambda compressor, exchange, granularity: (
            issubclass(exchange, Allgather) and isinstance(compressor, Cooperative)
        ),
        "its mean takes rounds of its own",
        "exchange=allreduce",
    ),
    Rule(
        lambda compressor, exchange, granularity: compressor.needs_matrix and granularity != "layer",
        "it works on the matrix of a layer",
        "exchange.granularity=layer",
    ),
)


def _reducible(compressor: Compressor) -> bool:
    return compressor.summable or isinstance(compressor, Cooperative)


def _instead(rule: Rule) -> str:
    return rule.instead.format(
        reducible=",".join(name for name in compressors.registry() if _reducible(compressors.build(name)))
    )


def check_together(run: RunConfig) -> None:
    """Refuse parts that do not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    try:
        run.policy.check(run.compressor)
    except InvalidParameter as error:
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error
    for compressor in run.policy.possible(run.compressor):
        for rule in RULES:
            if rule.forbids(compressor, type(run.exchange), run.exchange.granularity):
                raise UsageError(
                    f"compressor={name_of(compressor)} with exchange={name_of(run.exchange)}, "
                    f"exchange.granularity={run.exchange.granularity}: {rule.why}; valid is {_instead(rule)}"
                )
        if compressor.scale_free and name_of(run.memory) != "none":
            raise UsageError(
                f"compressor={name_of(compressor)} with memory={name_of(run.memory)}: it sends directions only, so "
                "what was not sent cannot be told; valid is memory=none"
            )
    for option, given in (("dense_1d", run.policy.dense_1d), ("patterns", bool(run.policy.patterns))):
        if given and run.exchange.granularity != "layer":
            raise UsageError(
                f"policy.{option} with exchange.granularity={run.exchange.granularity}: it looks at single tensors; "
                "valid is exchange.granularity=layer"
            )
    momentum = getattr(run.optimizer, "momentum", 0.0)
    if name_of(run.memory) == "dgc" and momentum:
        raise UsageError(
            f"memory=dgc with optimizer.momentum={momentum}: the memory has the momentum; valid is "
            "optimizer.momentum=0 optimizer.nesterov=false"
        )
    if run.kernels == "triton":
        raise bad_value("kernels", run.kernels, "auto, numba or torch where training is on the CPU")
    if run.global_batch < run.workers:
        raise UsageError(
            f"batch.size={run.batch.size}: valid is at least workers={run.workers}, so that every worker has a sample"
        )


def table() -> str:
    """The rules applied to every compressor, exchange and granularity: a Markdown table and the numbered reasons."""
    exchanges = {name: cls for name, cls in GROUPS["exchange"].items() if name != "auto"}
    head = [f"{exchange}, {size}" for exchange in exchanges for size in ("layer", "bucket", "model")]
    lines = ["| compressor | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name in compressors.registry():
        compressor = compressors.build(name)
        cells = []
        for cls in exchanges.values():
            for granularity in ("layer", "bucket", "model"):
                broken = [str(n) for n, rule in enumerate(RULES, 1) if rule.forbids(compressor, cls, granularity)]
                cells.append("no: " + ", ".join(broken) if broken else "yes")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    reasons = [f"{n}. {rule.why}; valid is {_instead(rule)}" for n, rule in enumerate(RULES, 1)]
    return "\n".join([*lines, "", *reasons])


if __name__ == "__main__":
    print(table())
