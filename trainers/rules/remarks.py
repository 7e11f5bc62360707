"""Remarks on options that go together but cost accuracy, for the start of a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gradsweep.run_directory import is_script
from trainers.config.groups import build_member
from trainers.options.algorithms import ALGORITHMS, Decentralised


def describe_lost_errors(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line if compressors of these resolved configs need error feedback and have memory=none.

    Decentralised algorithms have no memory: those for biased compressors keep the errors themselves.
    """
    seen: dict[str, Mapping[str, Any]] = {}
    for config in configs:
        if is_script(config) or config["memory"]["name"] != "none":
            continue
        cls = ALGORITHMS.get(config["algorithm"]["name"])
        if cls is None or not issubclass(cls, Decentralised):
            seen.setdefault(json.dumps(config["compressor"], sort_keys=True), config["compressor"])
    lost = [options["name"] for options in seen.values() if build_member("compressor", options).needs_memory]
    if not lost:
        return []
    names = ",".join(dict.fromkeys(lost))
    return [
        f"compressor={names} with memory=none: biased, and the errors are lost, which costs accuracy; "
        "memory=residual adds them to the next gradient (error feedback)"
    ]
