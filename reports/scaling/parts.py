"""What the finished runs of sweeps have measured of a step, as the cost model takes it: a cell for each experiment.

A cell is a method with so many workers on one network; runs that differ only in their seed, learning rate and the
like are repetitions of it, of which the median counts.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports.grid import lay_out
from reports.scaling import networks, recorded
from reports.scaling.networks import Links
from reports.scaling.recorded import Row
from reports.scaling.recorded import number as _float
from reports.scaling.traffic import Counted, Traffic, of_runs
from reports.text import setting
from sweep import run as rundir
from sweep import units

NETWORK = "network"
_OF_METHOD = ("exchange", "memory", "algorithm", "topology", "policy")
_OF_WORK = ("model", "dataset")
_OF_MESSAGES = ("exchange", "exchange.overlap", "exchange.granularity", "memory", "algorithm", "topology")
_OF_REPETITION = frozenset(
    {
        "seed",
        "sweep",
        "run",
        "schedule",
        "epochs",
        "max_steps",
        "batch",
        "scaling",
        "clip",
        "partition",
        "measure_every",
    }
    | {"evaluate_every", "warmup_steps", "check_every", "checkpoint", "mpi", "data", "trackers"}
)
"""Sections and keys of a config that change neither what a step computes nor what it sends."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One experiment: times in s, means over steps and workers.

    Attributes:
        workload: what is computed, without what is compressed; empty where all cells compute the same.
        network: what it is called, and `links` what was measured of it.
        load: ranks times threads for each core that they have; at most 1 where they have enough.
        samples: of a worker in a step.
        compute_s: all that is neither of the following: data, forward, backward, update, and what lies between.
        communicate_s: until the exchange was over, waiting for others included.
        backward_s: the part of it in backward.
        beside_s: the part of it during which an exchange that overlaps can go on, and `overlaps` whether it does.
        is_fair: its communication tells of the network: not of too few CPUs.
    """

    workload: str
    method: str
    workers: int
    network: str
    links: Links
    load: float
    samples: float
    compute_s: float
    encode_s: float
    communicate_s: float
    decode_s: float
    backward_s: float
    beside_s: float
    overlaps: bool = False
    is_fair: bool = True

    @property
    def step_s(self) -> float:
        return self.compute_s + self.encode_s + self.communicate_s + self.decode_s


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the cost model is fitted to.

    Attributes:
        traffic: by workload and method, what it sends.
        compressors: by method, its compressor's name.
        left_out: what is not modelled, with the reason, a line each.
    """

    cells: Sequence[Cell]
    traffic: Mapping[tuple[str, str], Traffic]
    compressors: Mapping[str, str]
    left_out: Sequence[str]

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
        """The links of each network that was measured, the median of its cells; none of the machine's own memory."""
        found = []
        for name in dict.fromkeys(cell.network for cell in self.cells):
            links = [cell.links for cell in self.cells if cell.network == name and cell.links.beta]
            found += [networks.median(name, links)] if links else []
        return found


def read(runs: pd.DataFrame, swept: Sequence[str] = (), command: str = "") -> Parts:
    """The parts of the finished runs among `Report.runs`.

    Args:
        swept: the keys that were swept, as far as they are known.
        command: what the sweep was started by, to say how more of it can be had.

    Raises:
        sweep.run.UsageError: no run has finished, or all have the same number of workers.
    """
    counts = pd.to_numeric(runs["workers"], errors="coerce") if "workers" in runs else pd.Series(math.nan, runs.index)
    done = runs[(runs["status"] == rundir.DONE) & runs["step_s"].notna() & (counts >= 1)]
    if done.empty:
        raise rundir.UsageError(f"scaling: none of {len(runs)} runs has finished with a measured step; nothing to fit")
    grid = lay_out(done, swept)
    rows = _named(grid.runs.to_dict("records"), grid.keys)
    there = sorted({int(row["workers"]) for row in rows})
    if len(there) < 2:
        raise rundir.UsageError(
            f"scaling: all finished runs have workers={there[0]}, which tells nothing of other numbers; "
            f"run {_with_others(command, there[0])} and give both directories"
        )
    traffic: dict[tuple[str, str], Traffic] = {}
    left_out = []
    for (workload, method), group in _groups(rows, "workload", "method").items():
        found = _traffic(group)
        if isinstance(found, Traffic):
            traffic[workload, method] = found
        else:
            left_out.append(f"{method}: {found}")
    cells = [
        cell
        for (workload, method, *_), group in _groups(rows, "workload", "method", NETWORK, "workers").items()
        if (workload, method) in traffic and (cell := _cell(group)) is not None
    ]
    if len({cell.workers for cell in cells}) < 2:
        reasons = "; ".join(left_out) or "their phases were not measured"
        raise rundir.UsageError(f"scaling: no method is left with two numbers of workers: {reasons}")
    return Parts(cells, traffic, {row["method"]: setting(row["compressor"]) for row in rows}, left_out)


