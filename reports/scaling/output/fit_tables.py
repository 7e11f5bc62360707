"""Build the tables of the fitted cost model, and of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.reading.text import format_number
from reports.scaling.model.cross_validation import CrossValidation, HeldOut
from reports.scaling.model.predict import Predictor
from reports.scaling.output.tables import TOPIC


def build_check_table(check: CrossValidation, remarks: Sequence[str]) -> ReportTable:
    """Return a table of every cell that was left out, with the prediction of the model of the others."""
    headers = ["workload", "network", "compressor", "batch", "workers"]
    optional = ("workload", "batch")
    keep = [key for key in headers if key not in optional or any(getattr(one.cell, key) for one in check.held)]
    rows, records = [], []
    for kind, held in (("left out alone", check.held), ("with all of its number of workers", check.beyond)):
        for one in held:
            cell = one.cell
            values = (cell.workload, cell.network, cell.method, cell.batch, cell.workers)
            names = dict(zip(headers, values, strict=True))
            records.append({**names, "left_out": kind, **_list_errors(one)})
            if kind == "left out alone":
                figures = (1e3 * one.cell.step_s, 1e3 * float(one.predicted.total))
                rows.append(
                    (
                        *(TableCell(names[key], str(names[key])) for key in keep),  # type: ignore[arg-type]
                        *(TableCell(value / 1e3, format_number(value)) for value in figures),
                        TableCell(one.error, f"{100 * one.error:+.1f}"),
                    )
                )
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
    cell, found = one.cell, one.predicted
    return {
        "samples": cell.samples,
        "threads_per_core": cell.load,
        "measured_s": cell.step_s,
        "predicted_s": float(found.total),
        "error": float(one.error),
        "compute_s": cell.compute_s,
        "compute_predicted_s": found.compute,
        "encode_s": cell.encode_s,
        "encode_predicted_s": found.encode,
        "communicate_s": cell.communicate_s,
        "communicate_predicted_s": float(found.communicate),
        "decode_s": cell.decode_s,
        "decode_predicted_s": found.decode,
    }


def summarize_check(check: CrossValidation) -> list[str]:
    """Describe the errors in a sentence or two."""
    said = [
        f"{len(check.held)} cells left out one by one: the step's time is off by {check.median:.1%} (median), "
        f"{check.p90:.1%} (90th percentile)"
    ]
    if check.limited:
        said.append(f"{check.limited} cells are not among them: the CPUs were their limit, not the network")
    if check.beyond:
        most = check.beyond[0].cell.workers
        said.append(f"fitted without any run of {most} workers, those are off by {check.beyond_median:.1%} (median)")
    return said


def build_model_table(predictor: Predictor) -> ReportTable:
    """Return a table of the fitted parameters."""
    model = predictor.model
    k_a, k_b, per_message, per_byte, spread = model.shared
    shared = [
        ("latency, times what was measured", k_a, "1"),
        ("bandwidth: a byte's time, times what was measured", k_b, "1"),
        ("MPI's own work for a message", per_message * 1e6, "us"),
        ("MPI's own work for a byte", per_byte * 1e9, "ns"),
        ("spread of the workers' compute", spread, "1"),
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
                make_text_cell(unit),
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
