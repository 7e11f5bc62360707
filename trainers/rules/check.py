"""Refuse runs whose options do not go together, before anything starts."""

from __future__ import annotations

import dataclasses
import math

from gradsweep import targets
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.parameters import InvalidParameter
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.options.datasets import DATASETS
from trainers.options.exchanges import Hierarchical, ParameterServer
from trainers.rules import compressors, decentralised, machine, phases, servers, training
from trainers.rules.compressors import Combination
from trainers.rules.rule import Condition, Rule, has, read, refuse

_SINGLE_TENSORS = "it looks at single tensors"
_TEXT = Condition("a data set of text", lambda run: run.dataset.kind == "text", "{dataset=}")
_NOT_BY_LAYER = has("exchange.granularity", "bucket", "model")

RULES = (
    Rule(
        Condition("policy.dense_1d", lambda run: run.policy.dense_1d),
        _NOT_BY_LAYER,
        _SINGLE_TENSORS,
        "exchange.granularity=layer",
    ),
    Rule(
        Condition("policy.patterns", lambda run: bool(run.policy.patterns)),
        _NOT_BY_LAYER,
        _SINGLE_TENSORS,
        "exchange.granularity=layer",
    ),
    Rule(
        has("partition.scheme", "label", "dirichlet"),
        _TEXT,
        "a text is not sorted into classes",
        "iid or contiguous, with which workers read beside each other alike",
    ),
    Rule(
        has("model", "lstm"),
        has("dataset.order", "windows"),
        "its state would go on from one text to another",
        "dataset.order=streams, or model=gpt",
    ),
    Rule(
        has("task", "classification"),
        _TEXT,
        "a text has a label at every position",
        "task=language, or auto",
    ),
    Rule(
        has("task", "language"),
        Condition("a data set that is no text", lambda run: run.dataset.kind not in ("text", "custom"), "{dataset=}"),
        "its labels are no words",
        "task=classification, or auto",
    ),
    Rule(
        has("exchange.tune", True),
        has("exchange.transport", "torch"),
        "torch.distributed chooses the algorithms itself",
        "exchange.transport=mpi, or exchange.tune=false",
    ),
)


LINES = (
    "exchange.mode=asynchronous with exchange.placement=colocated, exchange.answer=compressed or exchange.backup: the "
    "server answers at once, with parameters, and waits for nobody",
    "exchange.backup with as many workers as there are, or more: valid is one less at most",
    "batch.size or batch.accumulate with which a worker or a piece of its step has no sample",
    "a model that does not take what the data set has",
    "tokens with a data set that is no text, with phases, or with max_steps",
)
"""Descriptions of the checks that are no rules, for docs/reference/compatibility.md."""


def check_together(run: RunConfig) -> None:
    """Refuse a run whose options do not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    decentralised.check(run)
    training.check(run)
    refuse(run, servers.RULES)
    try:
        run.policy.check(run.compressor)
        run.policy.check_length(min(run.epochs, run.max_steps or run.epochs), run.max_steps)
    except InvalidParameter as error:
        raise bad_value(f"policy.{error.name}", error.value, error.valid, error.meant) from error
    # Hierarchical: one worker a node. If the hosts decide how many nodes there are, the most are the workers.
    inside = run.exchange.workers_per_node if isinstance(run.exchange, Hierarchical) else None
    combined = math.ceil(run.workers / (inside or 1))
    for compressor in (*run.policy.list_possible(run.compressor), *run.policy.list_variants(run.compressor)):
        try:
            dataclasses.replace(compressor).join(combined)
        except ValueError as error:
            raise UsageError(f"workers={run.workers} with compressor={compressor.name}: {error}") from error
        one = Combination(compressor, run.exchange, run.memory, run.algorithm)
        refuse(one, (*decentralised.COMPRESSOR_RULES, *compressors.RULES, *compressors.MEMORY_RULES))
        if (why := run.exchange.explain_unfit(compressor)) is not None:
            raise UsageError(f"compressor={compressor.name} with exchange={get_name(run.exchange)}: {why}")
    _check_targets(run)
    _check_fit(run)
    refuse(run, RULES)
    machine.check(run)
    _check_counts(run)
    phases.check(run)


def _check_targets(run: RunConfig) -> None:
    """Refuse own code without a name.

    Raises:
        UsageError: names the option.
    """
    for key in targets.KEYS:
        if read(run, key) == "":
            valid = targets.FORMS
            raise UsageError(
                f"{key}: missing with {key.partition('.')[0]}={read(run, key.partition('.')[0])}; valid is {valid}"
            )


def _check_counts(run: RunConfig) -> None:
    """Refuse counts that are too large for the number of workers or samples, such as exchange.backup.

    Raises:
        UsageError: names the option and what would work.
    """
    if isinstance(run.exchange, ParameterServer) and run.exchange.backup >= run.workers:
        valid = f"an integer from 0 to {run.workers - 1} with workers={run.workers}"
        raise bad_value("exchange.backup", run.exchange.backup, valid)
    if run.global_batch < run.workers:
        valid = f"at least workers={run.workers}, so that every worker has a sample"
        raise bad_value("batch.size", run.batch.size, valid)
    if run.batch.accumulate > run.global_batch // run.workers:
        valid = f"an integer up to the samples of a worker in a step ({run.global_batch // run.workers})"
        raise bad_value("batch.accumulate", run.batch.accumulate, valid)


def _check_fit(run: RunConfig) -> None:
    """Refuse a data set that does not fit the model; the user's own shows what it has when it is read.

    Raises:
        UsageError: names the combination and what would work.
    """
    takes = run.model.takes
    if run.dataset.kind not in (*takes, "custom"):  # what an own data set has is known when it is read
        fitting = [name for name, cls in DATASETS.items() if cls.kind in takes]
        raise UsageError(
            f"model={get_name(run.model)} with dataset={get_name(run.dataset)}: the model takes {' or '.join(takes)}, "
            f"the data set has {run.dataset.kind}; valid is dataset={','.join(fitting)}, or another model"
        )
