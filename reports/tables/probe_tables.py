"""Read the files of network probes (python -m sweep probe), and build tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from gradsweep.options import units
from gradsweep.text import plural
from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.reading.networks import collect_transport
from reports.reading.text import choose_byte_unit, clean, format_number, join_words

COLLECTIVES = ("allreduce", "allgather", "alltoall", "bcast")
MEANINGS = {
    "latency": "the latency is more than 10 % off",
    "bandwidth": "the bandwidth is more than 10 % off",
    "cpu": "the CPUs, not the network, were the limit",
}


def find_files(*paths: Path) -> list[Path]:
    """Return the network.json files of probes at these paths or in directories of `python -m sweep probe`, sorted.

    Raises:
        UsageError: a path has no such file.
    """
    found: list[Path] = []
    patterns = [f"{above}{run_directory.NETWORK}" for above in ("", "*/", f"{run_directory.PROBES}/*/")]
    for path in paths:
        here = sorted({file for pattern in patterns for file in path.glob(pattern)}) if path.is_dir() else [path]
        if not here:
            raise UsageError(
                f"{path}: no {run_directory.NETWORK} here; "
                "valid is a probe's directory, such as output/<date>/<time>-probe"
            )
        found += here
    return list(dict.fromkeys(found))


def load_probe(path: Path) -> dict[str, Any]:
    """Return the content of a probe's network.json.

    Raises:
        UsageError: the file cannot be read, or is not of a probe.
    """
    try:
        found = files.read_json(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; valid is the {run_directory.NETWORK} of a probe") from error
    if found is None:
        raise UsageError(f"{path}: no JSON object is there; valid is the {run_directory.NETWORK} of a probe")
    if found.get("kind") != "probe":
        raise UsageError(f"{path}: not of a probe, whose `kind` is probe; valid is what `python -m sweep probe` writes")
    if found.get("format") != run_directory.FORMAT:
        raise UsageError(
            f"{path}: format={found.get('format')}: valid is {run_directory.FORMAT}, which this version can read"
        )
    missing = [key for key in ("network", "workers", "hosts", "collectives") if key not in found]
    if missing:
        raise UsageError(f"{path}: {join_words(missing)} missing; valid is what `python -m sweep probe` writes")
    return found


def format_title(probe: Mapping[str, Any]) -> str:
    """Return a line that names the network, the workers and the hosts of a probe."""
    network = probe["network"]
    own = [str(network[key]) for key in ("bandwidth", "latency") if key in network]
    if network.get("loss"):
        own.append(f"{100 * network['loss']:g} % loss")
    name = f"network={network['name']}" + (f" ({', '.join(own)})" if own else "")
    return clean(f"{name}, {plural(probe['workers'], 'worker')} on {plural(len(probe['hosts']), 'host')}")


def build_tables(probe: Mapping[str, Any]) -> list[ReportTable]:
    """Return the tables of a probe: links, times of collectives, and the lines fitted to these times."""
    about = format_title(probe)
    return [_build_link_table(probe, about), _build_time_table(probe), _build_line_table(probe)]


def _build_link_table(probe: Mapping[str, Any], about: str) -> ReportTable:
    measured, expected = probe.get("measured") or {}, probe.get("expected") or {}
    columns = (TableColumn("link"), TableColumn("measured"), *([TableColumn("expected")] if expected else []))
    rows, records = [], []
    for key, name, shown in (
        ("latency_s", "latency, one way", units.format_time),
        ("bandwidth", "bandwidth, one pair", units.format_bandwidth),
        ("ring_bandwidth", "bandwidth, all to the next", units.format_bandwidth),
    ):
        values = [measured.get(key), expected.get(key)]
        texts = ["" if value is None else units.spell_quantities(shown(value)) for value in values]
        pairs = zip(("" if value is None else value for value in values), texts, strict=True)
        cells = [make_text_cell(name), *(TableCell(value, text) for value, text in pairs)]
        rows.append(tuple(cells[: len(columns)]))
        records.append({"link": key, "measured": values[0], "expected": values[1]})
    busy = measured.get("busy_cores")
    if busy is not None:
        text = f"{format_number(busy, 2)} of {measured.get('cores')}"
        cells = [TableCell("busy cores", "busy cores meanwhile"), TableCell(busy, text), make_text_cell("")]
        rows.append(tuple(cells[: len(columns)]))
        records.append({"link": "busy_cores", "measured": busy, "expected": None})
    problems = (probe.get("emulation") or {}).get("problems") or []
    remarks = [*(MEANINGS[mark] for mark in probe.get("marks") or [] if mark in MEANINGS), *map(clean, problems)]
    return ReportTable("links", about, columns, 1, tuple(rows), remarks=tuple(remarks), records=tuple(records))


def _build_time_table(probe: Mapping[str, Any]) -> ReportTable:
    """Return a table of the times of some measured sizes, each 16 times as large as the previous one."""
    collectives = _select_collectives(probe)
    points = {name: {p["bytes"]: p for p in found["points"]} for name, found in collectives.items()}
    largest = max((size for found in points.values() for size in found), default=4)
    sizes = [4 * 16**power for power in range(1 + int(math.log(largest / 4, 16) + 1e-9))]
    columns = (TableColumn("collective"), *(TableColumn(format_size(size), "s", "ms") for size in sizes))
    rows, records = [], []
    for name in collectives:
        cells = [make_text_cell(name)]
        for size in sizes:
            nearest = min(points[name], key=lambda known: abs(math.log(known / size)), default=None)
            near = nearest is not None and 2 / 3 < nearest / size < 1.5
            point = points[name][nearest] if near and nearest is not None else None
            time = None if point is None else float(point["time_s"])
            word = "left out" if size >= (collectives[name].get("left_out") or {}).get("from_bytes", math.inf) else ""
            cells.append(
                TableCell(word, word, is_word=bool(word))
                if time is None
                else TableCell(time, format_number(1e3 * time))
            )
            records.append({"collective": name, "bytes": size if point is None else point["bytes"], "time_s": time})
        rows.append(tuple(cells))
    remarks = [
        "bytes: of a worker's buffer (allreduce, bcast), of its own part (allgather), of all that it sends (alltoall)",
        *_explain_left_out(collectives),
    ]
    title = "median time of a collective, until the last worker has it"
    return ReportTable("times", title, columns, 1, tuple(rows), remarks=tuple(remarks), records=tuple(records))


def _explain_left_out(collectives: Mapping[str, Any]) -> Iterator[str]:
    for name, found in collectives.items():
        if left := found.get("left_out"):
            yield f"{name}: left out from {format_size(left['from_bytes'])} on for lack of {clean(left['for_lack_of'])}"


def _build_line_table(probe: Mapping[str, Any]) -> ReportTable:
    columns = (
        TableColumn("collective"),
        TableColumn("algorithm"),
        TableColumn("from", "B", ""),
        TableColumn("to", "B", ""),
        TableColumn("alpha", "s", "ms"),
        TableColumn("1 / beta", "B/s", "MB/s"),
        TableColumn("residual", "", "%"),
        TableColumn("outliers", "", ""),
    )
    rows, records = [], []
    for name, found in _select_collectives(probe).items():
        for fit in found["fits"]:
            rate = 1 / fit["beta_s_per_byte"] if fit["beta_s_per_byte"] else math.inf
            chosen = fit["algorithm"] or "MPI's choice"
            outliers = fit.get("outliers") or []
            rows.append(
                (
                    make_text_cell(name),
                    TableCell(chosen, clean(chosen)),
                    TableCell(fit["from_bytes"], format_size(fit["from_bytes"])),
                    TableCell(fit["to_bytes"], format_size(fit["to_bytes"])),
                    TableCell(fit["alpha_s"], format_number(1e3 * fit["alpha_s"])),
                    TableCell(rate, format_number(rate / 1e6) if math.isfinite(rate) else "-"),
                    TableCell(fit["residual"], format_number(100 * fit["residual"], 2)),
                    TableCell(len(outliers), str(len(outliers)) if outliers else ""),
                )
            )
            records.append({"collective": name, **{key: value for key, value in fit.items() if key != "outliers"}})
    return ReportTable(
        "lines",
        "lines: alpha + beta x bytes",
        columns,
        2,
        tuple(rows),
        remarks=(_format_settings(probe),),
        records=tuple(records),
    )


def _format_settings(probe: Mapping[str, Any]) -> str:
    """Describe the MPI and the settings of the measured collectives, which are those of training."""
    given = ", ".join(
        f"{key.removeprefix('OMPI_MCA_')}={value}" for key, value in (probe.get("settings") or {}).items()
    )
    parts = [str(probe.get("mpi") or "MPI"), given or "with its own choice of algorithms"]
    if transport := collect_transport(probe.get("transport")):
        parts.insert(1, transport["transport"])
    if segment := probe.get("allreduce_segment_bytes"):
        parts.append(f"allreduce at most {format_size(segment)} at a time")
    return clean(f"as in training: {', '.join(parts)}")


def _select_collectives(probe: Mapping[str, Any]) -> dict[str, Any]:
    return {name: probe["collectives"][name] for name in COLLECTIVES if name in probe["collectives"]}


def format_size(size: float) -> str:
    """Return a number of bytes for people: 4 B, 65.5 kB, 67.1 MB."""
    scale, unit = choose_byte_unit(size)
    return f"{format_number(size / scale) if scale > 1 else round(size)} {unit}"
