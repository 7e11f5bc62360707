"""The signature of a run: two runs with the same signature compute the same, wherever they run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

NOT_IN_SIGNATURE = ("sweep", "race", "mpi", "launcher", "data", "checkpoint", "gpus", "gpus_per_node", "trackers")
"""Keys of a config that say where and how a run is made, not what it computes: not in its signature."""

ADDED = {"network": {"name": "none"}}
"""Sections that configs of earlier versions lack, and what these mean by that: such a section is not in a signature,
so that runs are still the runs that they were."""


def signature(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a resolved config without `NOT_IN_SIGNATURE`, in hex."""
    return signature_of_sections({key: canonical(value) for key, value in config.items()})


def canonical(value: Any) -> str:
    """Return the value of a config in a unique JSON form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def signature_of_sections(sections: Mapping[str, str]) -> str:
    """Return the signature of a config, given its values by key in `canonical` form."""
    kept = [key for key in sections if key not in NOT_IN_SIGNATURE and sections[key] != _ADDED.get(key)]
    text = ",".join(f"{canonical(key)}:{sections[key]}" for key in sorted(kept))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


_ADDED = {key: canonical(value) for key, value in ADDED.items()}
