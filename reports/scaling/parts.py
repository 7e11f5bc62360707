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

import numpy as np
import pandas as pd

from reports.grid import lay_out
from reports.scaling import networks
from reports.scaling.networks import Links
from reports.scaling.traffic import Counted, Traffic, of_runs
from reports.text import setting
from sweep import run as rundir
from sweep import units

NETWORK = "network"
_OF_METHOD = ("exchange", "memory", "algorithm", "topology", "policy")
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
        backward_s: the part of it during which an exchange that overlaps can go on, and `overlaps` whether it does.
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
            if links:
                alpha, beta = (
                    statistics.median(values) for values in zip(*((x.alpha, x.beta) for x in links), strict=True)
                )
                found.append(Links(name, alpha, beta))
        return found


def read(runs: pd.DataFrame, swept: Sequence[str] = ()) -> Parts:
    """The parts of the finished runs among `Report.runs`.

    Args:
        swept: the keys that were swept, as far as they are known.

    Raises:
        sweep.run.UsageError: no run has finished, or all have the same number of workers.
    """
    counts = pd.to_numeric(runs["workers"], errors="coerce") if "workers" in runs else pd.Series(math.nan, runs.index)
    done = runs[(runs["status"] == rundir.DONE) & runs["step_s"].notna() & (counts >= 1)]
    if done.empty:
        raise rundir.UsageError(f"scaling: none of {len(runs)} runs has finished with a measured step; nothing to fit")
    grid = lay_out(done, swept)
    runs = _named(grid.runs, grid.keys)
    there = sorted(runs["workers"].astype(int).unique())
    if len(there) < 2:
        raise rundir.UsageError(
            f"scaling: all finished runs have workers={there[0]}, which tells nothing of other numbers; "
            f"run the sweep once more with workers={_others(there[0])}, and give both directories"
        )
    traffic: dict[tuple[str, str], Traffic] = {}
    left_out = []
    for (workload, method), group in runs.groupby(["workload", "method"], sort=False):
        found = _traffic(group)
        if isinstance(found, Traffic):
            traffic[workload, method] = found
        else:
            left_out.append(f"{method}: {found}")
    cells = [
        cell
        for (workload, method, _, _), group in runs.groupby(["workload", "method", NETWORK, "workers"], sort=False)
        if (workload, method) in traffic and (cell := _cell(group)) is not None
    ]
    if len({cell.workers for cell in cells}) < 2:
        reasons = "; ".join(left_out) or "their phases were not measured"
        raise rundir.UsageError(f"scaling: no method is left with two numbers of workers: {reasons}")
    compressors = dict(zip(runs["method"], map(setting, runs["compressor"]), strict=True))
    return Parts(cells, traffic, compressors, left_out)


def _others(workers: int) -> str:
    return ",".join(str(count) for count in (2, 4, 8) if count != workers)


def _named(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Runs with the columns `method`, `workload` and `network`."""
    by_root = {key: key.partition(".")[0] for key in keys}
    told = [key for key, root in by_root.items() if root in _OF_METHOD]
    others = [key for key, root in by_root.items() if root not in (*_OF_METHOD, *_OF_REPETITION, NETWORK, "optimizer")]
    columns: dict[str, list[str]] = {"method": [], "workload": [], NETWORK: []}
    options = [key for key in runs if str(key).startswith(f"{NETWORK}.")]
    names = [setting(name) or "none" for name in runs[NETWORK]] if NETWORK in runs else ["none"] * len(runs)
    telling = {
        name: [key for key in options if runs[[other == name for other in names]][key].nunique() > 1]
        for name in dict.fromkeys(names)
    }
    for name, (_, run) in zip(names, runs.iterrows(), strict=True):
        columns["method"].append(" ".join([run["label"], *_settings(run, told)]))
        columns["workload"].append(", ".join(_settings(run, others)))
        columns[NETWORK].append(" ".join([name, *_settings(run, telling[name])]))
    return runs.assign(**columns)


def _settings(run: pd.Series, keys: Sequence[str]) -> list[str]:
    return [f"{key.removeprefix('network.')}={text}" for key in keys if (text := setting(run[key]))]


def _traffic(group: pd.DataFrame) -> Traffic | str:
    first = group.iloc[0]
    means = group.groupby("workers")[["payload_bytes", "sent_bytes"]].mean().sort_index()
    counted = [
        Counted(int(str(count)), *map(float, row)) for count, row in zip(means.index, means.to_numpy(), strict=True)
    ]
    exchange, topology = setting(first.get("exchange")), setting(first.get("topology"))
    degree = 0.0 if topology == "complete" else _float(group["messages_per_step"].max())
    is_local = setting(first.get("algorithm")) == "local_sgd"
    every = int(_float(first.get("algorithm.steps")) or 1) if is_local else 1
    is_gossip = bool(topology) and topology != "none"
    return of_runs(
        setting(first["compressor"]), "gossip" if is_gossip else exchange, counted, degree=degree, every=every
    )


def _cell(group: pd.DataFrame) -> Cell | None:
    """Nothing where no run has measured its phases."""
    times = group[[*(f"{phase}_s" for phase in rundir.PHASES), "step_s"]].to_numpy("float64", na_value=math.nan)
    is_measured = ~np.isnan(times).any(axis=1)
    if not is_measured.any():
        return None
    group = group[is_measured]
    first = group.iloc[0]
    median = dict(zip((*rundir.PHASES, "step"), map(float, np.median(times[is_measured], axis=0)), strict=True))
    found = [_of_run(run) for _, run in group.iterrows()]
    name, count = str(first[NETWORK]), int(first["workers"])
    links = [links for links, _, _ in found if links is not None]
    moved = sum(median[phase] for phase in ("encode", "communicate", "decode"))
    return Cell(
        workload=first["workload"],
        method=first["method"],
        workers=count,
        network=name,
        links=links[0] if links else networks.MEMORY,
        load=statistics.median(load for _, load, _ in found),
        samples=float((group["samples_per_second"] / group["iterations_per_second"]).median()) / count,
        compute_s=max(median["step"] - moved, 1e-9),
        encode_s=median["encode"],
        communicate_s=median["communicate"],
        decode_s=median["decode"],
        backward_s=median["backward"],
        overlaps=setting(first.get("exchange.overlap")) == "true",
        is_fair=not any("cpu" in marks for _, _, marks in found),
    )


def _of_run(run: pd.Series) -> tuple[Links | None, float, Sequence[str]]:
    """The links of a run, how many threads there are for a core, and how its network is marked."""
    place = rundir.Run(Path(run["directory"]))
    content = (place.result() or {}).get(NETWORK)
    content = content if isinstance(content, Mapping) else {}
    state = place.state()
    cores = [attempt.get("cores") for attempt in state["attempts"]]
    count = len(cores[-1]) if cores and isinstance(cores[-1], list) else 0
    threads = int(run["workers"]) * int(_float(run.get("threads_per_worker")) or 1)
    load = threads / count if count else 1.0
    marks = content.get("marks")
    links = networks.measured(content, str(run[NETWORK])) or _as_configured(run)
    return links, load if state.get("oversubscribed") else min(load, 1.0), marks if isinstance(marks, list) else []


def _as_configured(run: pd.Series) -> Links | None:
    """Of an emulated network that was not measured."""
    rate = units.bits_per_second(setting(run.get("network.bandwidth")))
    latency = units.seconds(setting(run.get("network.latency")))
    share = networks.PAYLOAD_SHARE
    return None if not rate or latency is None else Links(str(run[NETWORK]), latency, 8 / (rate * share))


def _float(value: Any) -> float:
    """A number; 0 for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0
