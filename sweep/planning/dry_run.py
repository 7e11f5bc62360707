"""sweep.dry_run: print what a command would do, and start nothing."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradsweep.run_directory import Run
from gradsweep.sweeps import sweep_locations
from gradsweep.text import duration, plural
from sweep.console import events
from sweep.console.messages import print_line
from sweep.console.step_counter import count_through
from sweep.directory import completion, run_identity, run_layout
from sweep.planning import invalid_points, packing_forecast, reuse
from sweep.planning.cost import LEAST, SURE, Cost
from sweep.planning.estimate import Estimator
from sweep.planning.order import arrange_runs, count_shared_cores
from sweep.planning.points import Points
from sweep.planning.races import RaceGroup, describe_races, find_missing_races
from sweep.planning.row import Row
from sweep.provenance import code_snapshot, record
from sweep.settings.race import OFF, ONLY

STANDINGS = RUN, RACE, COMPLETE, REUSED, DUPLICATE, TAKEN_OUT, IMPOSSIBLE = (
    "run", "race", "complete", "reused", "duplicate", "taken out", "impossible",
)  # fmt: skip
AT_ONCE = 1000  # lines


def build_rows(points: Points, directory: Path, estimator: Estimator, *, silent: bool = False) -> list[Row]:
    """Return a row for each point of a grid that says what the command would do with the point."""
    locations = run_layout.locate_runs(directory, points.points, silent=silent)
    is_trained = points.points[0].race.mode != ONLY
    reusable = find_reusable(points, directory, [each.signature for each in locations]) if is_trained else {}
    first: dict[str, int] = {}
    todo: list[Row] = []
    others: list[Row] = []
    repeated: list[run_layout.RunLocation] = []
    for entry in count_through("points estimated", locations, silent=silent):
        name, config, place = entry.run.name, entry.point.config, entry.run.directory
        if entry.is_laid_out and completion.is_complete(entry.run):
            others.append(Row(None, COMPLETE, name, config, place, f"{entry.run.status()} in this sweep"))
        elif entry.signature in reusable:
            earlier = os.path.relpath(reusable[entry.signature].directory)
            others.append(Row(None, REUSED, name, config, place, f"from {earlier}"))
        elif entry.signature in first:
            repeated.append(entry)
        else:
            first[entry.signature] = len(todo)
            likely = estimator.estimate(config) if is_trained else None
            todo.append(Row(len(todo), RUN if is_trained else RACE, name, config, place, "", likely))
    todo = [todo[index] for index in arrange_runs([(row.config, row.seconds) for row in todo])]
    places_of = {row.number: number for number, row in enumerate(todo, 1)}
    todo = [dataclasses.replace(row, number=number) for number, row in enumerate(todo, 1)]
    for entry in repeated:
        why = f"the same as {places_of[first[entry.signature]]}"
        others.append(Row(None, DUPLICATE, entry.run.name, entry.point.config, entry.run.directory, why))
    for each in _name_taken_out(points):
        standing = IMPOSSIBLE if each.impossible else TAKEN_OUT
        others.append(Row(None, standing, run_identity.build_name(each.overrides), {}, None, each.why))
    return [*todo, *others]


def find_reusable(points: Points, directory: Path, signatures: Sequence[str]) -> dict[str, Run]:
    """Return the finished runs of earlier sweeps that sweep.reuse would copy, by signature."""
    if not points.settings.reuse:
        return {}
    about = record.describe_machine() | {"mpi": record.describe_mpi(points.mpi.resolve_command())}
    wanted = {
        signature: reuse.build_expected(point, about)
        for signature, point in zip(signatures, points.points, strict=True)
    }
    return reuse.find_finished(directory, wanted, code_snapshot.read_current().version)


def _name_taken_out(points: Points) -> list[invalid_points.TakenOut]:
    """Return the points that are left out; name them by their overrides of swept keys."""
    every = [*points.overrides, *(each.overrides for each in points.taken_out)]
    swept = run_identity.find_swept_keys(every)
    return [
        dataclasses.replace(each, overrides={key: each.overrides[key] for key in swept if key in each.overrides})
        for each in points.taken_out
    ]


def estimate_points(points: Points, directory: Path, *, silent: bool = False) -> tuple[list[Row], Cost]:
    """Return the row of each point, and the total cost of the runs to compute."""
    rows = build_rows(points, directory, Estimator(directory), silent=silent)
    config = points.points[0].config
    return rows, Cost.add_up(_select_runs(rows), count_shared_cores(config), points.settings.max_parallel)


def find_races(points: Points, rows: Sequence[Row], directory: Path) -> list[RaceGroup]:
    """Return the races that the command would run if all its runs succeed."""
    configs = {Run(row.directory): row.config for row in rows if row.directory is not None}
    return [] if points.points[0].race.mode == OFF else find_missing_races(directory, configs)


def _forecast_packs(points: Points, rows: Sequence[Row]) -> list[packing_forecast.Pack] | None:
    """Return the MPI worlds in which the runs would be trained; None if each run has its own mpirun."""
    if not points.settings.pack:
        return None
    return packing_forecast.forecast_packs(_select_runs(rows), points.settings)


def _select_runs(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.standing == RUN]


def print_json(points: Points, directory: Path) -> None:
    """Print what a sweep would do as JSON lines: one for each point, and one for all (docs/reference/events.md)."""
    rows, cost = estimate_points(points, directory, silent=True)
    packs, races = _forecast_packs(points, rows), len(find_races(points, rows, directory))
    for row in rows:
        likely = row.estimate
        events.print_event(
            events.POINT,
            number=row.number,
            standing=row.standing.replace(" ", "_"),
            run=row.name,
            directory=None if row.directory is None else str(row.directory.absolute()),
            workers=row.workers or None,
            cores=row.cores or None,
            gpus=row.gpus if row.config else None,
            options=row.options,
            why=row.why or None,
            seconds=None if likely is None else round(likely.seconds, 3),
            likeness=None if likely is None else likely.likeness,
            scaled=None if likely is None else likely.scaled,
            least=None if likely is None else likely.least,
            rests_on=None if likely is None else likely.runs,
        )
    events.print_event(
        events.DRY_RUN_ENDED,
        directory=str(directory.absolute()),
        launcher=points.points[0].config["launcher"]["cluster"],
        points=len(rows),
        counts=_count_standings(rows),
        unknown=cost.unknown,
        seconds=cost.wall_s,
        least=cost.least,
        run_seconds=cost.run_s,
        core_hours=cost.core_hours,
        node_hours=cost.node_hours,
        packed=None if packs is None else [dataclasses.asdict(pack) for pack in packs],
        races=races,
        race_seconds=races * points.points[0].race.seconds,
    )


def _count_standings(rows: Sequence[Row]) -> dict[str, int]:
    counts = {each: sum(row.standing == each for row in rows) for each in STANDINGS}
    return {each.replace(" ", "_"): count for each, count in counts.items() if count}


def print_table(points: Points, directory: Path, console: Console, *, silent: bool = False) -> None:
    """Print what a sweep would do. Write no files and start nothing."""
    rows, cost = estimate_points(points, directory, silent=silent)
    cluster = points.points[0].config["launcher"]["cluster"]
    counts = _count_standings(rows)
    skipped = [f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if word not in (RUN, RACE)]
    todo = f"{counts[RACE]} to race" if RACE in counts else f"{plural(counts.get(RUN, 0), 'run')} to do"
    print_line(
        console,
        f"{os.path.relpath(directory)}: {plural(len(rows), 'point')}, {todo}"
        + (f" ({', '.join(skipped)})" if skipped else "")
        + f", launcher {cluster}; nothing is written or started (sweep.dry_run)",
    )
    same, columns = _build_columns([row for row in rows if row.standing != IMPOSSIBLE])
    if same:
        print_line(console, "for every run: " + ", ".join(same))
    if console.is_terminal:
        table = Table(show_edge=False)
        for heading, cells in columns.items():
            table.add_column(heading, justify="right" if _is_number(cells) else "left", overflow="fold")
        for texts in zip(*columns.values(), strict=True):
            table.add_row(*[escape(text) for text in texts])
        console.print(table)
    else:
        widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
        cells_of_rows = ([*columns], *map(list, zip(*columns.values(), strict=True)))
        lines = ["  ".join(map(str.ljust, texts, widths)).rstrip() for texts in cells_of_rows]
        for first in range(0, len(lines), AT_ONCE):  # a call for each would take longer than all the rest
            print_line(console, "\n".join(lines[first : first + AT_ONCE]))
    for line in invalid_points.describe_left_out([each for each in points.taken_out if each.impossible], len(rows)):
        print_line(console, line)
    if packs := _forecast_packs(points, rows):
        print_line(console, packing_forecast.describe_packs(packs, cluster))
    race = points.points[0].race
    if races := find_races(points, rows, directory):
        print_line(console, describe_races(len(races), race))
    if cost.runs or not races:
        for line in cost.describe(sweep_locations.roots_of(directory)):
            print_line(console, line)


def _build_columns(rows: Sequence[Row]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the values that all runs share, in words, and the columns of the table."""
    asked: dict[str, list[Any]] = {
        "workers": [row.workers for row in rows],
        "cores": [row.cores for row in rows],
        "GPUs": [row.gpus for row in rows],
    }
    for option in dict.fromkeys(key for row in rows for key in row.options):
        name = f"launcher.{option}" if option in asked else option  # cores: to share out, not those of a run
        asked[name] = [row.options.get(option) for row in rows]
    same = []
    columns = {"#": [_format_value(row.number) for row in rows], "run": [row.name for row in rows]}
    for name, options in asked.items():
        cells = [_format_value(value) if row.config else "" for row, value in zip(rows, options, strict=True)]
        values = {cell for row, cell in zip(rows, cells, strict=True) if row.config}
        if values == {""} or (name == "GPUs" and values <= {"0", ""}):
            continue
        if len(values) == 1:
            same.append(f"{name} {values.pop()}")
        else:
            columns[name] = cells
    if any(row.standing == RUN for row in rows):
        columns["time"] = [_format_estimate(row) for row in rows]
    if any(row.standing not in (RUN, RACE) for row in rows):
        columns["skipped"] = [row.why for row in rows]
    return same, columns


def _format_value(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _is_number(cells: Sequence[str]) -> bool:
    return all(cell.isdigit() for cell in cells if cell) and any(cells)


def _format_estimate(row: Row) -> str:
    if row.standing != RUN:
        return ""
    if row.estimate is None:
        return "unknown"
    sure = row.estimate.likeness == SURE and not row.estimate.scaled
    return (LEAST if row.estimate.least else "" if sure else "~") + duration(row.estimate.seconds)
