"""Choose and draw the plots of a sweep by its swept keys.

Where algorithms were swept, a label is an algorithm with its compressor (`Grid.by_method`). Runs that differ only in
their seed are one line, bar or point, their mean with its 95 % interval (Student's t). A run without numbers is named
with its status. Many compressors become small multiples, or bars sorted by their length; more than can be seen are
summarized. A plot without any data is not made.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterator

import matplotlib
import pandas as pd

from reports.analysis.grid import Grid
from reports.analysis.measures import add_tokens, name_samples
from reports.analysis.targets import is_evaluated_by_step
from reports.plots import bars, curves, pareto, scaling, style, swept
from reports.plots.layout import lay_out_panels
from reports.plots.picture import Maker, Plot
from reports.reading.columns import list_metrics


def list_makers(grid: Grid, epochs: pd.DataFrame, profile: pd.DataFrame) -> dict[str, Maker]:
    """Return the functions that make a sweep's plots, by name, in the order of a report; none if there are no runs.

    Args:
        grid: the layout of the sweep's runs.
        epochs, profile: as in `Report`.
    """
    methods = grid.by_method
    workers = pd.to_numeric(methods.runs["workers"], errors="coerce").astype("float64")
    runs = methods.runs.assign(workers=workers)[workers >= 1]
    if runs.empty:
        return {}
    if runs["cell"].duplicated().any():
        importlib.import_module("scipy.special")  # for the intervals: once for all forks
    apart, together = lay_out_panels(methods, runs, ["workers"]), lay_out_panels(methods, runs, [])
    time, sent = curves.make_time_axis(epochs["time_s"].max()), curves.make_bytes_axis(epochs["sent_bytes"])
    epochs, progress = add_tokens(epochs, runs), curves.EPOCH
    if "tokens" in epochs:
        progress = curves.make_tokens_axis(epochs["tokens"].max())
    elif is_evaluated_by_step(epochs):
        progress = curves.STEP
    make = functools.partial
    found: dict[str, Maker] = {
        "race": make(bars.plot_race, apart),
        "throughput": make(scaling.plot_throughput, together),
        "efficiency": make(scaling.plot_efficiency, together),
    }
    for measure in (curves.ACCURACY, curves.LOSS, *map(curves.make_metric_axis, list_metrics(epochs))):
        for axis in (progress, time, sent):
            found[f"{measure.name}_{axis.name}"] = make(curves.plot_curves, apart, epochs, axis, measure)
    speed = dataclasses.replace(pareto.SPEED, unit=f"{name_samples(runs)}/s")
    for cost in (speed, pareto.BYTES):
        found[f"pareto_{cost.name}"] = make(pareto.plot_pareto, apart, cost)
    found["heatmap_accuracy"] = make(swept.plot_heat_map, grid, "accuracy", "Test accuracy", "%", 100)
    found["heatmap_throughput"] = make(swept.plot_heat_map, grid, "iterations_per_second", "Throughput", "it/s")
    found["parallel"] = make(swept.plot_parallel_coordinates, grid)
    found["breakdown"] = make(bars.plot_breakdown, apart)
    for measure in (curves.ERROR, curves.MEMORY):
        found[f"{measure.name}_step"] = make(curves.plot_curves, apart, profile, curves.STEP, measure)
    local = ((curves.LOCAL, progress), (curves.CONSENSUS, progress), (curves.CONSENSUS, sent))
    for measure, axis in local if epochs[curves.CONSENSUS.column].notna().any() else ():
        found[f"{measure.name}_{axis.name}"] = make(curves.plot_curves, apart, epochs, axis, measure)
    return found


def make_plots(grid: Grid, epochs: pd.DataFrame, profile: pd.DataFrame) -> Iterator[Plot]:
    """Yield those plots of `list_makers` that have data, before they are drawn."""
    with matplotlib.rc_context(fname=style.STYLE):
        for maker in list_makers(grid, epochs, profile).values():
            if plot := maker():
                yield plot
