"""What the finished runs of sweeps have measured of a step, as the cost model takes it: a cell for each experiment.

A cell is a method with so many workers on one network, and one batch; runs that differ only in their seed, learning
rate and the like are repetitions of it, of which the median counts. Those that shared their cores with other runs are
not used.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gradsweep import csv_columns, errors, run_directory, units
from reports.analysis.grid import lay_out_runs
from reports.reading.text import setting
from reports.scaling.measured import links as networks
from reports.scaling.measured import missing_runs, recorded
from reports.scaling.measured.cell import Cell
from reports.scaling.measured.links import Links
from reports.scaling.measured.recorded import number as _float
from reports.scaling.measured.run_labels import NETWORK, Row, groups, named
from reports.scaling.measured.traffic import Counted, Traffic, of_runs


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the cost model is fitted to.

    Attributes:
        traffic: by workload and method, what it sends.
        compressors: by method, its compressor's name.
        left_out: what is not modelled, with the reason, a line each.
        rows: by the key of a cell, its runs.
        remarks: what else has to be known, a line each.
    """

    cells: Sequence[Cell]
    traffic: Mapping[tuple[str, str], Traffic]
    compressors: Mapping[str, str]
    left_out: Sequence[str]
    rows: Mapping[tuple[Any, ...], Sequence[Row]]
    remarks: Sequence[str] = ()

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(cell.workload for cell in self.cells))

    def methods(self, workload: str) -> list[str]:
        """In the order of the tables."""
        return list(dict.fromkeys(cell.method for cell in self.cells if cell.workload == workload))

    def of(self, workload: str, method: str) -> list[Cell]:
        return [cell for cell in self.cells if (cell.workload, cell.method) == (workload, method)]

    @property
    def networks(self) -> list[Links]:
        """The links of each network that was measured: the median of its cells in which the CPUs were not the limit.

        None of the machine's own memory.
        """
        return self._links([(cell.network, cell.links) for cell in self.cells if cell.is_fair and cell.links.beta])

    @property
    def promised(self) -> list[Links]:
        """What the other networks of the runs should have been: those whose links only told of the CPUs."""
        there = {one.name for one in self.networks}
        found = [(cell.network, cell.expected) for cell in self.cells if cell.network not in there]
        return self._links([(name, links) for name, links in found if links is not None])

    @property
    def limited(self) -> list[str]:
        """The networks in all of whose runs the CPUs were the limit."""
        fair = {cell.network for cell in self.cells if cell.is_fair}
        return list(dict.fromkeys(cell.network for cell in self.cells if cell.network not in fair))

    @staticmethod
    def _links(found: Sequence[tuple[str, Links]]) -> list[Links]:
        names = dict.fromkeys(name for name, _ in found)
        return [networks.median(name, [links for other, links in found if other == name]) for name in names]

    def traffic_of(self, cells: Sequence[Cell]) -> dict[tuple[str, str], Traffic]:
        """As `traffic`, by the runs of these cells alone; nothing of methods that they do not tell of."""
        rows: dict[tuple[str, str], list[Row]] = {}
        for cell in cells:
            rows.setdefault((cell.workload, cell.method), []).extend(self.rows[cell.key])
        return {key: found for key, group in rows.items() if isinstance(found := _traffic(group), Traffic)}


def read(runs: pd.DataFrame, swept: Sequence[str] = (), command: str = "") -> Parts:
    """The parts of the finished runs among `Report.runs`.

    Args:
        swept: the keys that were swept, as far as they are known.
        command: what the sweep was started by, to say how more of it can be had.

    Raises:
        gradsweep.errors.UsageError: no run has finished, or all have the same number of workers.
    """
    counts = pd.to_numeric(runs["workers"], errors="coerce") if "workers" in runs else pd.Series(math.nan, runs.index)
    done = runs[(runs["status"] == run_directory.DONE) & runs["step_s"].notna() & (counts >= 1)]
    if done.empty:
        raise errors.UsageError(f"scaling: none of {len(runs)} runs has finished with a measured step; nothing to fit")
    shared = done["shared_cores"].fillna(False).astype(bool) if "shared_cores" in done else pd.Series(False, done.index)
    if shared.all():
        raise errors.UsageError(
            f"scaling: all {len(done)} finished runs shared their cores with other runs: their times tell nothing; run "
            "them once more with cores of their own"
        )
    grid = lay_out_runs(done[~shared], swept)
    rows = named(grid.runs.to_dict("records"), grid.keys)
    there = sorted({int(row["workers"]) for row in rows})
    if sum(count > 1 for count in there) < 2:
        raise errors.UsageError(
            f"scaling: all finished runs have workers={missing_runs.listed(there)}, but what more workers do is told "
            f"by two numbers above 1; run {missing_runs.with_others(command, there)} and give both directories"
        )
    by_key = groups(rows, "workload", "method", NETWORK, "workers", "batch")
    found = {cell.key: cell for group in by_key.values() if (cell := _cell(group)) is not None}
    reasons: dict[str, list[str]] = {}
    traffic: dict[tuple[str, str], Traffic] = {}
    for (workload, method), group in groups(rows, "workload", "method").items():
        sent = _traffic(group)
        own = [cell for cell in found.values() if (cell.workload, cell.method) == (workload, method)]
        reason = sent if isinstance(sent, str) else missing_runs.too_few(own)
        if reason:
            reasons.setdefault(reason, []).append(method)
        elif isinstance(sent, Traffic):
            traffic[workload, method] = sent
    left_out = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    if not traffic:
        raise errors.UsageError(f"scaling: no method is left with two numbers of workers: {'; '.join(left_out)}")
    cells = [cell for cell in found.values() if (cell.workload, cell.method) in traffic]
    remarks = missing_runs.of_graphs(rows, traffic)
    if shared.any():
        remarks.append(f"not used: {shared.sum()} of {len(done)} runs, which shared their cores with other runs")
    compressors = {row["method"]: setting(row["compressor"]) for row in rows}
    return Parts(cells, traffic, compressors, left_out, by_key, remarks)


