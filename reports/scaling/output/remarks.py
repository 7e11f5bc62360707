"""Write the remarks below the tables of `python -m reports scaling`."""

from __future__ import annotations

from collections.abc import Sequence

from gradsweep.options.units import format_time
from reports.reading.text import format_number
from reports.scaling.measured.links import Links, describe_links, is_same_latency
from reports.scaling.model.predict import Predictor


def write_notes(predictor: Predictor, links: Sequence[Links]) -> list[str]:
    """Return remarks that concern all predictions."""
    said = ["; ".join(describe_links(links)), *_describe_overheads(predictor, links)]
    for workload in predictor.measurements.workloads:
        samples = format_number(predictor.get_samples(workload))
        said.append(f"{workload}: {samples} samples a worker" if workload else f"{samples} samples a worker")
    said += [_explain_limit(name, name in {one.name for one in links}) for name in predictor.measurements.limited]
    if not predictor.measurements.networks:
        said.append(
            "no run has measured a network: latency and bandwidth count as in a textbook, and no interval can be told; "
            "run some of it with network=ethernet_1g too"
        )
    counts = {
        cell.workers for cell in predictor.measurements.cells if cell.is_fair and cell.links.beta and cell.workers > 1
    }
    if len(counts) == 1:
        said.append(
            f"only runs with {counts.pop()} workers have measured a network: what more of them do to it is known from "
            "the algorithms alone; run others on a network too, slow enough for the CPUs"
        )
    said += [f"not modelled: {line}" for line in predictor.measurements.left_out]
    said += predictor.measurements.remarks
    if predictor.best:
        said.append("each collective takes its fastest algorithm; our runs take rings")
    return [line for line in said if line]


def _describe_overheads(predictor: Predictor, links: Sequence[Links]) -> list[str]:
    """Return sentences on the CPU times of messages that predictions use on each network, and on their source."""
    model = predictor.model
    by_figures: dict[tuple[str, float, float], list[str]] = {}
    for one in links:
        _, _, per_message, per_byte, _ = model.get_figures(one)
        if one.is_emulated:
            source = "as fitted to the emulated runs"
        elif one.is_typed:
            source = "as typed"
        elif model.real is not None:
            source = "as fitted to the runs on a real network"
        else:
            source = "usual figures (--overhead), since no run has measured a real network"
        by_figures.setdefault((source, float(per_message), float(per_byte)), []).append(one.name)
    return [
        f"{', '.join(names)}: MPI's own work is {format_time(per_message)} a message and {1e9 * per_byte:.2g} ns a "
        f"byte, {source}"
        for (source, per_message, per_byte), names in by_figures.items()
    ]


def _explain_limit(name: str, is_told: bool) -> str:
    said = f"{name}: the CPUs were the limit in all its runs, which tell nothing of the network"
    return f"{said}; its figures are nominal" if is_told else said


def explain_other_latencies(links: Sequence[Links], seconds: float) -> list[str]:
    """Return a remark on networks whose latency differs from that of the map and the break-even bandwidths."""
    others = [one for one in links if one.beta and not is_same_latency(one.alpha, seconds)]
    told = ", ".join(f"{one.name} {format_time(one.alpha)}" for one in others)
    return [f"other latencies have other answers (--latency): {told}"] if others else []
