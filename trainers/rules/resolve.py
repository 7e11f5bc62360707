"""Check a composed config and complete it: what a run is before anything starts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from compressors.base import Cooperative
from gradsweep.errors import UsageError
from trainers.config.groups import name_of
from trainers.config.run_config import RunConfig, build_member, parse
from trainers.models.regimes import regime
from trainers.options.exchanges import Auto
from trainers.options.optimizers import DGCSGD, OneBitAdam
from trainers.options.schedules import Regime
from trainers.options.topologies import Edges
from trainers.rules.check import check_together
from trainers.rules.decentralised import check_transport
from trainers.topology import edges

_PHASE = ("epoch", "lr", "momentum", "weight_decay")


def _model_phases(run: RunConfig) -> list[dict[str, Any]]:
    """The phases that the model brings along for the data set, as far as the optimizer has these options.

    With memory=dgc, which has the momentum, they have none.

    Raises:
        UsageError: the model brings none.
    """
    found = regime(run.model, name_of(run.dataset))
    if not found:
        described = f"model={name_of(run.model)} brings no regime for dataset={name_of(run.dataset)}"
        raise UsageError(f"schedule=regime: {described}; valid is schedule.phases=[{{epoch: 0, lr: 0.1}}, ...]")
    options = {"lr", *(field.name for field in dataclasses.fields(run.optimizer))}
    if name_of(run.memory) == "dgc" and not isinstance(run.optimizer, DGCSGD):
        options.discard("momentum")
    phases = []
    for phase in found:
        given = {key: value for key, value in dataclasses.asdict(phase).items() if key in _PHASE and value is not None}
        phases.append({key: value for key, value in given.items() if key == "epoch" or key in options})
    return phases


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """Check a composed config and settle what it leaves open; returns what config.yaml will say.

    `exchange=auto` becomes the exchange that suits the algorithm and the compressor; without a decentralised algorithm,
    the topology is none; links that a file has are read; a regime without phases gets those of the model;
    1-bit Adam, with `policy.start_step=1`, is dense until it freezes.

    Raises:
        UsageError: a value out of range, or parts that do not go together.
    """
    resolved = dict(config)  # what changes is replaced: the points of a sweep share the sections that are equal

    def settle(section: str, key: str, value: Any) -> None:
        resolved[section] = {**resolved[section], key: value}

    run = parse(resolved)
    if isinstance(run.schedule, Regime) and not run.schedule.phases:
        settle("schedule", "phases", _model_phases(run))
    if isinstance(run.optimizer, OneBitAdam) and run.policy.start_step == 1:
        settle("policy", "start_step", run.optimizer.freeze_steps + 1)
    if any(resolved[section] is not config[section] for section in ("schedule", "policy")):
        run = parse(resolved)
    for section, settling in (("topology", _topology), ("exchange", _exchange)):
        resolved[section] = settling(run, resolved[section])
        if resolved[section] is not config[section]:
            run = dataclasses.replace(run, **{section: build_member(section, resolved[section])})
    check_together(run)
    settle("data", "root", os.path.abspath(run.data.root))
    return resolved


def _topology(run: RunConfig, section: dict[str, Any]) -> dict[str, Any]:
    if not run.decentralised:  # so that what does not matter makes no other run of it
        return {"name": "none"}
    if isinstance(run.topology, Edges) and not run.topology.links:
        return {**section, "links": edges.read(run.topology.file)}
    return section


def _exchange(run: RunConfig, section: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(run.exchange, Auto):
        return section
    if run.decentralised:
        check_transport(run)
        return {"name": "gossip", **{key: section[key] for key in ("granularity", "bucket_mib", "overlap")}}
    sums = {one.summable or isinstance(one, Cooperative) for one in run.policy.possible(run.compressor)}
    return {**section, "name": "mixed" if len(sums) == 2 else "allreduce" if sums == {True} else "allgather"}
