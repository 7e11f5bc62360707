"""Fit the cost model of a step to measured cells.

    step = compute + encode + exposed communication + decode

compute = (c0 + c1 samples) crowd, encode = e crowd, decode = (d0 + d1 payloads) crowd: c0, c1, e, d0 and d1 are of a
worker with cores of its own, and `crowd` = max(1, load)^kappa where ranks share cores. Then

    communication = k_a alpha (latencies) + k_b beta (bytes)            the network's: alpha and beta were measured
                  + (m messages + b bytes) crowd                        MPI's own, on the CPU
                  + s (compute + encode) E[max of W standard normals]   waiting for the slowest worker

with the latencies, messages and bytes of reports.scaling.measured.traffic. An exchange in k calls takes T. If the first
e of them leave during a backward of B seconds, max((k - e) / k T, T - e / (e + 1) (B + encode)) is left to wait for; of
a gossip during forward and backward, F + B, max(0, T - F - B).

k_a, k_b, m and b are figures of the network and of its CPUs. Those of an emulated network hold there only. They do not
go into other networks, which have figures of their own: those fitted to the runs on real networks, if there are any;
else k_a = k_b = 1, and m and b are usual ones (`Links.per_message`, `per_byte`).

Free are kappa, k_a, k_b, m, b and s for all together, two for the compute of a workload, and three for each method. The
five of communication are found by non-negative least squares, robust (Huber's weights) and drawn towards textbook
values (1, 1 and almost nothing), so that a few runs suffice and parameters without data stay plausible.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reports.scaling.measured.cell import MeasuredCell
from reports.scaling.measured.links import MEMORY, Links
from reports.scaling.measured.traffic import Traffic, compute_demand

Array = npt.NDArray[np.float64]

PRIOR = np.array([1.0, 1.0, 2e-6, 2e-10, 0.02])
"""k_a, k_b, m in s a message, b in s a byte, s: the usual values of a cluster with TCP."""
SPREAD = np.array([0.2, 0.1, 2e-5, 1e-9, 0.1])
"""The deviations from PRIOR that are not surprising."""
_NOISE = 0.03  # of a step: an error that counts as much as a deviation of SPREAD
_HUBER = 0.05  # of a step: residuals above count less
_KAPPAS = np.linspace(0.0, 1.5, 31)

_APART = 1.5
"""The ratio of samples from which the part of the compute that does not depend on them can be fitted."""


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """The times in s of the parts of a step; they are arrays if the links were given as arrays."""

    compute: float
    encode: float
    communicate: float
    decode: float

    @property
    def total(self) -> float:
        return self.compute + self.encode + self.communicate + self.decode


@dataclasses.dataclass(frozen=True)
class MethodCost:
    """The times in s of a method's own parts, for a worker that shares no cores.

    `beside` is the share of the compute during which its exchange can continue, if it `overlaps`.
    """

    encode: float
    decode: float
    decode_each: float
    traffic: Traffic
    overlaps: bool
    beside: float = 0.0


@dataclasses.dataclass(frozen=True)
class ComputeCost:
    """The seconds of compute in a step: `fixed`, and `each` for a sample; `backward` is the share of backward."""

    fixed: float
    each: float
    backward: float


@dataclasses.dataclass(frozen=True)
class CostModel:
    """The fitted cost model; `kappa` is the exponent for shared cores.

    `shared` are k_a, k_b, m, b and s (see the module) fitted to all cells. `real` are the same, fitted to the cells
    without an emulated network; None if none of these has a network.
    """

    kappa: float
    shared: tuple[float, ...]
    works: Mapping[str, ComputeCost]
    methods: Mapping[tuple[str, str], MethodCost]
    real: tuple[float, ...] | None = None

    def get_figures(self, links: Links) -> tuple[float, ...]:
        """Return k_a, k_b, m, b and s (see the module) for messages on these links."""
        if links.is_emulated or links.name == MEMORY.name:
            return self.shared
        if self.real is not None and not links.is_typed:
            return self.real
        return 1.0, 1.0, links.per_message, links.per_byte, self.shared[-1]

    def predict_step(
        self,
        key: tuple[str, str],
        workers: int,
        links: Links,
        samples: float,
        *,
        load: float = 1.0,
        best: bool = False,
        codec: float = 1.0,
        payload: float = 1.0,
        measured: MeasuredCell | None = None,
    ) -> StepTimes:
        """Predict a step of `key` (workload and method) with this many workers, each with `samples` in a step.

        Args:
            links: alpha and beta may be arrays.
            load: see `MeasuredCell`; 1 if workers have cores of their own.
            best: each collective takes its fastest algorithm, and not that of our runs.
            codec, payload: factors for the times of encoding and decoding, and for the bytes; may be arrays.
            measured: the cell whose exchange setting is used; None: the setting that such a run would have.
        """
        method, work = self.methods[key], self.works[key[0]]
        crowd = max(1.0, load) ** self.kappa
        compute = (work.fixed + work.each * samples) * crowd
        encode = codec * method.encode * crowd
        decode = codec * (method.decode + method.decode_each * method.traffic.count_payloads(workers)) * crowd
        k_a, k_b, per_message, per_byte, spread = self.get_figures(links)

        def compute_time(traffic: Traffic) -> Any:
            """Return the seconds of communication with this setting of the exchange."""
            where = (links.alpha, links.beta) if best else ()
            asked = compute_demand(traffic, workers, *where)
            size = asked.bytes * payload
            time = k_a * links.alpha * asked.latencies + k_b * links.beta * size
            time = time + (per_message * asked.messages + per_byte * size) * crowd
            if not overlaps:
                return time
            hidden = traffic.compute_overlap(compute * method.beside, encode)
            return compute_exposed(time, traffic.early_share, hidden)

        overlaps = method.overlaps if measured is None else measured.overlaps
        settings = method.traffic.list_settings(workers) if measured is None else [measured.get_traffic(method.traffic)]
        time = functools.reduce(np.minimum, map(compute_time, settings))
        return StepTimes(compute, encode, time + spread * (compute + encode) * expect_maximum(workers), decode)

    def predict_cell(self, cell: MeasuredCell) -> StepTimes:
        """Predict the step of a cell under the conditions of its measurement."""
        key = cell.workload, cell.method
        return self.predict_step(key, cell.workers, cell.links, cell.samples, load=cell.load, measured=cell)


def compute_exposed(time: float, share: float, hidden: float) -> float:
    """Return the part of `time` s that remains exposed if `share` of it can overlap with `hidden` s of work."""
    return np.maximum(time * (1 - share), time - hidden) if share else time


def expect_maximum(workers: int) -> float:
    """Return approximately the expected maximum of `workers` standard normal numbers (Blom, 1958); 0 for 1 worker."""
    return statistics.NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0


def fit_model(cells: Sequence[MeasuredCell], traffic: Mapping[tuple[str, str], Traffic]) -> CostModel:
    """Fit the model to these cells."""
    kappa = _fit_kappa(cells)
    works = {
        name: _fit_work([cell for cell in cells if cell.workload == name], kappa) for name in _list_workloads(cells)
    }
    methods = {}
    for key in dict.fromkeys((cell.workload, cell.method) for cell in cells):
        own = tuple(cell for cell in cells if (cell.workload, cell.method) == key)
        methods[key] = _fit_method(own, kappa, traffic[key])
    shared = tuple(_fit_shared(cells, traffic, kappa))
    elsewhere = [cell for cell in cells if not cell.links.is_emulated]
    real = None
    if any(cell.links.beta and cell.is_fair and cell.workers > 1 for cell in elsewhere):
        real = tuple(_fit_shared(elsewhere, traffic, kappa)) if len(elsewhere) < len(cells) else shared
    return CostModel(kappa, shared, works, methods, real)


def _list_workloads(cells: Sequence[MeasuredCell]) -> list[str]:
    return list(dict.fromkeys(cell.workload for cell in cells))


def _compute_crowding(cell: MeasuredCell, kappa: float) -> float:
    return max(1.0, cell.load) ** kappa


def _fit_kappa(cells: Sequence[MeasuredCell]) -> float:
    """Fit the exponent by which a rank's work slows down as more ranks share a core; 1 if no cores are shared."""
    if max(cell.load for cell in cells) <= 1:
        return 1.0
    groups = []
    for name in _list_workloads(cells):
        figures = [(max(1.0, cell.load), cell.samples, cell.compute_s) for cell in cells if cell.workload == name]
        groups.append(np.array(figures).T)
    losses = []
    for kappa in _KAPPAS:
        miss = 0.05 * abs(kappa - 1)
        for loads, samples, times in groups:
            crowds = loads**kappa
            fixed, each = _fit_compute(samples, times / crowds)
            miss += float(np.mean(np.abs(np.log((fixed + each * samples) * crowds / times))))
        losses.append(miss)
    return float(_KAPPAS[int(np.argmin(losses))])


