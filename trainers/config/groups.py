"""The parts of a run that are chosen by name."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import compressors
from compressors import memories
from gradsweep import plugins
from gradsweep.options import config_keys
from gradsweep.plugins import Members
from trainers.options.algorithms import ALGORITHMS
from trainers.options.datasets import DATASETS, Dataset
from trainers.options.exchanges import EXCHANGES, Exchange
from trainers.options.models import MODELS, Model
from trainers.options.networks import NETWORKS
from trainers.options.optimizers import OPTIMIZERS
from trainers.options.schedules import SCHEDULES, Schedule
from trainers.options.tasks import TASKS
from trainers.options.topologies import TOPOLOGIES, Topology
from trainers.options.trainers import TRAINERS

GROUPS: dict[str, Mapping[str, type]] = {
    "trainer": TRAINERS,
    "model": Members("model", MODELS, Model, ("build",)),
    "dataset": Members("dataset", DATASETS, Dataset, ("kind", "build")),
    "task": TASKS,
    "algorithm": ALGORITHMS,
    "topology": Members("topology", TOPOLOGIES, Topology, ("build_graph",)),
    "optimizer": OPTIMIZERS,
    "schedule": Members("schedule", SCHEDULES, Schedule, ("factor",)),
    "exchange": Members("exchange", EXCHANGES, Exchange, ("build",)),
    "compressor": compressors.registry(),
    "memory": memories.REGISTRY,
    "network": NETWORKS,
}
"""The parts of a run that are chosen by name: a directory in conf/, a mapping with `name` in a config."""

_OURS = {
    cls: name
    for group in GROUPS.values()
    for name, cls in (group.ours if isinstance(group, Members) else group).items()
}
NAMES: Mapping[type, str] = ChainMap(_OURS, plugins.NAMES)
"""The name of every class in GROUPS."""


def get_name(part: Any) -> str:
    """Return the name by which a config chooses this part, such as `qsgd` for a QSGD."""
    return NAMES[type(part)]


def flatten_options(config: Any) -> dict[str, Any]:
    """Return all options of a RunConfig by dotted key, with plain values; the value of a group is the chosen name."""
    options: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in GROUPS:
            options[field.name] = get_name(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            options |= config_keys.flatten(dataclasses.asdict(value), f"{field.name}.")
        else:
            options[field.name] = value
    return options
