"""Simulate training with many workers, and build a table of the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from gradsweep.options.units import spell_quantities
from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.reading.text import format_number
from reports.scaling.measured.links import Links
from reports.scaling.simulator import Cluster, Compute, Link, simulate
from reports.scaling.simulator.exchanges import EXCHANGES, SimulatedTraining

ROUGH = "≈"
"""The mark behind the figures of a simulation that is not exact."""

MOST_PUSHES = 25_000
"""The most gradients that the server of a simulated `asynchronous` takes: some minutes (docs/guide/simulator.md)."""

_STEPS = (10, 100)
_SAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class SimulationSettings:
    """The settings shared by all simulations of a table.

    Attributes:
        inner: the links within nodes.
        steps: the number of steps; None: 10 to 100, more with few workers.
        oversubscription, eager_bytes: as in `simulator.Cluster`.
    """

    training: SimulatedTraining
    per_node: int
    inner: Links
    oversubscription: float
    eager_bytes: float
    steps: int | None
    seed: int

    def choose_steps(self, workers: int) -> int:
        """Return the number of steps to simulate with this number of workers."""
        low, high = _STEPS
        return self.steps or min(high, max(low, _SAMPLES // workers))


@dataclasses.dataclass(frozen=True)
class SimulatedSteps:
    """The figures of simulated steps with one exchange on one network.

    Attributes:
        median_s, p90_s: the median and the 90th percentile of step times of all workers.
        mean_s: the mean step time; the rate is 1 over this.
        efficiency: the mean step time of one worker alone, without messages, over `mean_s` (weak scaling).
        exchange: the share of the step's time between encoding and decoding, waiting included.
        stragglers: the share of the step's time that is due to differences between workers.
        exact: whether the simulation is exact; see `simulator.Course`.
    """

    network: str
    exchange: str
    workers: int
    median_s: float
    p90_s: float
    mean_s: float
    efficiency: float
    exchange_share: float
    straggler_share: float
    exact: bool


def simulate_exchange(asked: SimulationSettings, links: Links, exchange: str, workers: int) -> SimulatedSteps:
    """Simulate the steps of one table row: this exchange with this many workers.

    Raises:
        ValueError: the exchange does not fit the cluster.
    """
    kind = EXCHANGES[exchange]
    cluster = Cluster(
        workers,
        Link(links.alpha, links.beta),
        per_node=min(asked.per_node, workers),
        inner=Link(asked.inner.alpha, asked.inner.beta),
        servers=kind.servers,
        oversubscription=asked.oversubscription,
        eager_bytes=asked.eager_bytes,
    )
    steps = asked.choose_steps(workers)
    step = kind.make_step(cluster, asked.training)
    course = simulate(cluster, step, steps, asked.seed)
    quiet = dataclasses.replace(step, compute=Compute(step.compute.mean_s))  # without stragglers
    alike = course if quiet == step else simulate(cluster, quiet, steps, asked.seed)
    return SimulatedSteps(
        links.name,
        exchange,
        workers,
        float(np.median(course.durations)),
        float(np.quantile(course.durations, 0.9)),
        course.step_s,
        (asked.training.compute.mean_s + asked.training.update_s) / course.step_s,
        course.exchange_s / course.step_s,
        1 - alike.step_s / course.step_s,
        course.exact,
    )


_FIGURES = (
    ("median", "median_s", 1e3, "ms"),
    ("90 %", "p90_s", 1e3, "ms"),
    ("mean", "mean_s", 1e3, "ms"),
    ("efficiency", "efficiency", 100, "%"),
    ("exchange", "exchange_share", 100, "%"),
    ("stragglers", "straggler_share", 100, "%"),
)
_REMARKS = (
    "steps in ms; efficiency: a step of one worker alone, without messages, over the mean step (weak scaling)",
    "exchange: of the time, from the end of encoding to the beginning of decoding; "
    "stragglers: of the time, what differences between workers cause "
    "(below 0: in different phases, they use links at different times)",
)


def build_table(found: Sequence[SimulatedSteps]) -> ReportTable:
    """Return a table with a row for each simulation."""
    rough = (f"{ROUGH}: messages of different workers meet on links, and are taken to share them all the time",)
    rows = [
        (
            make_text_cell(spell_quantities(one.network)),
            make_text_cell(one.exchange),
            TableCell(one.workers, str(one.workers)),
            *(_make_cell(one, key, factor) for _, key, factor, _ in _FIGURES),
        )
        for one in found
    ]
    return ReportTable(
        "simulated",
        "Simulated steps",
        (
            TableColumn("network"),
            TableColumn("exchange"),
            TableColumn("workers"),
            *(TableColumn(name, "s" if unit == "ms" else "fraction", unit) for name, _, _, unit in _FIGURES),
        ),
        3,
        tuple(rows),
        remarks=(*_REMARKS, *(() if all(one.exact for one in found) else rough)),
        records=tuple(dataclasses.asdict(one) for one in found),
    )


def _make_cell(one: SimulatedSteps, key: str, factor: float) -> TableCell:
    value = getattr(one, key)
    shown = 0.0 if abs(value) < 1e-9 else value * factor  # rounding errors
    return TableCell(value, format_number(shown) + ("" if one.exact else f" {ROUGH}"))
