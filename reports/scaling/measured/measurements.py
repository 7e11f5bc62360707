"""Group the measurements of a sweep's finished runs into cells, for the cost model.

A cell is a method with one number of workers, network and batch. Runs that differ only in their seed, learning rate and
the like are repetitions of it; the cell has their median. Runs that others disturbed or that shared their cores are not
used. Runs with few timed steps are used, since the fit weighs many cells against each other. The model itself covers
more workers than cores, measured networks, and networks on which the CPUs were the limit.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gradsweep import csv_columns, errors, run_directory
from gradsweep.options import units
from reports.analysis.grid import lay_out_runs
from reports.analysis.remarks import explain_settings
from reports.analysis.table import count_marked, is_marked
from reports.reading.json_values import as_list, as_mapping
from reports.reading.text import format_setting
from reports.scaling.measured import missing_runs, race_records
from reports.scaling.measured.cell import MeasuredCell, RacedRatio
from reports.scaling.measured.links import MEMORY, PAYLOAD_SHARE, Links, read_links, take_median
from reports.scaling.measured.race_records import RESULT, SETTING
from reports.scaling.measured.run_labels import NETWORK, RunRow, group_rows, name_runs
from reports.scaling.measured.traffic import CountedTraffic, Gradient, Traffic, infer_traffic

_NOT_USED, _FEW = ("shared_cores", "disturbed"), ("few_steps",)
"""Columns of `Report.runs` that mark runs which are left out, and runs which are used but mentioned."""
_BASE = "baseline method"
"""Key of rows: the method of the baseline of their race."""


@dataclasses.dataclass(frozen=True)
class Measurements:
    """The measurements that the cost model is fitted to.

    Attributes:
        traffic: the messages of each method, by workload and method.
        compressors: the compressor's name of each method.
        left_out: the methods that are not modelled, with the reasons, a line each.
        rows: the runs of each cell, by the cell's key.
        remarks: further notes for the reader, a line each.
    """

    cells: Sequence[MeasuredCell]
    traffic: Mapping[tuple[str, str], Traffic]
    compressors: Mapping[str, str]
    left_out: Sequence[str]
    rows: Mapping[tuple[Any, ...], Sequence[RunRow]]
    remarks: Sequence[str] = ()

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(cell.workload for cell in self.cells))

    def list_methods(self, workload: str) -> list[str]:
        """Return the methods in the order of the tables."""
        return list(dict.fromkeys(cell.method for cell in self.cells if cell.workload == workload))

    def select_cells(self, workload: str, method: str) -> list[MeasuredCell]:
        return [cell for cell in self.cells if (cell.workload, cell.method) == (workload, method)]

    @property
    def networks(self) -> list[Links]:
        """The links of each measured network: their median over its cells in which the CPUs were not the limit.

        Shared memory within a machine is not among them.
        """
        return self._take_medians(
            [(cell.network, cell.links) for cell in self.cells if cell.is_fair and cell.links.beta]
        )

    @property
    def promised(self) -> list[Links]:
        """The configured links of those networks on which the CPUs were the limit in all measurements."""
        there = {one.name for one in self.networks}
        return self._take_medians(
            [(cell.network, cell.expected) for cell in self.cells if cell.expected and cell.network not in there]
        )

    @property
    def limited(self) -> list[str]:
        """The networks in all of whose runs the CPUs were the limit."""
        fair = {cell.network for cell in self.cells if cell.is_fair}
        return list(dict.fromkeys(cell.network for cell in self.cells if cell.network not in fair))

    @staticmethod
    def _take_medians(found: Sequence[tuple[str, Links]]) -> list[Links]:
        names = dict.fromkeys(name for name, _ in found)
        return [take_median(name, [links for other, links in found if other == name]) for name in names]

    def infer_traffic(self, cells: Sequence[MeasuredCell]) -> dict[tuple[str, str], Traffic]:
        """Return the traffic inferred from the runs of these cells only; methods without such runs are left out."""
        rows = group_rows([row for cell in cells for row in self.rows[cell.key]], "workload", "method")
        return {key: found for key, group in rows.items() if isinstance(found := _infer_traffic(group), Traffic)}


def read_measurements(runs: pd.DataFrame, swept: Sequence[str] = (), command: str = "") -> Measurements:
    """Return the measurements of the finished runs among `Report.runs`.

    Args:
        swept: the keys that were swept, as far as they are known.
        command: the command of the sweep, to suggest further runs.

    Raises:
        gradsweep.errors.UsageError: no run has finished, or all have the same number of workers.
    """
    counts = pd.to_numeric(runs["workers"], errors="coerce") if "workers" in runs else pd.Series(math.nan, runs.index)
    has_ended = runs["status"] == run_directory.DONE
    if "race" in runs:
        has_ended |= runs["race"].notna()  # with race=only nothing else ends
    done = runs[has_ended & runs["step_s"].notna() & (counts >= 1)]
    if done.empty:
        raise errors.UsageError(f"scaling: none of {len(runs)} runs has finished with a measured step; nothing to fit")
    spoilt = is_marked(done, _NOT_USED)
    if spoilt.all():
        raise errors.UsageError(
            f"scaling: the times of all finished runs tell nothing: {count_marked(done, _NOT_USED)}; run them once "
            "more with cores of their own"
        )
    grid = lay_out_runs(done[~spoilt], swept)
    ratios: dict[Path, Mapping[str, Any]] = {}
    rows = [race_records.complete_row(row, ratios) for row in name_runs(grid.runs.to_dict("records"), grid.keys)]
    methods = {(row["sweep"], row["run"]): row["method"] for row in rows}
    rows = [{**row, _BASE: methods.get((row["sweep"], row.get("race_baseline")), "")} for row in rows]
    there = sorted({int(row["workers"]) for row in rows})
    if sum(count > 1 for count in there) < 2:
        raise errors.UsageError(
            f"scaling: all finished runs have workers={missing_runs.join_counts(there)}, but what more workers do is "
            f"told by two numbers above 1; run {missing_runs.suggest_command(command, there)} and give both directories"
        )
    by_key = group_rows(rows, "workload", "method", NETWORK, "workers", "batch")
    found = {cell.key: cell for group in by_key.values() if (cell := _make_cell(group)) is not None}
    reasons: dict[str, list[str]] = {}
    traffic: dict[tuple[str, str], Traffic] = {}
    for (workload, method), group in group_rows(rows, "workload", "method").items():
        sent = _infer_traffic(group)
        own = [cell for cell in found.values() if (cell.workload, cell.method) == (workload, method)]
        reason = sent if isinstance(sent, str) else missing_runs.explain_too_few(own)
        if reason:
            reasons.setdefault(reason, []).append(method)
        elif isinstance(sent, Traffic):
            traffic[workload, method] = sent
    left_out = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    if not traffic:
        raise errors.UsageError(f"scaling: no method is left with two numbers of workers: {'; '.join(left_out)}")
    cells = [cell for cell in found.values() if (cell.workload, cell.method) in traffic]
    remarks = [*missing_runs.describe_graphs(rows, traffic), *explain_settings(grid.runs)]
    if spoilt.any():
        remarks.append(f"not used: {count_marked(done[spoilt], _NOT_USED)} of {len(done)}")
    if is_marked(done[~spoilt], _FEW).any():
        remarks.append(f"used all the same: {count_marked(done[~spoilt], _FEW)}")
    compressors = {row["method"]: format_setting(row["compressor"]) for row in rows}
    return Measurements(cells, traffic, compressors, left_out, by_key, remarks)


def _infer_traffic(group: Sequence[RunRow]) -> Traffic | str:
    counted = []
    setting = group[0][SETTING]
    for (workers,), same in sorted(group_rows(group, "workers").items()):
        telling = _choose_counted(same)
        setting = telling[SETTING]
        sizes = _average(same, "payload_bytes"), _average(same, "sent_bytes")
        counted.append(CountedTraffic(int(workers), *sizes, *_read_calls(telling)))
    first = group[0]
    topology = format_setting(first.get("topology"))
    if topology == "star":
        return "topology=star is not in the cost model: its hub has as many messages as there are workers"
    if any(_to_number(first.get(f"algorithm.{option}")) > bound for option, bound in (("fragments", 1), ("delay", 0))):
        return "algorithm.fragments and algorithm.delay are not in the cost model"
    if format_setting(first.get("optimizer")) == "zero_one_adam":
        return "optimizer=zero_one_adam, whose rounds change, is not in the cost model"
    is_gossip = _is_gossip(first)
    degree = 0.0 if topology == "complete" else max(_to_number(row.get("messages_per_step")) for row in group)
    is_local = format_setting(first.get("algorithm")) in ("local_sgd", "noloco")
    found = infer_traffic(
        format_setting(first["compressor"]),
        "gossip" if is_gossip else format_setting(first.get("exchange")),
        counted,
        degree=degree,
        every=int(_to_number(first.get("algorithm.steps")) or 1) if is_local else 1,
        gradient=_read_gradient(first),
    )
    if isinstance(found, Traffic):
        return dataclasses.replace(
            found,
            grows=topology in missing_runs.GROWING,
            part=setting.part,
            allreduce=setting.allreduce,
            is_tuned=any(row[SETTING].is_tuned for row in group),
            is_fixed=setting.is_fixed,
        )
    return found


def _is_gossip(run: RunRow) -> bool:
    return (format_setting(run.get("topology")) or "none") != "none"


def _average(group: Sequence[RunRow], column: str) -> float:
    return statistics.fmean(_to_number(row[column]) for row in group)


def _make_cell(group: Sequence[RunRow]) -> MeasuredCell | None:
    """Return the cell of these runs; None if none of them has measured the phases of its steps."""
    names = [f"{phase}_s" for phase in csv_columns.PHASES]
    group = [row for row in group if all(math.isfinite(row[name]) for name in names)]
    if not group:
        return None
    first = group[0]
    median = {name: statistics.median(row[name] for row in group) for name in (*names, "step_s")}
    moved = sum(median[f"{phase}_s"] for phase in ("encode", "communicate", "decode"))
    links, expected, loads, marks, hosts = zip(*map(_read_records, group), strict=True)
    workers, setting = int(first["workers"]), first[SETTING]
    each = [_to_number(row["samples_per_second"]) * row["step_s"] / workers for row in group]
    return MeasuredCell(
        workload=first["workload"],
        method=first["method"],
        workers=workers,
        network=first[NETWORK],
        links=_take_known_median(first[NETWORK], links) or MEMORY,
        load=statistics.median(loads),
        samples=statistics.median(each),
        compute_s=max(median["step_s"] - moved, 1e-9),
        encode_s=median["encode_s"],
        communicate_s=median["communicate_s"],
        decode_s=median["decode_s"],
        backward_s=median["backward_s"],
        beside_s=median["backward_s"] + (median["forward_s"] if _is_gossip(first) else 0.0),
        overlaps=setting.overlap,
        part=setting.part,
        allreduce=setting.allreduce,
        is_fair=not any("cpu" in of_run for of_run in marks),
        expected=_take_known_median(first[NETWORK], expected),
        hosts=min(hosts),
        batch=first["batch"],
        raced=_read_ratio(group),
    )


def _read_ratio(group: Sequence[RunRow]) -> RacedRatio | None:
    """Return the ratio that a race has measured for these runs; None if there is none, or more than one."""
    ratios = {
        (row[_BASE], *(_to_number(row.get(f"throughput_ratio{end}")) for end in ("", "_low", "_high"))) for row in group
    }
    found = RacedRatio(*next(iter(ratios)))
    return found if len(ratios) == 1 and found.base and found.low > 0 else None


def _take_known_median(name: str, links: Sequence[Links | None]) -> Links | None:
    known = [one for one in links if one is not None]
    return take_median(name, known) if known else None


def _read_records(row: RunRow) -> tuple[Links | None, Links | None, float, list[str], int]:
    """Return the records in a run's files: links, configured links, threads per core, marks, hosts (0: unknown)."""
    run = run_directory.Run(Path(row["directory"]))
    if not run.state()["attempts"]:  # with race=only
        run = race_records.find_race(row) or run
    content, state = as_mapping(row[RESULT].get(NETWORK)), run.state()
    cores = [attempt.get("cores") for attempt in state["attempts"]]
    count = len(cores[-1]) if cores and isinstance(cores[-1], list) else 0
    threads = int(row["workers"]) * int(_to_number(row.get("threads_per_worker")) or 1)
    load = threads / count if count else 1.0
    nominal = _read_configured_links(row)
    emulated = None if nominal is None else dataclasses.replace(nominal, is_emulated=True)
    return (
        read_links(content, row[NETWORK]) or emulated,
        read_links(content, row[NETWORK], "expected") or nominal,
        load if state.get("oversubscribed") else min(load, 1.0),
        as_list(content.get("marks")),
        int(_to_number(content.get("hosts"))),
    )


