"""Label runs for the cost model by method, workload, network and batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.reading.text import format_setting

NETWORK = "network"
_BATCH = "batch"
_OF_METHOD = ("exchange", "memory", "algorithm", "topology", "policy")
_OF_WORK = ("model", "dataset")
_OF_MESSAGES = (
    *("exchange", "exchange.overlap", "exchange.part_mib", "exchange.allreduce", "exchange.tune"),
    *("exchange.granularity", "memory", "algorithm", "topology"),
)
_OF_REPETITION = frozenset(
    {"seed", "sweep", "run", "schedule", "epochs", "max_steps", _BATCH, "scaling", "clip", "partition", "measure_every"}
    | {"evaluate_every", "evaluate_every_steps", "tokens", "warmup_steps", "check_every"}
    | {"checkpoint", "mpi", "data", "trackers"}
)
"""Sections and keys of a config that do not change the compute and the messages of a step, and those of its samples."""

RunRow = Mapping[str, Any]
"""A run, by the columns of `Report.runs` and the keys of its config."""


def group_rows(rows: Sequence[RunRow], *keys: str) -> dict[tuple[Any, ...], list[RunRow]]:
    """Return runs grouped by their values of these keys."""
    found: dict[tuple[Any, ...], list[RunRow]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def name_runs(rows: Sequence[RunRow], keys: Sequence[str]) -> list[RunRow]:
    """Return the runs labelled with `method`, `workload`, `network` and `batch` (swept batch options, or empty)."""
    by_root = {key: key.partition(".")[0] for key in keys}
    told = [key for key, root in by_root.items() if root in _OF_METHOD]
    others = [key for key, root in by_root.items() if root not in (*_OF_METHOD, *_OF_REPETITION, NETWORK, "optimizer")]
    # Also keys that are not needed to tell runs apart, because they differ with the compressor or the workers.
    others = list(dict.fromkeys([*(key for key in _OF_WORK if _count_values(rows, key) > 1), *others]))
    of_label = group_rows(rows, "label").values()
    mixed = [key for key in _OF_MESSAGES if any(_count_values(group, key) > 1 for group in of_label)]
    told = list(dict.fromkeys([*mixed, *told]))
    batches = [key for key, root in by_root.items() if root == _BATCH]
    rows = [{**row, NETWORK: format_setting(row.get(NETWORK)) or "none"} for row in rows]
    telling = {}
    for (name,), group in group_rows(rows, NETWORK).items():
        options = [key for key in group[0] if str(key).startswith(f"{NETWORK}.")]
        always = [f"{NETWORK}.bandwidth", f"{NETWORK}.latency"] if name == "emulated" else []
        telling[name] = [
            key for key in options if key in always or len({format_setting(row[key]) for row in group}) > 1
        ]
    return [
        {
            **row,
            "method": " ".join([row["label"], *_format_settings(row, told)]),
            "workload": ", ".join(_format_settings(row, others)),
            "batch": ", ".join(_format_settings(row, batches)),
            NETWORK: " ".join([row[NETWORK], *_format_settings(row, telling[row[NETWORK]])]),
        }
        for row in rows
    ]


def _count_values(rows: Sequence[RunRow], key: str) -> int:
    return len({format_setting(row.get(key)) for row in rows})


def _format_settings(row: RunRow, keys: Sequence[str]) -> list[str]:
    shown = {f"{NETWORK}.bandwidth": "", f"{NETWORK}.latency": ""}  # their units make the keys superfluous
    return [
        f"{shown.get(key, key.removeprefix('network.') + '=')}{text}"
        for key in keys
        if (text := format_setting(row[key]))
    ]