def _fit_compute(samples: Array, times: Array) -> tuple[float, float]:
    """Return the seconds of a step and of a sample; those of a step are 0 if all cells have about the same samples."""
    if samples.max() < _APART * samples.min():
        return 0.0, float(np.median(times / samples))
    return _fit_line(samples, times)


def _fit_work(cells: Sequence[MeasuredCell], kappa: float) -> ComputeCost:
    samples = np.array([cell.samples for cell in cells])
    times = np.array([cell.compute_s / _compute_crowding(cell, kappa) for cell in cells])
    backward = float(np.median([cell.backward_s / cell.compute_s for cell in cells]))
    return ComputeCost(*_fit_compute(samples, times), backward)


@functools.lru_cache(maxsize=4096)  # most calls repeat, whichever cell is left out
def _fit_method(cells: tuple[MeasuredCell, ...], kappa: float, traffic: Traffic) -> MethodCost:
    crowds = np.array([_compute_crowding(cell, kappa) for cell in cells])
    encode = float(np.median(np.array([cell.encode_s for cell in cells]) / crowds))
    payloads = np.array([float(traffic.count_payloads(cell.workers)) for cell in cells])
    decode = _fit_decode(payloads, np.array([cell.decode_s for cell in cells]) / crowds)
    beside = float(np.median([cell.beside_s / cell.compute_s for cell in cells]))
    return MethodCost(encode, *decode, traffic, any(cell.overlaps for cell in cells), beside)


