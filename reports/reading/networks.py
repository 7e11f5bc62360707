"""Read what runs recorded on their network: its measurement before the first step, failed emulation, and transport."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gradsweep import run_directory
from gradsweep.options.units import format_bandwidth, format_time, spell_quantities
from gradsweep.text import plural
from reports.reading.json_values import as_list, as_mapping, as_number
from reports.reading.text import clean, format_setting, format_settings, join_words

_TCP = "tcp"
_ASKED = "mpi.transport"


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


def collect_transport(transport: Any) -> dict[str, Any]:
    """Return the columns `transport` and `slow_transport` from a run's record in result.json; none without a record."""
    transport = as_mapping(transport)
    if not (over := [clean(str(each)) for each in as_list(transport.get("over"))]):
        return {}
    layer = clean(str(transport.get("layer") or "MPI"))
    slow = _TCP in over and bool(as_list(transport.get("faster")))
    return {"transport": f"{layer} over {' and '.join(over)}", "slow_transport": slow}


def collect_tuned(tuned: Any) -> dict[str, Any]:
    """Return the columns of a tuned setting from `tuned` of result.json or ratios.json; without it, empty values."""
    found = as_mapping(tuned)
    overlap, allreduce = found.get("overlap"), found.get("allreduce")
    return {
        "tuned_overlap": overlap if isinstance(overlap, bool) else None,
        "tuned_part_mib": as_number(found.get("part_mib")) if found else math.nan,
        "tuned_allreduce": clean(allreduce) if isinstance(allreduce, str) else None,
    }


def find_networked(runs: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Tell for each run of `Report.runs` whether its workers exchange messages over an emulated or a real network."""
    if "network" not in runs:
        return np.zeros(len(runs), bool)
    return np.array([name not in ("", "none") for name in format_settings(runs["network"])], bool)


def write_remarks(runs: pd.DataFrame) -> list[str]:
    """Return remarks on the networks that could not be emulated as configured, and on runs with different transports.

    Args:
        runs: `Report.runs`.
    """
    done = runs[(runs["status"] == run_directory.DONE) & runs["network_problems"].notna()]
    said = []
    for problems, found in done.groupby("network_problems", sort=False):
        names = list(dict.fromkeys(format_settings(found["network"]))) if "network" in found else []
        said.append(f"network={join_words(names) or '?'} ({plural(len(found), 'run')}): {problems}")
    return [*said, *_write_transport_remarks(runs)]


def _write_transport_remarks(runs: pd.DataFrame) -> list[str]:
    """Return a remark if runs with one `mpi.transport` got different transports, which makes times incomparable."""
    done = runs[((runs["status"] == run_directory.DONE) | runs["raced_by"].notna()) & runs["transport"].notna()]
    asked = done[_ASKED].astype("string").fillna("?") if _ASKED in done else pd.Series("?", done.index, dtype="string")
    said = []
    for name, found in done.groupby(asked, sort=False):
        counts = found["transport"].value_counts(sort=False).sort_index()
        if len(counts) > 1:
            words = join_words([f"{transport} ({plural(count, 'run')})" for transport, count in counts.items()])
            given = "" if name == "?" else f" with {_ASKED}={name}"
            said.append(f"messages went by different ways{given}, so times of these are not comparable: {words}")
    return said


def format_network(latency: Any, bandwidth: Any) -> str:
    """Return a network as a text such as `215 µs one way, 941 Mbit/s`; empty if nothing was measured."""
    if not format_setting(latency) or not format_setting(bandwidth):
        return ""
    return spell_quantities(f"{format_time(latency)} one way, {format_bandwidth(bandwidth)}")
