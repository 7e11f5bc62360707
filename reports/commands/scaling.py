"""Predict the steps of a sweep's methods with other networks and more workers, from its finished runs alone.

A cost model (compute, encoding, decoding, messages) is fitted to the runs and checked on each of them by the others.
Tables and pictures go into scaling/ of the sweep's directory, of several sweeps into --into. docs/guide/scaling.md
tells what the model is, and how far it can be trusted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradsweep.cli.tables import print_line
from gradsweep.errors import UsageError, bad_value
from reports.commands import baseline_options, table_options
from reports.commands.build import format_path
from reports.commands.table_options import FORMATS_BY_DEFAULT
from reports.tables.file_formats import PICTURES, TABLES

if TYPE_CHECKING:
    from reports.analysis.table import ReportTable
    from reports.scaling.measured.links import Links  # these load numpy, which --help does without
    from reports.scaling.model.predict import Predictor

PLACE = "scaling"  # below a sweep's directory
_MOST = 4_000  # predictions
_MAP_LATENCY = "50us"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a sweep's directory, or one with sweeps")
    parser.add_argument(
        "--network",
        metavar="N,N",
        default="1gbit,10gbit,100gbit,infiniband",
        help="bandwidths (25gbit), infiniband, and presets of network (ethernet_1g); default: %(default)s",
    )
    parser.add_argument("--workers", metavar="N", default="2..1024", help="2..1024 (default), or 2,4,96")
    parser.add_argument("--latency", metavar="TIME", help="one way, of all these networks: 50us")
    parser.add_argument(
        "--overhead",
        metavar="TIME",
        help="of the CPU for a message on these networks: 2us; default: as measured on a real network, else 1.5us",
    )
    parser.add_argument("--probe", metavar="FILE", type=Path, help="network.json of `python -m sweep probe`")
    parser.add_argument("--samples", metavar="N", type=float, help="of a worker in a step; default: as in the runs")
    parser.add_argument(
        "--best", action="store_true", help="each collective takes its fastest algorithm, not that of our runs"
    )
    parser.add_argument("--into", metavar="DIR", type=Path, help="where it goes, of several sweeps")
    parser.add_argument(
        "--format", metavar="F,F", default=FORMATS_BY_DEFAULT, help=f"of {', '.join(TABLES)}; default: %(default)s"
    )
    parser.add_argument("--plots", metavar="F,F", default="png", help=f"of {', '.join(PICTURES)}; default: png")
    parser.add_argument("--no-plots", dest="plots", action="store_const", const="", help="no pictures")
    parser.add_argument("--quiet", action="store_true", help="print only where it is")


def run(options: argparse.Namespace) -> int:
    from reports.scaling.measured.links import parse_networks, parse_overhead, parse_workers

    pictures = table_options.parse_words("--plots", options.plots, PICTURES)
    formats = table_options.parse_words("--format", options.format, TABLES)
    asked = parse_networks(options.network, options.latency, options.probe, options.overhead)
    workers = parse_workers(options.workers)
    if options.samples is not None and not 0 < options.samples < 1e9:
        raise bad_value("--samples", options.samples, "a number above 0, of samples of a worker in a step")
    predictor, place = _fit_model(options)
    named = {one.name for one in asked}
    promised = [one for one in predictor.measurements.promised if one.name not in named]
    links = [*predictor.measurements.networks, *promised, *asked]
    methods = sum(len(predictor.measurements.list_methods(workload)) for workload in predictor.measurements.workloads)
    if methods * len(links) * len(workers) > _MOST:
        raise UsageError(
            f"scaling: {methods} methods x {len(links)} networks x {len(workers)} numbers of workers are more than "
            f"{_MOST} predictions; ask for fewer networks or workers"
        )
    if not links:
        raise bad_value("--network", options.network, "one network or more, where the runs have measured none")
    if len(names := [one.name for one in links]) > len(set(names)):
        links = list({one.name: one for one in reversed(links)}.values())[::-1]  # keeps the first of each name
    place.mkdir(parents=True, exist_ok=True)
    latency = options.latency or _MAP_LATENCY
    overhead = parse_overhead(options.overhead)
    tables, closest = _write(predictor, links, workers, latency, overhead, place, formats, pictures)
    if not options.quiet:
        _print_summary(predictor, tables, closest)
    print(format_path(place), flush=True)
    return 0


def _fit_model(options: argparse.Namespace) -> tuple[Predictor, Path]:
    """Fit a model to the named sweeps; return the model and the directory for its report."""
    predictor, sweeps = fit_predictor(options.paths, options.samples, options.best)
    one = options.into is None and len(sweeps) == 1
    place = sweeps[0] if one else baseline_options.choose_directory(options.into, sweeps)
    return predictor, place / PLACE if one else place


def fit_predictor(
    paths: Sequence[Path], samples: float | None = None, best: bool = False
) -> tuple[Predictor, Sequence[Path]]:
    """Fit a model to the sweeps at these paths; return the model and the sweeps' directories.

    Raises:
        gradsweep.errors.UsageError: the sweeps have no runs to which a model can be fitted, or the model predicts
            nothing.
    """
    from reports.building.sweep_report import get_swept_keys
    from reports.reading.find_runs import find_sweeps
    from reports.reading.report import Report
    from reports.scaling.measured import measurements
    from reports.scaling.model import cross_validation, fit
    from reports.scaling.model.predict import Predictor

    sweeps = find_sweeps(*paths)
    report = Report(sweeps).merge()
    infos = [report.read_info(sweep) for sweep in sweeps]
    found = measurements.read_measurements(
        report.runs, [key for info in infos for key in get_swept_keys(info)], str(infos[0].get("command", ""))
    )
    checked = cross_validation.cross_validate(found)
    cross_validation.refuse_poor_fit(checked)
    model = fit.fit_model(found.cells, found.traffic)
    return Predictor(found, model, checked, samples, best), sweeps


def _write(
    predictor: Predictor,
    links: Sequence[Links],
    workers: Sequence[int],
    latency: str,
    overhead: float | None,
    place: Path,
    formats: Sequence[str],
    pictures: Sequence[str],
) -> tuple[list[ReportTable], list[str]]:
    """Write all tables and pictures; return the tables, and sentences on the smallest changes that would alter an
    answer.
    """
    from gradsweep.options.units import seconds
    from reports.scaling.measured.links import parse_network
    from reports.scaling.model import break_even
    from reports.scaling.output import fit_tables, remarks, speedup, tables
    from reports.tables.formats import save_table

    parts = predictor.measurements
    by_name = {one.name: one for one in links}
    predictions = predictor.predict(links, workers)
    one_way = seconds(latency) or 0.0
    wire = parse_network("1gbit", one_way, overhead)
    maps = {workload: break_even.compute_win_map(predictor, workload, workers, wire) for workload in parts.workloads}
    evens = [even for workload, one in maps.items() for even in break_even.find_break_even(one, workload)]
    notes = remarks.write_notes(predictor, links)
    missing = break_even.find_needed(predictor, predictions, by_name)
    times = speedup.compute_speedups(predictor, predictions, by_name)
    rivals = speedup.find_rivals(times, predictions, parts.compressors)
    uncertain = {key: tables.Rival(one.method, one.times, one.is_close) for key, one in rivals.items()}
    closest = tables.describe_closest(missing, uncertain)
    made = [
        tables.build_fastest_table(predictions, parts.compressors, uncertain, notes),
        speedup.build_table(times, notes),
        tables.build_break_even_table(evens, latency, remarks.explain_other_latencies(links, one_way)),
        tables.build_throughput_table(predictions, notes),
        tables.build_efficiency_table(predictions, notes),
        tables.build_needed_table(missing, [*closest, *notes]),
        tables.build_published_table(predictor, predictions, by_name),
        fit_tables.build_check_table(predictor.check, ()),
        fit_tables.build_model_table(predictor),
    ]
    made = [table for table in made if table.rows]
    for table in made:
        save_table(table, place, formats)
    if pictures:
        from reports.plots.picture import Drawing
        from reports.scaling.output.pictures import list_makers

        makes = list_makers(predictor.check, predictions, maps, evens, times, links, latency)
        with Drawing(makes, place, ["png", *pictures]) as drawing:
            drawing.finish()
    return made, closest


def _print_summary(predictor: Predictor, made: Sequence[ReportTable], closest: Sequence[str]) -> None:
    from reports.scaling.output.fit_tables import summarize_check
    from reports.tables import terminal

    for line in summarize_check(predictor.check):
        print_line(line, "bold")
    terminal.print_tables([table for table in made if table.name in ("scaling_fastest", "scaling_break_even")])
    for line in closest:
        print_line(line)
    print_line("")
