"""Plots with the swept keys as axes: a heat map of two of them, parallel coordinates of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gradsweep import run_directory
from gradsweep.text import plural
from reports.analysis.grid import Grid, is_method_key
from reports.analysis.measures import THROUGHPUT, find_own_intervals, select_once
from reports.analysis.table import NO_RUN
from reports.plots import layout as layouts
from reports.plots.layout import COLUMN, SMALL, TEXT, WIDE, escape_label
from reports.plots.lines import average_groups
from reports.plots.picture import Plot
from reports.reading.text import format_number, format_setting, format_spread, join_words, make_sort_key

_COLOURS = "viridis"  # from dark to light, for prints in grey and any colour vision
_REPEATS = ("run", "sweep")
_CHARACTERS = 13.0  # of a heading that fit into an inch
_BAR = 0.55  # inches: the scale of the colours
_SPAN, _SPAN_UNKNOWN = 5, 0.05  # least span of the colours: in intervals, and as a share of the highest if not known
_MAX_SIDE = 24  # values of a key in a heat map
_MAX_PANELS = 24
_MAX_AXES = 8  # keys in parallel coordinates
_ORDINAL = 9  # values of a key, up to which each has its tick at an equal distance
_BESIDE = 0.12  # of their distance: how far lines through the same value lie apart
_MAX_TICKS = 24
_MAX_LINES = 500  # above, lines that run together between two axes become one, wider the more they are
_TILES = 40


def find_swept_keys(grid: Grid) -> list[str]:
    """Return the swept columns of `Grid.runs`: first other keys, then `workers` and `label`.

    If there is one compressor, its swept options replace `label`. The list is empty if only compressors and workers
    were swept, since other plots show these.
    """
    runs, keys = grid.runs, [key for key in grid.keys if key not in _REPEATS]
    is_single = runs["compressor"].nunique(dropna=False) == 1
    if is_single:
        keys = [key for key in runs if str(key).startswith("compressor.") and runs[key].nunique() > 1] + keys
    others = ["workers"] if is_single else ["workers", "label"]
    found = [key for key in [*keys, *others] if runs[key].nunique(dropna=False) > 1]
    return found if set(found) & set(keys) else []


def plot_heat_map(grid: Grid, column: str, title: str, unit: str, scale: float = 1) -> Plot | None:
    """Plot a measure by two swept keys, with a panel for each setting of the others; the numbers are means, with half
    of their 95 % intervals where these are known.

    Returns None if fewer than two keys were swept, or if there are more panels or values than can be seen.
    """
    keys = find_swept_keys(grid)
    if len(keys) < 2:
        return None
    runs = grid.runs.assign(value=(grid.runs[column] * scale).where(select_once(grid.runs, column)))
    sides = sorted(keys[:2], key=lambda key: runs[key].nunique(dropna=False))
    sides = sides if "label" not in sides else ["label", *(key for key in sides if key != "label")]
    (down, rows), (across, columns) = ((key, sorted(runs[key].unique(), key=make_sort_key)) for key in sides)
    groups = list(runs.groupby(keys[2:], dropna=False)) if keys[2:] else [((), runs)]
    is_too_large = max(len(rows), len(columns)) > _MAX_SIDE or len(groups) > _MAX_PANELS
    if runs["value"].isna().all() or is_too_large:
        return None
    # The order of tables, where `none` is first.
    rows = list(runs["label"].unique()) if down == "label" else rows
    fields = _average_fields(runs, [*keys[2:], down, across], column)
    has_halves = bool(fields["half"].notna().any())
    height = 0.3 if has_halves else 0.22
    width = 0.46 * len(columns) + 0.075 * max(len(format_setting(row)) for row in rows) + 0.5
    abreast = max(1, min(len(groups), int((TEXT - _BAR) / width)))
    lines = math.ceil(len(groups) / abreast)
    size = (COLUMN if abreast * width + _BAR <= COLUMN else TEXT, lines * (height * len(rows) + 0.75) + 0.15)
    figure = Figure(figsize=size)
    axes = list(figure.subplots(lines, abreast, squeeze=False).flat)
    for unused in axes[len(groups) :]:
        unused.remove()
    axes = axes[: len(groups)]
    norm = _choose_colours(fields, 100 if unit == "%" else math.inf)
    font = min(SMALL, 72 * (size[0] - _BAR - abreast * (width - 0.46 * len(columns))) / abreast / len(columns) / 3.5)
    for axis, (values, part) in zip(axes, groups, strict=True):
        here = fields.loc[part.index]
        _draw_panel(
            axis, part.assign(value=here["mean"], half=here["half"]), (down, rows), (across, columns), norm, font
        )
        texts = [
            f"{_name_key(key)}={format_setting(value) or 'null'}" for key, value in zip(keys[2:], values, strict=True)
        ]
        axis.set_title(escape_label(", ".join(texts)))
    layouts.label_axes(axes, escape_label(_name_key(across)), "", "")
    figure.supylabel(escape_label(_name_key(down)), fontsize=rcParams["axes.labelsize"])
    bar = figure.colorbar(ScalarMappable(norm, _COLOURS), ax=axes, aspect=14, pad=0.02, shrink=min(1.0, 2.5 / size[1]))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALL, length=2)
    name = column if column != "iterations_per_second" else "throughput"
    what = f"{title} [{unit}] by {_name_key(down)} and {_name_key(across)}"
    about = f"±: half the 95 % interval. Colours span at least {_SPAN} intervals." if has_halves else "Single runs."
    heading = [
        escape_label(line, len(line))
        for text in (what, about)
        for line in layouts.wrap_text(text, int(_CHARACTERS * size[0]))
    ]
    figure.set_figheight(size[1] + 0.15 * (len(heading) - 2))
    figure.suptitle("\n".join(heading), x=0.01, ha="left", fontsize=8.5, fontweight="normal")
    most = fields["mean"].idxmax()
    at = ", ".join(f"{_name_key(key)}={format_setting(runs.at[most, key])}" for key in keys)
    ends = f"from {format_number(fields['mean'].min())} to {format_number(fields['mean'].max())}"
    alt = f"{what}, {ends}; the highest with {at}."
    return Plot(f"heatmap_{name}", what.replace(f" [{unit}]", ""), alt, figure)


def _average_fields(runs: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """Return for each run the mean of its field, and half of its 95 % interval; NaN if it is not known.

    Args:
        runs: of a grid, with the column `value`.
        by: the keys whose values make a field.
        column: the measure; a throughput that a single run has measured has an interval of its own.
    """
    fields = runs.groupby(list(by), dropna=False, sort=False)
    numbers = fields.ngroup().to_numpy()
    values = [group.dropna().to_numpy("float64") for _, group in fields["value"]]
    mean, low, high = average_groups(values)
    found = pd.DataFrame({"mean": mean[numbers], "half": ((high - low) / 2)[numbers]}, runs.index)
    if column == THROUGHPUT.column:
        own = find_own_intervals(runs)
        found["half"] = found["half"].fillna(pd.Series((own[:, 1] - own[:, 0]) / 2, runs.index))
    return found


def _choose_colours(fields: pd.DataFrame, top: float) -> Normalize:
    """Return the scale of the colours: from the lowest to the highest mean, but so wide that intervals are small on it.

    Otherwise the noise of equal fields would look like structure. The scale does not reach above `top`.
    """
    low, high = fields["mean"].min(), fields["mean"].max()
    half = fields["half"].median()
    least = _SPAN * 2 * half if half > 0 else _SPAN_UNKNOWN * abs(high)
    if high - low < least:
        middle = (low + high) / 2
        high = min(middle + least / 2, max(top, high))
        low = high - least
    return Normalize(low, high)


def _draw_panel(
    axis: Axes,
    runs: pd.DataFrame,
    down: tuple[str, Sequence[Any]],
    across: tuple[str, Sequence[Any]],
    norm: Normalize,
    font: float,
) -> None:
    fields = runs.groupby([down[0], across[0]], dropna=False, sort=False)
    shares = fields.agg(value=("value", "first"), half=("half", "first"), status=("status", "first"))
    found = {tuple(map(format_setting, names)): figures for names, *figures in shares.itertuples()}
    is_method = is_method_key(down[0]) and is_method_key(
        across[0]
    )  # missing combinations are impossible: sgd on a ring
    shown = np.full((len(down[1]), len(across[1])), np.nan)
    colours = matplotlib.colormaps[_COLOURS]
    for y, row in enumerate(down[1]):
        for x, column in enumerate(across[1]):
            at = format_setting(row), format_setting(column)
            value, half, word = found.get(at, (math.nan, math.nan, NO_RUN))
            text = _format_field(value, half) or ("–" if word == run_directory.DONE else word)
            text = "" if is_method and word == NO_RUN else text
            shown[y, x] = value
            is_dark = math.isfinite(value) and sum(colours(norm(value))[:3]) < 1.5
            size = font if math.isfinite(value) else min(5.5, font)
            colour = "white" if is_dark else "black"
            axis.text(
                x, y, text, ha="center", va="center", fontsize=size, color=colour, in_layout=False, linespacing=0.95
            )
    axis.imshow(np.ma.masked_invalid(shown), cmap=_COLOURS, norm=norm, aspect="auto")
    axis.set_xticks(range(len(across[1])), [escape_label(format_setting(value) or "null", 12) for value in across[1]])
    axis.set_yticks(range(len(down[1])), [escape_label(format_setting(value) or "null", 24) for value in down[1]])
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


def _format_field(value: float, half: float) -> str:
    """Return the mean, and below it half of its interval; empty without a mean."""
    if not math.isfinite(value):
        return ""
    return format_spread(value, half).replace(" ± ", "\n± ") if math.isfinite(half) else format_number(value)


def plot_parallel_coordinates(grid: Grid) -> Plot | None:
    """Plot the swept keys, accuracy and throughput as axes, and a line for each cell, coloured by accuracy.

    Returns None if fewer than two keys were swept.
    """
    keys = find_swept_keys(grid)
    runs = grid.runs[grid.runs["status"] == run_directory.DONE]
    if len(keys) < 2:
        return None
    cells = runs.groupby("cell", sort=False).agg(
        **{key: (key, "first") for key in keys},
        accuracy=("accuracy", "mean"),
        throughput=("iterations_per_second", "mean"),
    )
    cells = cells.dropna(subset="accuracy").sort_values("accuracy")
    if len(cells) < 3:
        return None
    shown = keys if len(keys) <= _MAX_AXES else [*keys[: _MAX_AXES - 1], keys[-1]]
    results = ["accuracy", *(["throughput"] if cells["throughput"].notna().any() else [])]
    figure = Figure(figsize=(COLUMN if len(shown) <= 2 else TEXT, 2.6))
    axis = figure.subplots()
    heights = []
    for place, key in enumerate([*shown, *results]):
        values = cells[key] * 100 if key == "accuracy" else cells[key]
        at, ticks = _place_values(list(values), key in results)
        heights.append(at)
        _draw_upright(axis, place, key, ticks)
    _draw_threads(axis, np.column_stack(heights), cells["accuracy"].to_numpy() * 100)
    axis.set_xlim(-0.3, len(heights) - 0.7)
    axis.set_ylim(-0.14, 1.14)
    axis.axis("off")
    omitted = f", of {len(keys)} keys swept {len(shown)} are shown" if len(shown) < len(keys) else ""
    lost = grid.runs["cell"].nunique() - len(cells)
    omitted += f", {plural(lost, 'cell')} without a result" if lost else ""
    wide = ", the wider the more" if len(cells) > _MAX_LINES else ""
    figure.suptitle(
        f"one line for each of {len(cells)} cells{wide}, the lighter the more accurate{omitted}",
        x=0.01,
        ha="left",
        fontsize=8,
        fontweight="normal",
    )
    best = cells.iloc[-1]
    where = ", ".join(f"{_name_key(key)}={format_setting(best[key])}" for key in keys)
    of = f"{join_words([_name_key(key) for key in shown])}, accuracy and throughput"
    most = f"the most accurate, {format_number(best['accuracy'] * 100)} %, has {where}"
    alt = f"Parallel coordinates of {of}, {plural(len(cells), 'cell')}; {most}."
    return Plot("parallel", "Swept keys, accuracy and throughput", alt, figure)


def _place_values(values: Sequence[Any], is_result: bool) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Return the heights of the values in [0, 1], (values,), and the ticks of their axis.

    A few distinct values are spaced evenly; numbers that are decades apart are on a logarithmic scale.
    """
    distinct = sorted(dict.fromkeys(values), key=make_sort_key)
    is_number = pd.api.types.is_numeric_dtype(np.array(distinct)) and np.isfinite(np.array(distinct, float)).all()
    if not is_result and (len(distinct) <= _ORDINAL or not is_number):
        step = 1 / max(len(distinct) - 1, 1)
        place = {format_setting(value): rank * step for rank, value in enumerate(distinct)}
        every = math.ceil(len(distinct) / _MAX_TICKS)
        ticks = [(place[format_setting(value)], format_setting(value) or "null") for value in distinct[::every]]
        at = np.array([place[format_setting(value)] for value in values])
        return at + _BESIDE * step * _rank_among_equals(at), ticks
    numbers = np.asarray(values, float)
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    if low == high:
        return np.where(np.isnan(numbers), np.nan, 0.5), [(0.5, format_number(low))]
    is_log = low > 0 and high > WIDE * low
    ends = np.geomspace(low, high, 5) if is_log else np.linspace(low, high, 5)
    scaled = np.log(numbers / low) / np.log(high / low) if is_log else (numbers - low) / (high - low)
    return scaled, [(rank / 4, format_number(end)) for rank, end in enumerate(ends)]


