"""Refuse runs whose parts do not go together, before anything starts."""

from __future__ import annotations

import dataclasses
import math

from gradsweep.errors import UsageError, bad_value
from gradsweep.parameters import InvalidParameter
from trainers.config.groups import name_of
from trainers.config.run_config import RunConfig
from trainers.options.datasets import DATASETS
from trainers.options.exchanges import Hierarchical, ParameterServer
from trainers.rules import decentralised, machine, phases, servers, training
from trainers.rules.compressors import _SINGLE_TENSORS, MEMORY_RULES, RULES, Together, _instead


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
