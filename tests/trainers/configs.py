"""Whole configs of runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainers.config import groups, run_config

NO_MOMENTUM = {"momentum": 0.0, "nesterov": False}


def compose_config(**changes: Any) -> dict[str, Any]:
    """A whole config with the defaults; `changes` name the part of a group (with its options) or a value."""
    parts = {
        "trainer": "sgd",
        "model": "mlp",
        "dataset": "digits",
        "task": "auto",
        "algorithm": "sgd",
        "topology": "ring",
        "optimizer": "sgd",
        "schedule": "constant",
        "exchange": "auto",
        "compressor": "none",
        "memory": "none",
        "network": "none",
    }
    found = dataclasses.asdict(run_config.RunConfig())
    for group, default in parts.items():
        given = changes.pop(group, {})
        given = {"name": given} if isinstance(given, str) else dict(given)
        name = given.setdefault("name", default)
        found[group] = {**dataclasses.asdict(groups.GROUPS[group][name]()), **given}
    for section, values in changes.items():
        found[section] = {**found[section], **values} if isinstance(values, dict) else values
    return found
