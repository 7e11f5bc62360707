"""Pictures of topologies: workers as numbered dots, links with widths by their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import networkx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

from gradsweep.cli import picture_files
from gradsweep.cli.picture_files import TEXT
from trainers.config.groups import get_name
from trainers.options.topologies import Edges, Margulis, RandomRegular, Social, Star, Torus
from trainers.topology.graphs import compute_sides
from trainers.topology.mixing import Mixing

Points = np.ndarray
"""(n, 2): where the workers are, about within [-1, 1]."""

_LINK, _DOT = "#33658a", "#f6ae2d"
_STEPS = ("#33658a", "#d1495b", "#5c8001", "#8d5a97", "#e07a1f", "#2a9d8f", "#7f7f7f", "#b5838d")
"""Colours of the steps of a topology whose graph changes; from the ninth on they come again."""
_WIDEST = 2.2  # points
_COLUMNS = 3  # of panels
_SMALLEST = 0.065  # inches, of a dot that has a number in it
_TITLE = 0.55  # inches
_SPAN = 2.5  # of the coordinates that a panel shows


def draw(topologies: Sequence[tuple[Any, Mixing]], path: Path) -> None:
    """Draw a panel for each topology, three in a row, and write it to `path`, with a suffix of matplotlib: .png, .svg,
    .pdf.

    Args:
        topologies: options and mixing matrices of each.

    Raises:
        OSError: the file cannot be written.
    """
    columns = min(_COLUMNS, len(topologies))
    rows = math.ceil(len(topologies) / columns)
    side = 3.2 + 3.0 * min(max(mixing.workers for _, mixing in topologies), 256) / 64
    with matplotlib.rc_context({**picture_files.SETTINGS, "font.size": 9.0}):
        figure = Figure(figsize=(side * columns, (side + _TITLE) * rows), facecolor="white")
        for place, (options, mixing) in enumerate(topologies):
            row, column = divmod(place, columns)
            bottom = 1 - (row + 1) / rows
            axes = figure.add_axes((column / columns, bottom, 1 / columns, side / (side + _TITLE) / rows))
            axes.axis("off")
            _draw(axes, options, mixing, side)
        picture_files.save(figure, path, dpi=120)


def _draw(axes: Axes, options: Any, mixing: Mixing, side: float) -> None:
    points = _place_workers(options, mixing)
    radius = _compute_radius(points)
    most = max(float((matrix - np.diag(np.diag(matrix))).max()) for matrix in mixing.matrices) or 1.0
    joined = False
    for step, matrix in enumerate(mixing.matrices):
        colour = _STEPS[step % len(_STEPS)] if mixing.period > 1 else _LINK
        receivers, senders = np.nonzero(matrix - np.diag(np.diag(matrix)))
        pairs = list(zip(senders.tolist(), receivers.tolist(), strict=True))
        widths = {pair: _WIDEST * max(float(matrix[pair[1], pair[0]]) / most, 0.15) for pair in pairs}
        if not options.symmetric:
            _draw_arrows(axes, points, widths, colour, radius * side * 72 / _SPAN)
        else:
            across = _across(options, mixing.workers) if isinstance(options, Torus) else {}
            straight = {pair: width for pair, width in widths.items() if pair not in across and pair[0] < pair[1]}
            lines = [points[list(pair)] for pair in straight]
            axes.add_collection(LineCollection(lines, linewidths=list(straight.values()), colors=colour, zorder=1))
            stubs = [[points[first], points[first] + across[first, other]] for first, other in across]
            axes.add_collection(LineCollection(stubs, linewidths=_WIDEST / 2, colors=colour, linestyles=":", zorder=1))
            joined |= bool(across)
        if mixing.period > 1:
            axes.plot([], [], color=colour, label=f"step {step + 1}")
    dots = [Circle((float(x), float(y)), radius) for x, y in points]
    axes.add_collection(PatchCollection(dots, facecolor=_DOT, edgecolor="white", linewidth=0.8, zorder=3))
    if radius * side / _SPAN >= _SMALLEST:
        for worker, (x, y) in enumerate(points):
            size = min(9.0, radius * side / _SPAN * 72 * 0.95)
            axes.text(x, y, str(worker), ha="center", va="center_baseline", fontsize=size, color=TEXT, zorder=4)
    axes.set(xlim=(-_SPAN / 2, _SPAN / 2), ylim=(-_SPAN / 2, _SPAN / 2), aspect="equal")
    title = f"{get_name(options)}, {mixing.workers} workers\ngap {mixing.gap:.3g}, degree {mixing.degree}"
    axes.set_title(title, color=TEXT, fontsize=9.5)
    if joined:
        axes.text(0, -1.2, "dotted: to the opposite border", ha="center", fontsize=8, color=TEXT)
    if mixing.period > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.01), ncols=mixing.period, frameon=False, fontsize=8)


def _draw_arrows(axes: Axes, points: Points, widths: dict[tuple[int, int], float], colour: str, shrink: float) -> None:
    """Draw an arrow from each sender to its receiver; arrows in opposite directions do not overlap."""
    for (sender, receiver), width in widths.items():
        bend = 0.12 if (receiver, sender) in widths else 0.0
        axes.add_patch(
            FancyArrowPatch(
                points[sender],
                points[receiver],
                arrowstyle="-|>",
                mutation_scale=7,
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=0,
                shrinkB=shrink,
                linewidth=0.6 * width,
                color=colour,
                zorder=1,
            )
        )


def _compute_radius(points: Points) -> float:
    """Return a radius of dots at which neighbouring dots do not touch."""
    if len(points) == 1:
        return 0.1
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    return float(np.clip(0.4 * apart.min(), 0.012, 0.1))


def _place_workers(options: Any, mixing: Mixing) -> Points:
    """Return positions that suit the topology: on a circle, on a grid, or with neighbours close together."""
    workers = mixing.workers
    if isinstance(options, Star):
        return np.vstack([np.zeros((min(workers, 1), 2)), _circle(workers - 1)])
    if isinstance(options, Torus):
        return _grid(*compute_sides(options, workers))
    if isinstance(options, (Social, Margulis, RandomRegular, Edges)) and workers > 2:
        return _near(mixing)
    if get_name(options) == "hypercube":
        return _levels(workers)
    if get_name(options) == "chain":
        return _circle(workers, open_share=0.15)
    return _circle(workers)


def _circle(workers: int, open_share: float = 0.0) -> Points:
    """Return positions on a circle, clockwise from the top; the last `open_share` of the circle stays free."""
    angles = math.pi / 2 - 2 * math.pi * (1 - open_share) * np.arange(workers) / max(workers, 1)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _grid(rows: int, columns: int) -> Points:
    """Return positions row by row, from the top, with space for links across the border."""
    spacing = 1.7 / max(rows, columns)
    x = spacing * (np.arange(columns) - (columns - 1) / 2)
    y = spacing * ((rows - 1) / 2 - np.arange(rows))
    return np.array([(column, row) for row in y for column in x])


def _across(options: Torus, workers: int) -> dict[tuple[int, int], np.ndarray]:
    """Return the direction of each link of a torus that leaves the grid, where a side has more than two workers."""
    rows, columns = compute_sides(options, workers)
    step = 0.6 * 1.7 / max(rows, columns)
    directions = {}
    for column in range(columns if rows > 2 else 0):
        top, bottom = column, (rows - 1) * columns + column
        directions[top, bottom], directions[bottom, top] = np.array([0, step]), np.array([0, -step])
    for row in range(rows if columns > 2 else 0):
        left, right = row * columns, (row + 1) * columns - 1
        directions[left, right], directions[right, left] = np.array([-step, 0]), np.array([step, 0])
    return directions


def _levels(workers: int) -> Points:
    """Return positions in a row for each number of set bits, so that every link connects adjacent rows."""
    rows: dict[int, list[int]] = {}
    for worker in range(workers):
        rows.setdefault(worker.bit_count(), []).append(worker)
    place = np.zeros((workers, 2))
    widest = max(map(len, rows.values()))
    for level, row in rows.items():
        place[row, 0] = (np.arange(len(row)) - (len(row) - 1) / 2) * 2 / widest
        place[row, 1] = 2 * level / max(len(rows) - 1, 1) - 1
    return place


def _near(mixing: Mixing) -> Points:
    """Return positions at which neighbours are close together."""
    graph = networkx.from_numpy_array((mixing.get_matrix(1) + mixing.get_matrix(1).T > 0).astype(float))
    graph.remove_edges_from(networkx.selfloop_edges(graph))
    few = len(graph) <= 128  # more would take minutes
    layout = networkx.kamada_kawai_layout(graph) if few else networkx.spring_layout(graph, seed=0)
    points = np.array([layout[worker] for worker in range(len(graph))])
    centred = points - (points.max(axis=0) + points.min(axis=0)) / 2
    return centred / (np.abs(centred).max() or 1.0)
