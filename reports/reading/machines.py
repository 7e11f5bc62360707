"""Describe the machines of runs: their kind and speed, whether all are equal, and whether others disturbed the runs.

Whether a run was disturbed is judged by its yardstick and by the best reading of its sweep on the same host
(`gradsweep.disturbance`), so all runs and races of the sweep must have been read before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gradsweep import disturbance, run_directory
from gradsweep.text import plural
from reports.reading.json_values import as_list, as_mapping, as_number
from reports.reading.text import clean, format_number, join_words

RATES = {
    "matmul_gflop_s": "GFLOP/s of a product of matrices",
    "copy_gb_s": "GB/s of a copy",
    "loop_mops": "million rounds/s of a loop",
}
"""The columns of a calibration (docs/guide/provenance.md), with their meanings."""
YARDSTICK = "(yardstick)"  # with brackets, which no config key has
"""The key of a run's yardstick in its row, until it is judged."""
RATIO_YARDSTICK = "(yardstick of the ratio)"
"""The same of the yardstick of the heat that has measured the run's ratio."""
ALIKE = 1.5
"""The ratio of rates up to which machines pass for equally fast; on a shared machine it is never 1."""


def collect_columns(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a run's values of the columns `cpu`, `gpu` and RATES (measured speeds of the machine).

    Args:
        records: provenance.json of the attempts from which its figures come. The rates are those of the last attempt;
            if it had several nodes, each rate is that of the slowest node, for which the others wait.
    """
    nodes = [node for record in records for node in run_directory.nodes_of(record)]
    found: dict[str, Any] = {
        "cpu": _join_words(as_mapping(node.get("cpu")).get("model") for node in nodes),
        "gpu": _join_words(gpu for node in nodes for gpu in as_list(node.get("gpus"))),
    }
    calibrations = [
        as_mapping(node.get("calibration")) for record in records[-1:] for node in run_directory.nodes_of(record)
    ]
    for name in RATES:
        if rates := [rate for each in calibrations if (rate := as_number(each.get(name))) > 0]:
            found[name] = min(rates)
    return found


def judge_row(row: Mapping[str, Any], best: Mapping[str, float]) -> dict[str, Any]:
    """Return a row of `Report.runs`, or a race's figures of a run, with columns on disturbance for its yardstick.

    They are None if it is not known whether others disturbed it.

    Args:
        best: the best reading of the sweep on each host, in seconds (`disturbance.find_best`).
    """
    found = {key: value for key, value in row.items() if key not in (YARDSTICK, RATIO_YARDSTICK)}
    is_disturbed, reason, drift, others = _judge(row.get(YARDSTICK), best)
    found |= {"disturbed": is_disturbed, "disturbance": reason, "drift": drift, "cores_of_others": others}
    if RATIO_YARDSTICK in row:
        is_disturbed, _, _, others = _judge(row[RATIO_YARDSTICK], best)
        found |= {"ratio_disturbed": is_disturbed, "ratio_cores_of_others": others}
    return found


def _judge(yardstick: Any, best: Mapping[str, float]) -> tuple[bool | None, str | None, float | None, float | None]:
    """Return whether a yardstick is that of a disturbed run, how in words, the drift, and the share of others."""
    best_s = disturbance.choose_best(yardstick, best)
    drift, others = disturbance.compute_drift(yardstick, best_s), disturbance.get_share_of_others(yardstick)
    reason = disturbance.explain_disturbed(yardstick, best_s)
    return None if drift is None and others is None else reason is not None, reason, drift, others


def write_remarks(runs: pd.DataFrame) -> list[str]:
    """Return remarks on differences between machines that make times incomparable; none without differences.

    Args:
        runs: `Report.runs`; those that are not done have no figures in a table.
    """
    done = runs[runs["status"] == run_directory.DONE]
    said = []
    kinds = done[["cpu", "gpu"]].dropna(how="all").fillna("")
    if len(kinds.drop_duplicates()) > 1:
        sizes = kinds.value_counts(sort=False).sort_index()
        names = [f"{' with '.join(filter(None, kind))} ({plural(size, 'run')})" for kind, size in sizes.items()]
        said.append(f"made on different machines, so it/s and times of these are not comparable: {join_words(names)}")
    spread = {rate: done[rate].max() / done[rate].min() for rate in RATES if done[rate].notna().any()}
    worst = max(spread, key=lambda rate: spread[rate], default=None)
    if worst is not None and spread[worst] > ALIKE:
        low, high = (format_number(float(value), 3) for value in (done[worst].min(), done[worst].max()))
        said.append(
            f"calibrated {format_number(float(spread[worst]), 2)} times as fast in some runs as in others "
            f"({low} to {high} {RATES[worst]} of a core), so it/s and times are comparable to that extent only"
        )
    return said


def _join_words(words: Any) -> str | None:
    return (
        "; ".join(sorted({clean(str(word)) for word in words if word})) or None
    )  # in an order that does not depend on which node is first
