"""Check a composed config and complete it before anything starts."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

from gradsweep.errors import UsageError
from gradsweep.run_directory import is_script
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig, build_member, parse
from trainers.models.regimes import find_regime
from trainers.options.datasets import PyDoc, Text
from trainers.options.exchanges import Auto
from trainers.options.optimizers import DGCSGD, ONE_BIT
from trainers.options.python_topics import hash_topics
from trainers.options.schedules import Regime
from trainers.options.topologies import Edges
from trainers.rules.check import check_together
from trainers.rules.compressors import choose_exchange
from trainers.rules.decentralised import BEFORE_GOSSIP
from trainers.rules.rule import refuse
from trainers.rules.scripts import resolve_script
from trainers.topology import edges


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """Check a composed config, replace its open choices, and return the content of config.yaml.

    `exchange=auto` becomes the exchange that suits the algorithm and the compressor. If the algorithm is not
    decentralised, the topology becomes `none`. topology=edges gets the links of its file. schedule=regime without
    phases gets those of the model. `tokens` becomes `max_steps`. optimizer=onebit_adam or onebit_lamb with
    `policy.start_step=1` gets a start_step after its warm-up. dataset=pydoc gets the SHA-256 of this Python's text. A
    config with trainer=script loses the options of our training (scripts.py).

    Raises:
        UsageError: a value out of range, or parts that do not go together.
    """
    if is_script(config):
        return resolve_script(config)
    resolved = dict(config)  # what changes is replaced: the points of a sweep share the sections that are equal

    def decide(section: str, key: str, value: Any) -> None:
        resolved[section] = {**resolved[section], key: value}

    run = parse(resolved)
    if run.tokens is not None:
        resolved["max_steps"] = _count_steps(run, run.tokens)
        run = parse(resolved)
    if isinstance(run.dataset, PyDoc) and run.dataset.sha256 is None:
        decide("dataset", "sha256", hash_topics())
    if isinstance(run.schedule, Regime) and not run.schedule.phases:
        decide("schedule", "phases", _take_phases(run))
    if get_name(run.optimizer) in ONE_BIT and run.policy.start_step == 1:
        decide("policy", "start_step", run.optimizer.freeze_steps + 1)
    if any(resolved[section] is not config[section] for section in ("dataset", "schedule", "policy")):
        run = parse(resolved)
    resolved["topology"] = _complete_topology(run, resolved["topology"])
    resolved["exchange"] = _choose_exchange(run, resolved["exchange"])
    changed = [section for section in ("topology", "exchange") if resolved[section] is not config[section]]
    if changed:
        run = dataclasses.replace(run, **{section: build_member(section, resolved[section]) for section in changed})
    check_together(run)
    decide("data", "root", os.path.abspath(run.data.root))
    return resolved


def _count_steps(run: RunConfig, tokens: int) -> int:
    """Return the number of steps in which all workers together read this many tokens, rounded up.

    Raises:
        UsageError: the data set is no text, or the run has another end.
    """
    if not isinstance(run.dataset, Text):
        described = f"tokens={tokens} with dataset={get_name(run.dataset)}"
        raise UsageError(f"{described}: its samples are no text; valid is max_steps, or a data set of text")
    steps = math.ceil(tokens / (run.global_batch * run.dataset.bptt))
    if run.max_steps not in (None, steps):  # a resolved config has both
        raise UsageError(f"max_steps={run.max_steps} with tokens={tokens}: both end the run; valid is one of the two")
    if run.phases:
        raise UsageError(f"tokens={tokens} with phases: their steps have other numbers of tokens; valid is max_steps")
    return steps


def _take_phases(run: RunConfig) -> list[dict[str, Any]]:
    """Return the phases of the model's regime for the data set, restricted to options that the optimizer has.

    With memory=dgc, they have no momentum, because the memory applies it.

    Raises:
        UsageError: the model has no regime for the data set.
    """
    phases = find_regime(run.model, get_name(run.dataset))
    if not phases:
        described = f"model={get_name(run.model)} brings no regime for dataset={get_name(run.dataset)}"
        raise UsageError(f"schedule=regime: {described}; valid is schedule.phases=[{{epoch: 0, lr: 0.1}}, ...]")
    options = {"epoch", "lr", *(field.name for field in dataclasses.fields(run.optimizer))}
    if get_name(run.memory) == "dgc" and not isinstance(run.optimizer, DGCSGD):
        options.discard("momentum")
    return [
        {key: value for key, value in dataclasses.asdict(phase).items() if key in options and value is not None}
        for phase in phases
    ]


def _complete_topology(run: RunConfig, section: dict[str, Any]) -> dict[str, Any]:
    """Return the section `topology` with the links of its file.

    If the algorithm is not decentralised, the section becomes `none`, so that runs that differ only in an unused
    topology are the same run.
    """
    if not run.decentralised:
        return {"name": "none"}
    if isinstance(run.topology, Edges) and not run.topology.links:
        return {**section, "links": edges.read(run.topology.file)}
    return section


def _choose_exchange(run: RunConfig, section: dict[str, Any]) -> dict[str, Any]:
    """Return the section `exchange` with a concrete exchange in place of `auto`.

    Raises:
        UsageError: the algorithm is decentralised, and the section has options that neighbours cannot use.
    """
    if not isinstance(run.exchange, Auto):
        return section
    if run.decentralised:
        refuse(run, BEFORE_GOSSIP)
        return {
            "name": "gossip",
            **{key: section[key] for key in ("granularity", "bucket_mib", "overlap", "transport")},
        }
    return {**section, "name": choose_exchange(run.policy.list_possible(run.compressor))}