def _groups(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def _with_others(command: str, workers: int) -> str:
    """The command for other numbers of workers."""
    others = f"workers={','.join(str(count) for count in (2, 4, 8) if count != workers)}"
    if "multirun.py" not in command:
        return f"the sweep once more with {others}"
    words = [word for word in command.split() if not word.lstrip("+").startswith("workers=")]
    return f"`{' '.join([*words, others])}`"


def _named(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """Runs with `method`, `workload` and `network`."""
    by_root = {key: key.partition(".")[0] for key in keys}
    told = [key for key, root in by_root.items() if root in _OF_METHOD]
    others = [key for key, root in by_root.items() if root not in (*_OF_METHOD, *_OF_REPETITION, NETWORK, "optimizer")]
    # Also what need not tell runs apart, since each compressor, or each number of workers, has another one.
    others = list(dict.fromkeys([*(key for key in _OF_WORK if _values(rows, key) > 1), *others]))
    of_label = _groups(rows, "label").values()
    mixed = [key for key in _OF_MESSAGES if any(_values(group, key) > 1 for group in of_label)]
    told = list(dict.fromkeys([*mixed, *told]))
    rows = [{**row, NETWORK: setting(row.get(NETWORK)) or "none"} for row in rows]
    telling = {}
    for (name,), group in _groups(rows, NETWORK).items():
        options = [key for key in group[0] if str(key).startswith(f"{NETWORK}.")]
        always = [f"{NETWORK}.bandwidth", f"{NETWORK}.latency"] if name == "emulated" else []
        telling[name] = [key for key in options if key in always or len({setting(row[key]) for row in group}) > 1]
    return [
        {
            **row,
            "method": " ".join([row["label"], *_settings(row, told)]),
            "workload": ", ".join(_settings(row, others)),
            NETWORK: " ".join([row[NETWORK], *_settings(row, telling[row[NETWORK]])]),
        }
        for row in rows
    ]


def _values(rows: Sequence[Row], key: str) -> int:
    return len({setting(row.get(key)) for row in rows})


def _settings(row: Row, keys: Sequence[str]) -> list[str]:
    return [f"{key.removeprefix('network.')}={text}" for key in keys if (text := setting(row[key]))]


def _traffic(group: Sequence[Row]) -> Traffic | str:
    counted = [
        Counted(int(workers), _mean(same, "payload_bytes"), _mean(same, "sent_bytes"), *recorded.calls(same))
        for (workers,), same in sorted(_groups(group, "workers").items())
    ]
    first = group[0]
    topology = setting(first.get("topology"))
    is_gossip = _is_gossip(first)
    degree = 0.0 if topology == "complete" else max(_float(row.get("messages_per_step")) for row in group)
    is_local = setting(first.get("algorithm")) == "local_sgd"
    return of_runs(
        setting(first["compressor"]),
        "gossip" if is_gossip else setting(first.get("exchange")),
        counted,
        degree=degree,
        every=int(_float(first.get("algorithm.steps")) or 1) if is_local else 1,
        gradient=recorded.gradient(first),
    )


def _is_gossip(run: Row) -> bool:
    return (setting(run.get("topology")) or "none") != "none"


def _mean(group: Sequence[Row], column: str) -> float:
    return statistics.fmean(_float(row[column]) for row in group)


def _cell(group: Sequence[Row]) -> Cell | None:
    """Nothing where no run has measured its phases."""
    names = [f"{phase}_s" for phase in rundir.PHASES]
    group = [row for row in group if all(math.isfinite(row[name]) for name in names)]
    if not group:
        return None
    first = group[0]
    median = {name: statistics.median(row[name] for row in group) for name in (*names, "step_s")}
    moved = sum(median[f"{phase}_s"] for phase in ("encode", "communicate", "decode"))
    found = [_of_run(row) for row in group]
    links = [links for links, _, _ in found if links is not None]
    workers = int(first["workers"])
    each = [_float(row["samples_per_second"]) * row["step_s"] / workers for row in group]
    return Cell(
        workload=first["workload"],
        method=first["method"],
        workers=workers,
        network=first[NETWORK],
        links=networks.median(first[NETWORK], links) if links else networks.MEMORY,
        load=statistics.median(load for _, load, _ in found),
        samples=statistics.median(each),
        compute_s=max(median["step_s"] - moved, 1e-9),
        encode_s=median["encode_s"],
        communicate_s=median["communicate_s"],
        decode_s=median["decode_s"],
        backward_s=median["backward_s"],
        beside_s=median["backward_s"] + (median["forward_s"] if _is_gossip(first) else 0.0),
        overlaps=setting(first.get("exchange.overlap")) == "true",
        is_fair=not any("cpu" in marks for _, _, marks in found),
    )


def _of_run(row: Row) -> tuple[Links | None, float, Sequence[str]]:
    """The links of a run, how many threads there are for a core, and how its network is marked."""
    place = rundir.Run(Path(row["directory"]))
    content = (place.result() or {}).get(NETWORK)
    content = content if isinstance(content, Mapping) else {}
    state = place.state()
    cores = [attempt.get("cores") for attempt in state["attempts"]]
    count = len(cores[-1]) if cores and isinstance(cores[-1], list) else 0
    threads = int(row["workers"]) * int(_float(row.get("threads_per_worker")) or 1)
    load = threads / count if count else 1.0
    marks = content.get("marks")
    links = networks.measured(content, row[NETWORK]) or _as_configured(row)
    return links, load if state.get("oversubscribed") else min(load, 1.0), marks if isinstance(marks, list) else []


def _as_configured(run: Row) -> Links | None:
    """Of an emulated network that was not measured."""
    rate = units.bits_per_second(setting(run.get("network.bandwidth")))
    latency = units.seconds(setting(run.get("network.latency")))
    share = networks.PAYLOAD_SHARE
    return None if not rate or latency is None else Links(run[NETWORK], latency, 8 / (rate * share))