def _fit_decode(payloads: Array, times: Array) -> tuple[float, float]:
    """Return the seconds to decode: a constant, and the time of each payload."""
    if payloads.max() <= 1:
        return float(np.median(times)), 0.0
    if payloads.max() == payloads.min() or not times.max():
        return 0.0, float(np.median(times / payloads))
    return _fit_line(payloads, times)


def _fit_line(x: Array, values: Array) -> tuple[float, float]:
    """Return non-negative a and b of a + b x that minimise relative residuals, with less weight on large residuals."""
    from scipy.optimize import nnls

    columns = np.column_stack([np.ones_like(x), x])
    scale = np.maximum(values, values.max() * 1e-3)
    weights = np.ones_like(values)
    for _ in range(8):
        rows = weights / scale
        found, _ = nnls(columns * rows[:, None], values * rows)
        before, weights = weights, _weigh_residuals(np.abs(columns @ found - values) / scale, 0.1)
        if np.allclose(weights, before, atol=1e-3):
            break
    return float(found[0]), float(found[1])


def _fit_shared(cells: Sequence[MeasuredCell], traffic: Mapping[tuple[str, str], Traffic], kappa: float) -> Array:
    """Fit k_a, k_b, m, b and s (see the module) to the communication times of these cells."""
    from scipy.optimize import nnls

    rows, values = [], []
    for cell in cells:
        if cell.workers < 2 or not cell.is_fair:
            continue
        sent = cell.get_traffic(traffic[cell.workload, cell.method])
        asked, share = compute_demand(sent, cell.workers), sent.early_share
        hidden = 0.0
        if cell.overlaps and share:
            hidden = sent.compute_overlap(cell.beside_s, cell.encode_s)
            if cell.communicate_s < hidden * max(0.1, 1.1 * (1 - share) / share):
                continue  # only the last calls were waited for: the time of the others is unknown
        crowd = _compute_crowding(cell, kappa)
        network = (cell.links.alpha * asked.latencies, cell.links.beta * asked.bytes)
        own = (asked.messages * crowd, asked.bytes * crowd)
        rows.append(
            np.array([*network, *own, (cell.compute_s + cell.encode_s) * expect_maximum(cell.workers)]) / cell.step_s
        )
        values.append((cell.communicate_s + hidden) / cell.step_s)
    if not rows:
        return PRIOR
    columns, seen = np.array(rows), np.array(values)
    prior = np.diag(_NOISE / SPREAD)
    scale = SPREAD  # so that all coefficients are of one order
    weights = np.ones_like(seen)
    found = PRIOR
    for _ in range(8):
        matrix = np.vstack([columns * weights[:, None], prior]) * scale
        target = np.concatenate([seen * weights, prior @ PRIOR])
        solved, _ = nnls(matrix, target)
        found = solved * scale
        before, weights = weights, _weigh_residuals(np.abs(columns @ found - seen), _HUBER)
        if np.allclose(weights, before, atol=1e-3):
            break
    return found


def _weigh_residuals(residuals: Array, limit: float) -> Array:
    """Return weights for least squares that make residuals above the limit count linearly (Huber)."""
    return np.sqrt(np.minimum(1.0, limit / np.maximum(residuals, 1e-12)))


def stack_models(models: Sequence[CostModel], key: tuple[str, str]) -> CostModel:
    """Stack cost models into one for this method, with arrays of parameters, which predicts by all of them at once.

    The result ignores the load of cores.
    """
    methods, works = [one.methods[key] for one in models], [one.works[key[0]] for one in models]

    def together(found: Sequence[Any], field: str) -> Any:
        return np.array([getattr(one, field) for one in found])

    method = dataclasses.replace(
        methods[0], **{field: together(methods, field) for field in ("encode", "decode", "decode_each", "beside")}
    )
    work = ComputeCost(*(together(works, field) for field in ("fixed", "each", "backward")))
    shared = tuple(np.array([one.shared for one in models]).T)
    known = [one.real for one in models if one.real is not None]
    real = tuple(np.array(known).T) if len(known) == len(models) else None
    return CostModel(1.0, shared, {key[0]: work}, {key: method}, real)