def _read_configured_links(run: RunRow) -> Links | None:
    """Return the configured links of an emulated network; None without emulation."""
    rate = units.bits_per_second(format_setting(run.get("network.bandwidth")))
    latency = units.seconds(format_setting(run.get("network.latency")))
    return None if not rate or latency is None else Links(run[NETWORK], latency, 8 / (rate * PAYLOAD_SHARE))


def _choose_counted(group: Sequence[RunRow]) -> RunRow:
    """Return the first run that has counted its collective calls, preferably one that overlaps; else the first run."""
    counted = [row for row in group if isinstance(row[RESULT].get("collectives_per_step"), Mapping)]
    return next((row for row in counted if row[SETTING].overlap), (counted or list(group))[0])


def _read_calls(row: RunRow) -> tuple[dict[str, float] | None, dict[str, float]]:
    """Return a step's collective calls by kind, all and those during backward; None if the run did not count them."""
    result = row[RESULT]
    calls, early = (as_mapping(result.get(f"{kind}collectives_per_step")) for kind in ("", "early_"))
    return _keep_positive(calls) or None, _keep_positive(early)


def _keep_positive(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(kind): count for kind, value in found.items() if (count := _to_number(value)) > 0}


def _read_gradient(run: RunRow) -> Gradient:
    """Return the bytes of a run's gradient and of its units."""
    size = 4 * _to_number(run.get("parameters"))
    bucket = _to_number(run.get("exchange.bucket_mib")) * 2**20
    return Gradient(size, {"bucket": bucket, "model": size}.get(format_setting(run.get("exchange.granularity")), 0.0))


def _to_number(value: Any) -> float:
    """Return the value as a number; 0 if it is not a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0