def _rank_among_equals(values: np.ndarray) -> np.ndarray:
    """Return ranks from -1 for the first of equal values to 1 for the last, so that their lines can be drawn side by
    side.
    """
    ranks = np.zeros(len(values))
    for value in np.unique(values):
        here = np.flatnonzero(values == value)
        ranks[here] = np.linspace(-1, 1, len(here)) if len(here) > 1 else 0
    return ranks


def _draw_upright(axis: Axes, place: int, key: str, ticks: Sequence[tuple[float, str]]) -> None:
    unit = {"accuracy": "accuracy [%]", "throughput": "throughput\n[it/s]"}.get(key, _name_key(key))
    axis.plot([place, place], [-0.12, 1.12], color="#444444", linewidth=0.8, zorder=3)
    head: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL, "fontweight": "bold"}
    axis.annotate(escape_label(unit, 24), (place, 1.12), (0, 4), **head)
    for height, text in ticks:
        axis.annotate(
            escape_label(text, 16),
            (place, height),
            (-3, 0),
            textcoords="offset points",
            ha="right",
            va="center_baseline",
            fontsize=6.5,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4},
        )


def _draw_threads(axis: Axes, heights: np.ndarray, accuracy: np.ndarray) -> None:
    """Draw the lines of `heights`, (lines, axes); many lines that run in the same tiles between two axes become one."""
    norm = Normalize(accuracy.min(), accuracy.max())
    style: dict[str, Any] = {"cmap": _COLOURS, "norm": norm, "zorder": 2, "capstyle": "round"}
    if len(heights) <= _MAX_LINES:
        segments = [[(x, y) for x, y in enumerate(line) if math.isfinite(y)] for line in heights]
        axis.add_collection(LineCollection(segments, array=accuracy, linewidths=1.0, alpha=0.8, **style))
        return
    for x in range(heights.shape[1] - 1):
        pairs = pd.DataFrame(np.round(heights[:, x : x + 2] * _TILES) / _TILES, columns=["from", "to"]).dropna()
        united = pairs.assign(accuracy=accuracy[pairs.index]).groupby(["from", "to"])["accuracy"].agg(["mean", "size"])
        segments = [[(x, one), (x + 1, other)] for one, other in united.index]
        widths = 0.4 + 3 * np.sqrt(united["size"] / united["size"].max())
        axis.add_collection(LineCollection(segments, array=united["mean"], linewidths=widths, alpha=0.6, **style))


def _name_key(key: str) -> str:
    return "compressor" if key == "label" else key
