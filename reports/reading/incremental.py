"""Read the runs of one sweep: from the cache as far as it has them, else from their files."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gradsweep import run_directory
from reports.reading import csv_rows, run_row, step_profile
from reports.reading.cache import PLACE, Cache, CachedRows, Stamps
from reports.reading.configs import Configs
from reports.reading.run_files import NO_FILE, DirectoryFiles, LeftOut, format_reason, read_stamp

LeaveOut = Callable[[LeftOut], None]


@dataclasses.dataclass(frozen=True)
class CsvSeries:
    """A CSV that every run has, or a series of rows derived from it.

    Attributes:
        name: its kind in the cache.
        table: the columns of the CSV.
        shrink: a function applied to the rows of each file, (columns, rows) in and out.
        is_kept: whether rows are kept in the cache.
    """

    name: str
    table: csv_rows.CsvColumns
    shrink: Callable[[np.ndarray], np.ndarray] | None = None
    is_kept: bool = True

    def add_columns(self, names: Iterable[str]) -> CsvSeries:
        """Return the series with more columns, each once."""
        columns = tuple(dict.fromkeys((*self.table.columns, *names)))
        return dataclasses.replace(self, table=dataclasses.replace(self.table, columns=columns))


EPOCHS = CsvSeries("epochs", csv_rows.EPOCHS)
STEPS = CsvSeries("steps", csv_rows.STEPS, is_kept=False)  # a cache would be as large as the files
PROFILE = CsvSeries("profile", csv_rows.STEPS, step_profile.average_steps)

_ROWS = pa.schema([(PLACE, pa.int32()), ("row", pa.string())])


def read_run_rows(sweep: Path, names: Sequence[str], leave_out: LeaveOut) -> list[dict[str, Any] | None]:
    """Return the rows of `Report.runs` for these runs of a sweep.

    A run that is still running or has unreadable files is not cached, but read each time.
    """
    cache = Cache(sweep)
    found = cache.find("runs", _ROWS, names)
    known = json.loads(f"[{','.join(found.table['row'].to_pylist())}]")
    made: list[dict[str, Any] | None] = [None] * len(names)
    for place, row in zip(found.table[PLACE].to_pylist(), known, strict=True):
        made[place] = row
    new: dict[str, Stamps] = {}
    texts: dict[int, str] = {}
    configs = Configs()
    for place, name in enumerate(names):
        if made[place] is not None:
            continue
        files = DirectoryFiles(sweep / run_directory.RUNS / name)
        made[place] = row = run_row.read_row(files, configs)
        for entry in files.left_out:
            leave_out(entry)
        if row is not None and not files.left_out and row["status"] != run_directory.RUNNING:
            new[name], texts[place] = files.stamps, json.dumps(row)
    table = pa.Table.from_arrays([pa.array(list(texts), pa.int32()), pa.array(list(texts.values()))], schema=_ROWS)
    cache.add("runs", names, table, new, found)
    return made


def read_series(
    series: CsvSeries, sweep: Path, names: Sequence[str], settled: Collection[str], leave_out: LeaveOut
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the rows of a CSV for these runs of a sweep, in the order of the runs.

    Args:
        series: the CSV.
        sweep: its directory.
        names: the names of the runs' directories.
        settled: the names of runs to which nobody writes any more, whose rows may be cached.
        leave_out: called with each file that cannot be read.

    Returns:
        For each row the position of its run in `names`, and the columns of the CSV.
    """
    schema = pa.schema([(PLACE, pa.int32()), *((name, pa.float64()) for name in series.table.columns)])
    cache = Cache(sweep)
    found = cache.find(series.name, schema, names) if series.is_kept else CachedRows(schema.empty_table(), {})
    missing = [place for place, name in enumerate(names) if name not in found.stamps]
    paths = [sweep / run_directory.RUNS / names[place] / series.table.name for place in missing]
    stamps = [read_stamp(os.fspath(path)) for path in paths]
    parts, lengths = [], []
    new: dict[str, Stamps] = {}
    read = csv_rows.read_all(paths, [size for size, _ in stamps], series.table, series.shrink)
    for place, path, seen, (values, problem) in zip(missing, paths, stamps, read, strict=True):
        parts.append(values)
        lengths.append(values.shape[1])
        if problem is not None:
            leave_out(LeftOut(path, format_reason(problem)))
        elif seen != NO_FILE and names[place] in settled:
            new[names[place]] = {series.table.name: seen}
    columns = np.concatenate([np.empty((len(series.table.columns), 0)), *parts], axis=1)
    del parts
    places = np.repeat(np.array(missing, "int32"), lengths)
    table = pa.Table.from_arrays([pa.array(places), *map(pa.array, columns)], schema=schema)
    if series.is_kept:
        cache.add(series.name, names, table, new, found)
    table = pa.concat_tables([found.table, table])
    places = table[PLACE].to_numpy()
    if (np.diff(places) < 0).any():
        order = np.argsort(places, kind="stable")
        return places[order], [table[name].to_numpy()[order] for name in series.table.columns]
    return places, [table[name].to_numpy() for name in series.table.columns]
