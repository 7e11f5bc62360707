"""Build the tables of the fitted cost model, and of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradsweep.options.units import spell_quantities
from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.reading.text import format_number, format_percent
from reports.scaling.measured.cell import MeasuredCell
from reports.scaling.model.cross_validation import CrossValidation, HeldOut
from reports.scaling.model.predict import Predictor
from reports.scaling.output.tables import TOPIC


def build_check_table(check: CrossValidation, remarks: Sequence[str]) -> ReportTable:
    """Return a table of the left-out cells, each predicted by the cost model of the other cells."""
    headers = ["workload", "network", "compressor", "batch", "workers"]
    optional = ("workload", "batch")
    keep = [key for key in headers if key not in optional or any(getattr(one.cell, key) for one in check.held)]

    def name(cell: MeasuredCell) -> dict[str, Any]:
        values = (cell.workload, cell.network, cell.method, cell.batch, cell.workers)
        return dict(zip(headers, values, strict=True))

    kinds = (("left out alone", check.held), ("with all of its number of workers", check.beyond))
    records = [{**name(one.cell), "left_out": kind, **_list_errors(one)} for kind, held in kinds for one in held]
    rows = [
        (
            *(TableCell(name(one.cell)[key], spell_quantities(str(name(one.cell)[key]))) for key in keep),
            *(TableCell(time, format_number(1e3 * time)) for time in (one.cell.step_s, float(one.predicted.total))),
            TableCell(one.error, f"{100 * one.error:+.1f}"),
        )
        for one in check.held
    ]
    return ReportTable(
        "scaling_check",
        "Step time of each cell, by a model that was fitted without it",
        (
            *map(TableColumn, keep),
            TableColumn("measured", "s", "ms"),
            TableColumn("predicted", "s", "ms"),
            TableColumn("error", "fraction", "%"),
        ),
        len(keep),
        tuple(rows),
        remarks=(*summarize_check(check), *remarks),
        records=tuple(records),
        topic=TOPIC,
    )


def _list_errors(one: HeldOut) -> dict[str, Any]:
    cell = one.cell
    errors = {
        "samples": cell.samples,
        "threads_per_core": cell.load,
        "measured_s": cell.step_s,
        "predicted_s": float(one.predicted.total),
        "error": float(one.error),
    }
    for part in ("compute", "encode", "communicate", "decode"):
        errors[f"{part}_s"] = getattr(cell, f"{part}_s")
        errors[f"{part}_predicted_s"] = float(getattr(one.predicted, part))
    return errors


def summarize_check(check: CrossValidation) -> list[str]:
    """Describe the errors in a sentence or two."""
    said = [
        f"{len(check.held)} cells left out one by one: the step's time is off by "
        f"{format_percent(check.median, 1)} (median), {format_percent(check.p90, 1)} (90th percentile)"
    ]
    if check.limited:
        said.append(f"{check.limited} cells are not among them: the CPUs were their limit, not the network")
    if check.beyond:
        most = check.beyond[0].cell.workers
        off = format_percent(check.beyond_median, 1)
        said.append(f"fitted without any run of {most} workers, those are off by {off} (median)")
    return said


_SPELLED = {"1": "", "us": "µs"}

EMULATED = ", in these runs and on emulated networks only"


def _list_figures(figures: Sequence[float], where: str) -> list[tuple[str, float, str]]:
    """Return the fitted figures of messages with their names and units; `where` says on which networks they hold."""
    k_a, k_b, per_message, per_byte, _ = figures
    return [
        (f"latency, times what was measured{where}", k_a, "1"),
        (f"bandwidth: a byte's time, times what was measured{where}", k_b, "1"),
        (f"MPI's own work for a message{where}", per_message * 1e6, "us"),
        (f"MPI's own work for a byte{where}", per_byte * 1e9, "ns"),
    ]


def build_model_table(predictor: Predictor) -> ReportTable:
    """Return a table of the fitted parameters."""
    model = predictor.model
    shared = [
        *_list_figures(model.shared, "" if model.real == model.shared else EMULATED),
        *(_list_figures(model.real, ", on real networks") if model.real not in (None, model.shared) else ()),
        ("spread of the workers' compute", model.shared[-1], "1"),
        ("exponent of threads a core", model.kappa, "1"),
    ]
    rows: list[tuple[str, str, float, str]] = [("", what, value, unit) for what, value, unit in shared]
    for workload, work in model.works.items():
        rows += [(workload, "compute of a worker alone, a step", 1e3 * work.fixed, "ms")]
        rows += [(workload, "compute of a worker alone, a sample", 1e3 * work.each, "ms")]
    for (workload, method), one in model.methods.items():
        traffic = one.traffic
        rows += [(workload, f"{method}: encode", 1e3 * one.encode, "ms")]
        rows += [(workload, f"{method}: decode", 1e3 * one.decode, "ms")]
        rows += [(workload, f"{method}: decode each payload", 1e3 * one.decode_each, "ms")] if one.decode_each else []
        rows += [(workload, f"{method}: summed by the network", traffic.summed / 1e6, "MB")] if traffic.summed else []
        rows += [(workload, f"{method}: sent to others", traffic.gathered / 1e6, "MB")] if traffic.gathered else []
    keep = 0 if any(row[0] for row in rows) else 1
    return ReportTable(
        "scaling_model",
        "What was fitted",
        (TableColumn("workload"), TableColumn("part"), TableColumn("value", "number"), TableColumn("unit"))[keep:],
        2 - keep,
        tuple(
            (
                make_text_cell(name),
                make_text_cell(what),
                TableCell(value, format_number(value)),
                make_text_cell(_SPELLED.get(unit, unit)),
            )[keep:]
            for name, what, value, unit in rows
        ),
        remarks=(
            "compute, encoding and decoding are those of a worker with cores of its own; where all runs had more "
            "threads than cores they follow from those with the fewest threads a core and the exponent",
        ),
        records=tuple(
            {"workload": name, "part": what, "value": float(value), "unit": unit} for name, what, value, unit in rows
        ),
        topic=TOPIC,
    )
