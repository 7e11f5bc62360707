"""The signature of a run: two runs with the same signature compute the same, wherever they run."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

NOT_IN_SIGNATURE = (
    *("sweep", "race", "mpi", "launcher", "data", "checkpoint", "gpus", "gpus_per_node", "trackers", "plugins"),
)
"""Keys of a config that say where and how a run is made, not what it computes: not in its signature."""

ADDED: Mapping[str, Any] = {
    **{"network": {"name": "none"}, "trainer": {"name": "sgd"}, "task": {"name": "auto"}},
    **{"tokens": None, "evaluate_every_steps": None},
}
"""Sections and keys that configs of earlier versions lack, and what these mean by that: such a section is not in a
signature, so that runs are still the runs that they were."""

ADDED_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "exchange": {"part_mib": None, "allreduce": None, "tune": False},
    "schedule": {"warmup_steps": None, "final": None},
    "optimizer": {"groups": []},
    "dataset": {"order": "streams", "test_windows": None, "tokens": "words"},
    "memory": {"decay": 1.0, "gradient_weight": 1.0, "double_momentum": False},
    "policy": {"lgreco": {"option": None, "values": [], "interval": 50, "factor": 1.0}},
    "compressor": {"scale": "l1", "zeros": "coin", "mean": "all", "aggregate": "vote"},
    "algorithm": {"fragments": 1, "delay": 0, "mixing": 0.0, "average": "mean"},
}
"""By section, options that configs of earlier versions lack, and their values for these: an option with that value is
not in a signature, either."""

ADDED_TO: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("exchange", name): {"transport": "mpi"} for name in ("gossip", "hierarchical", "parameter_server", "sharded")
}
"""The same by section and choice, of options that earlier versions had for other choices only."""

PLACES = ("trainer.directory",)
"""Options, dotted, that say where a run is made, in sections that are in a signature: these options are not."""

DECIDING = {"mpi": {"transport": "shm"}}
"""By section of `NOT_IN_SIGNATURE`, keys that are in a signature after all, and what configs mean that lack them: a key
with that value is not in a signature, either."""


def signature(config: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of those keys of a resolved config that determine the numbers of a run."""
    return signature_of_sections({key: canonical(value) for key, value in config.items()})


def canonical(value: Any) -> str:
    """Return the value of a config in a unique JSON form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fill_added(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with the sections and options that configs of earlier versions lack, with their values then.

    So runs of earlier versions and of this one compare by what they compute.
    """
    filled = {**ADDED, **config}
    for section in (*ADDED_OPTIONS, *DECIDING):
        if isinstance(values := filled.get(section), Mapping):
            filled[section] = {**(DECIDING.get(section) or _list_added(section, values)), **values}
    return filled


def _list_added(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a section that earlier versions lacked, with their values then."""
    return {**ADDED_OPTIONS[section], **ADDED_TO.get((section, str(values.get("name"))), {})}


def signature_of_sections(sections: Mapping[str, str]) -> str:
    """Return the signature of a config, given its values by key in `canonical` form."""
    kept = {key: text for key, text in sections.items() if key not in NOT_IN_SIGNATURE and text != _ADDED.get(key)}
    for section in ADDED_OPTIONS.keys() & kept.keys():
        kept[section] = _drop_added(section, kept[section])
    for section in {place.partition(".")[0] for place in PLACES} & kept.keys():
        kept[section] = _drop_places(section, kept[section])
    for section in DECIDING.keys() & sections.keys():
        kept.update(_select_deciding(section, sections[section]))
    text = ",".join(f"{canonical(key)}:{kept[key]}" for key in sorted(kept))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


@functools.cache  # most runs of a sweep have the same section
def _drop_added(section: str, text: str) -> str:
    """Return a section without options that earlier versions lacked, unless their values change what is computed."""
    values = json.loads(text)
    if not isinstance(values, dict) or (added := _list_added(section, values)).keys().isdisjoint(values):
        return text
    return canonical({key: value for key, value in values.items() if key not in added or value != added[key]})


@functools.cache
def _drop_places(section: str, text: str) -> str:
    """Return a section without the options in `PLACES`."""
    values = json.loads(text)
    if not isinstance(values, dict):
        return text
    return canonical({key: value for key, value in values.items() if f"{section}.{key}" not in PLACES})


@functools.cache
def _select_deciding(section: str, text: str) -> dict[str, str]:
    """Return the `DECIDING` keys of a section, dotted, whose values differ from what earlier versions did."""
    given = json.loads(text)
    values = given if isinstance(given, dict) else {}
    found = {key: values.get(key) for key, before in DECIDING[section].items() if values.get(key) not in (None, before)}
    return {f"{section}.{key}": canonical(value) for key, value in found.items()}


_ADDED = {key: canonical(value) for key, value in ADDED.items()}
