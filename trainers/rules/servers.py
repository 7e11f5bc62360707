"""What goes together with a parameter server that is dedicated, asynchronous or drops messages: rules of whole runs."""

from __future__ import annotations

from collections.abc import Callable

from gradsweep.errors import UsageError
from trainers.config.run_config import RunConfig
from trainers.options.algorithms import LocalSGD
from trainers.options.optimizers import OneBitAdam

Rule = tuple[str, Callable[[RunConfig], bool], str]
"""What an option has to be to be refused, as words and as a test, and why, with what is valid."""

ASYNCHRONOUS: tuple[Rule, ...] = (
    (
        "algorithm=local_sgd",
        lambda run: isinstance(run.algorithm, LocalSGD),
        "the server takes every step; valid is algorithm=sgd",
    ),
    (
        "optimizer=onebit_adam",
        lambda run: isinstance(run.optimizer, OneBitAdam),
        "it steps along one momentum of all workers; valid is optimizer=adam",
    ),
    (
        "batch_norm=synchronised",
        lambda run: run.batch_norm == "synchronised",
        "workers would wait for each other in every layer; valid is batch_norm=averaged or local",
    ),
    (
        "precision=fp16",
        lambda run: run.precision == "fp16",
        "all workers leave a step out together; valid is precision=bf16 or fp32",
    ),
    (
        "policy.accordion",
        lambda run: run.policy.accordion.option is not None,
        "it goes by the mean gradient, which nobody has; valid is policy.accordion.option=null",
    ),
)
"""With exchange.mode=asynchronous."""

_UNSEEN = "the server does not see what decides the workers' compressors; valid is exchange.placement=colocated"

DEDICATED: tuple[Rule, ...] = (
    (
        "policy.accordion and memory=ef21",
        lambda run: run.policy.accordion.option is not None and run.memory.name == "ef21",
        _UNSEEN,
    ),
    (
        "policy.accordion and precision=fp16",
        lambda run: run.policy.accordion.option is not None and run.precision == "fp16",
        _UNSEEN,
    ),
)
"""With exchange.placement=dedicated."""

BACKUP: tuple[Rule, ...] = (
    (
        "batch_norm=synchronised",
        lambda run: run.batch_norm == "synchronised",
        "workers would wait for the last one in every layer; valid is batch_norm=averaged or local",
    ),
    (
        "precision=fp16",
        lambda run: run.precision == "fp16",
        "all workers meet in every step to agree whether it is left out, so they would wait for the last one; valid is "
        "precision=bf16 or fp32",
    ),
)
"""With exchange.backup above 0."""

LINES = (
    "exchange.mode=asynchronous with exchange.placement=colocated, exchange.answer=compressed or exchange.backup: the "
    "server answers at once, with parameters, and waits for nobody",
    *(f"exchange.mode=asynchronous with {words}: {why}" for words, _, why in ASYNCHRONOUS),
    *(f"exchange.placement=dedicated with {words}: {why}" for words, _, why in DEDICATED),
    *(f"exchange.backup above 0 with {words}: {why}" for words, _, why in BACKUP),
)
"""The rules in words, for docs/reference/compatibility.md."""


def check(run: RunConfig) -> None:
    """Refuse what does not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    exchange = run.exchange
    found = [("exchange.mode=asynchronous", ASYNCHRONOUS)] if exchange.asynchronous else []
    if exchange.servers:
        found.append(("exchange.placement=dedicated", DEDICATED))
    if backup := getattr(exchange, "backup", 0):
        found.append((f"exchange.backup={backup}", BACKUP))
    for given, rules in found:
        for words, forbidden, why in rules:
            if forbidden(run):
                raise UsageError(f"{given} with {words}: {why}")
