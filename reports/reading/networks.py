"""Read the records of runs on their network: its measurement before the first step, and failed emulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from gradsweep import run_directory
from gradsweep.options.units import format_bandwidth, format_time
from gradsweep.text import plural
from reports.reading.json_values import as_list, as_mapping, as_number
from reports.reading.text import clean, format_setting, format_settings, join_words


def collect_columns(network: Any) -> dict[str, Any]:
    """Return a run's values of the columns `network_*` from its result.json; none without a measured network."""
    network = as_mapping(network)
    found: dict[str, Any] = {}
    if problems := as_list(as_mapping(network.get("emulation")).get("problems")):
        found["network_problems"] = "; ".join(clean(str(problem)) for problem in problems)
    measured, marks = network.get("measured"), network.get("marks")
    if not isinstance(measured, Mapping) or not isinstance(marks, list):
        return found
    for column, key in (("network_latency_s", "latency_s"), ("network_bandwidth", "ring_bandwidth")):
        if math.isfinite(value := as_number(measured.get(key))):
            found[column] = value
    return found | {"network_off": "latency" in marks or "bandwidth" in marks, "network_cpu_limited": "cpu" in marks}


def write_remarks(runs: pd.DataFrame) -> list[str]:
    """Return remarks on the networks that could not be emulated as configured.

    Args:
        runs: `Report.runs`.
    """
    done = runs[(runs["status"] == run_directory.DONE) & runs["network_problems"].notna()]
    said = []
    for problems, found in done.groupby("network_problems", sort=False):
        names = list(dict.fromkeys(format_settings(found["network"]))) if "network" in found else []
        said.append(f"network={join_words(names) or '?'} ({plural(len(found), 'run')}): {problems}")
    return said


def format_network(latency: Any, bandwidth: Any) -> str:
    """Return `215us one way, 941mbit/s`; empty if nothing was measured."""
    if not format_setting(latency) or not format_setting(bandwidth):
        return ""
    return f"{format_time(latency)} one way, {format_bandwidth(bandwidth)}/s"
