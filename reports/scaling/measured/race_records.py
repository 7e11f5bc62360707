"""Read the records of races on runs besides times: what a run sends, the setting of its exchange, the network.

A run of a sweep with race=only has no result of its own, so these records take its place (docs/guide/races.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gradsweep import run_directory
from gradsweep.files import read_json
from gradsweep.options.exchange_setting import find_tuned_run
from reports.reading.json_values import as_mapping, as_number
from reports.reading.text import format_setting
from reports.scaling.measured.collectives import COLLECTIVES
from reports.scaling.measured.run_labels import RunRow
from reports.scaling.measured.traffic import compute_growth

RESULT, SETTING = "result record", "exchange setting"
"""Keys of rows that `complete_row` adds."""


class ExchangeSetting(NamedTuple):
    """The setting of a run's exchange, as configured or as found by a trial (exchange=tuned).

    Attributes:
        part: the length of its parts, relative to the usual parts of few workers.
        allreduce: the algorithm of MPI's sums; empty: a ring.
        is_tuned: found by a trial, which might find another setting elsewhere.
        is_fixed: the config sets the length of parts for any number of workers.
    """

    overlap: bool
    part: float
    allreduce: str
    is_tuned: bool
    is_fixed: bool


def find_race(row: RunRow) -> run_directory.Run | None:
    """Return the directory of a run's race; None without a race."""
    name = row.get("race")
    if not isinstance(name, str) or not name:
        return None
    return run_directory.Run(Path(row["directory"]).parent.parent / run_directory.RACES / name)


def _read_ratios(row: RunRow, known: dict[Path, Mapping[str, Any]]) -> Mapping[str, Any]:
    race = find_race(row)
    if race is None:
        return {}
    path = race.path(run_directory.RATIOS)
    if path not in known:
        known[path] = read_json(path) or {}
    return known[path]


def _read_result(row: RunRow, ratios: Mapping[str, Any]) -> Mapping[str, Any]:
    own = run_directory.Run(Path(row["directory"])).result() or {}
    traffic = as_mapping(as_mapping(ratios.get("traffic")).get(str(row.get("raced_by"))))
    return {**own, **traffic, "network": own.get("network") or ratios.get("network")}


def _read_setting(row: RunRow, ratios: Mapping[str, Any], result: Mapping[str, Any]) -> ExchangeSetting:
    """Return the setting of the exchange with which a run's times were measured."""
    name = str(row.get("raced_by"))
    found = as_mapping(as_mapping(ratios.get("also_tuned")).get(name))
    if not found and name == find_tuned_run(ratios):
        found = as_mapping(ratios.get("tuned"))
    if not found and not ratios:
        found = as_mapping(result.get("tuned"))
    workers = int(row["workers"])
    if found:
        part = as_number(found.get("part_mib"))
        overlap = found.get("overlap") is True
        return ExchangeSetting(
            overlap, part if part > 0 else compute_growth(workers), _get_allreduce(found.get("allreduce")), True, False
        )
    typed = as_number(row.get("exchange.part_mib"))
    is_fixed = math.isfinite(typed) and typed > 0
    return ExchangeSetting(
        format_setting(row.get("exchange.overlap")) == "true",
        typed if is_fixed else compute_growth(workers),
        _get_allreduce(format_setting(row.get("exchange.allreduce"))),
        False,
        is_fixed,
    )


def _get_allreduce(name: Any) -> str:
    """Return the name of an algorithm of sums; empty if it is unknown."""
    return name if isinstance(name, str) and name in COLLECTIVES["allreduce"] else ""


def complete_row(row: RunRow, known_ratios: dict[Path, Mapping[str, Any]]) -> RunRow:
    """Return a row completed with RESULT and SETTING, and with the bytes, samples and parameters that its race
    measured.

    RESULT has the figures of result.json on a run's messages and network, preferably those of its race: `parameters`,
    `payload_bytes`, `sent_bytes`, `collectives_per_step`, `early_collectives_per_step`, `network` and `samples` (of a
    worker in a step), as far as they are known. SETTING is an ExchangeSetting.

    Args:
        known_ratios: the content of each ratios.json that was read before; what is read is added.
    """
    ratios = _read_ratios(row, known_ratios)
    result = _read_result(row, ratios)
    row = {**row, RESULT: result, SETTING: _read_setting(row, ratios, result)}
    if not ratios:
        return row
    known = {name: as_number(result.get(name)) for name in ("payload_bytes", "sent_bytes", "parameters")}
    if (samples := as_number(result.get("samples"))) > 0:
        known["samples_per_second"] = samples * int(row["workers"]) * as_number(row.get("iterations_per_second"))
    return {**row, **{name: value for name, value in known.items() if math.isfinite(value)}}