def _traffic(group: Sequence[Row]) -> Traffic | str:
    counted = [
        Counted(int(workers), _mean(same, "payload_bytes"), _mean(same, "sent_bytes"), *recorded.calls(same))
        for (workers,), same in sorted(groups(group, "workers").items())
    ]
    first = group[0]
    topology = setting(first.get("topology"))
    if topology == "star":
        return "topology=star is not in the cost model: its hub has as many messages as there are workers"
    is_gossip = _is_gossip(first)
    degree = 0.0 if topology == "complete" else max(_float(row.get("messages_per_step")) for row in group)
    is_local = setting(first.get("algorithm")) == "local_sgd"
    found = of_runs(
        setting(first["compressor"]),
        "gossip" if is_gossip else setting(first.get("exchange")),
        counted,
        degree=degree,
        every=int(_float(first.get("algorithm.steps")) or 1) if is_local else 1,
        gradient=recorded.gradient(first),
    )
    if isinstance(found, Traffic) and topology in missing_runs.GROWING:
        return dataclasses.replace(found, grows=True)
    return found


def _is_gossip(run: Row) -> bool:
    return (setting(run.get("topology")) or "none") != "none"


def _mean(group: Sequence[Row], column: str) -> float:
    return statistics.fmean(_float(row[column]) for row in group)


def _cell(group: Sequence[Row]) -> Cell | None:
    """Nothing where no run has measured its phases."""
    names = [f"{phase}_s" for phase in csv_columns.PHASES]
    group = [row for row in group if all(math.isfinite(row[name]) for name in names)]
    if not group:
        return None
    first = group[0]
    median = {name: statistics.median(row[name] for row in group) for name in (*names, "step_s")}
    moved = sum(median[f"{phase}_s"] for phase in ("encode", "communicate", "decode"))
    found = [_of_run(row) for row in group]
    links = [one.links for one in found if one.links is not None]
    expected = [one.expected for one in found if one.expected is not None]
    workers = int(first["workers"])
    each = [_float(row["samples_per_second"]) * row["step_s"] / workers for row in group]
    return Cell(
        workload=first["workload"],
        method=first["method"],
        workers=workers,
        network=first[NETWORK],
        links=networks.median(first[NETWORK], links) if links else networks.MEMORY,
        load=statistics.median(one.load for one in found),
        samples=statistics.median(each),
        compute_s=max(median["step_s"] - moved, 1e-9),
        encode_s=median["encode_s"],
        communicate_s=median["communicate_s"],
        decode_s=median["decode_s"],
        backward_s=median["backward_s"],
        beside_s=median["backward_s"] + (median["forward_s"] if _is_gossip(first) else 0.0),
        overlaps=setting(first.get("exchange.overlap")) == "true",
        is_fair=not any("cpu" in one.marks for one in found),
        expected=networks.median(first[NETWORK], expected) if expected else None,
        hosts=min(one.hosts for one in found),
        batch=first["batch"],
    )


@dataclasses.dataclass(frozen=True)
class _OfRun:
    """What a run's own files tell: its links, what they should be, threads for a core, marks, hosts (0: not known)."""

    links: Links | None
    expected: Links | None
    load: float
    marks: Sequence[str]
    hosts: int


def _of_run(row: Row) -> _OfRun:
    place = run_directory.Run(Path(row["directory"]))
    content = (place.result() or {}).get(NETWORK)
    content = content if isinstance(content, Mapping) else {}
    state = place.state()
    cores = [attempt.get("cores") for attempt in state["attempts"]]
    count = len(cores[-1]) if cores and isinstance(cores[-1], list) else 0
    threads = int(row["workers"]) * int(_float(row.get("threads_per_worker")) or 1)
    load = threads / count if count else 1.0
    marks = content.get("marks")
    nominal = _as_configured(row)
    return _OfRun(
        links=networks.measured(content, row[NETWORK]) or nominal,
        expected=networks.measured(content, row[NETWORK], "expected") or nominal,
        load=load if state.get("oversubscribed") else min(load, 1.0),
        marks=marks if isinstance(marks, list) else [],
        hosts=int(_float(content.get("hosts"))),
    )


def _as_configured(run: Row) -> Links | None:
    """Of an emulated network that was not measured."""
    rate = units.bits_per_second(setting(run.get("network.bandwidth")))
    latency = units.seconds(setting(run.get("network.latency")))
    share = networks.PAYLOAD_SHARE
    return None if not rate or latency is None else Links(run[NETWORK], latency, 8 / (rate * share))
