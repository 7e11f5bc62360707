"""Find compressors that lose their errors, since they have no memory (error feedback)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gradsweep.run_directory import is_script
from trainers.config.run_config import parse
from trainers.options.algorithms import Decentralised
from trainers.rules.rule import read


def find_lost_errors(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the compressors in these resolved configs that need error feedback and have memory=none.

    Decentralised algorithms and radial-directional averages have no memory.
    """
    different = {
        json.dumps([config[key] for key in ("compressor", "policy", "algorithm")], sort_keys=True): config
        for config in configs
        if not is_script(config) and config["memory"]["name"] == "none"
    }
    runs = [parse(config) for config in different.values()]
    lost = [
        compressor.name
        for run in runs
        if not isinstance(run.algorithm, Decentralised) and read(run, "algorithm.average") != "radial_directional"
        for compressor in run.policy.list_possible(run.compressor)
        if compressor.needs_memory
    ]
    return list(dict.fromkeys(lost))
