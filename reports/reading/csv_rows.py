"""Read the CSVs to which runs append rows, many of them at once.

Most are intact and parsed by pyarrow, small ones together, because starting a parser takes longer than parsing them.
Damaged ones are read line by line, and their intact lines are used.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from gradsweep import csv_columns, run_directory
from gradsweep.disk import regular_files

Problem = Exception | str | None
"""The reason why a file, or lines of it, are left out; None where nothing is."""

_BATCH_BYTES = 4_000_000  # parsed together
_BATCH_FILES = 256
_BLOCK_BYTES = 1 << 26  # more than a batch, which is one block
_QUOTED_NEVER = csv.ParseOptions(quote_char=False, double_quote=False)  # a stray quote could swallow many lines


@dataclasses.dataclass(frozen=True)
class CsvColumns:
    """The columns to read from a CSV; rows are sorted by the column `key`, a counter such as the step.

    Consecutive rows with the same key are different rows if the column `finer` grows from one to the next.
    """

    name: str
    columns: tuple[str, ...]
    key: str
    finer: str | None = None


STEPS = CsvColumns(run_directory.STEPS, csv_columns.STEP_COLUMNS, "step")
EPOCHS = CsvColumns(
    run_directory.EPOCHS, (*csv_columns.EPOCH_COLUMNS, *csv_columns.LOCAL_EPOCH_COLUMNS), "epoch", "step"
)


def read(path: Path, table: CsvColumns) -> tuple[np.ndarray, Problem]:
    """Return the rows of a file, (columns, rows) in `float64`, and the reason if some or all rows are left out.

    A missing column is NaN, and so is a field that is no number. Of several rows with the same key (and no finer one),
    the last is taken.
    A torn last line is no problem, and neither is a missing file.
    """
    return _read_batch([path], table)[0]


def read_all(
    paths: Sequence[Path],
    sizes: Sequence[int],
    table: CsvColumns,
    shrink: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Iterator[tuple[np.ndarray, Problem]]:
    """Yield the result of `read` for each of these files, in their order.

    Args:
        paths: the files.
        sizes: their approximate sizes in bytes.
        table: the columns to read.
        shrink: applied to the rows of each file as soon as they are read, so that not all are in memory together.
    """

    def some(batch: Sequence[Path]) -> list[tuple[np.ndarray, Problem]]:
        found = _read_batch(batch, table)
        return found if shrink is None else [(shrink(values), problem) for values, problem in found]

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for found in pool.map(some, _make_batches(paths, sizes)):
            yield from found


def average(values: np.ndarray) -> float:
    """Return the mean of the known values; NaN if all are unknown."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _make_batches(paths: Sequence[Path], sizes: Sequence[int]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    room = _BATCH_BYTES
    for path, size in zip(paths, sizes, strict=True):
        if batch and (size > room or len(batch) == _BATCH_FILES):
            yield batch
            batch, room = [], _BATCH_BYTES
        batch.append(path)
        room -= size
    if batch:
        yield batch


def _read_batch(paths: Sequence[Path], table: CsvColumns) -> list[tuple[np.ndarray, Problem]]:
    found: list[tuple[np.ndarray, Problem]] = [(np.empty((len(table.columns), 0)), None)] * len(paths)
    bodies: dict[bytes, dict[int, bytes]] = {}  # of the files with the same header
    for place, path in enumerate(paths):
        try:
            data = regular_files.read_bytes(path, regular_files.MOST_ROW_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found[place] = (found[place][0], error)
            continue
        header, _, body = data[: data.rfind(b"\n") + 1].partition(b"\n")
        if header and table.key not in _parse_header(header):
            found[place] = (found[place][0], f"not a table: it has no column {table.key}")
        elif body:
            bodies.setdefault(header, {})[place] = body
    for header, group in bodies.items():
        values = _parse_bodies(_parse_header(header), list(group.values()), table)
        for (place, body), each in zip(group.items(), values, strict=True):
            found[place] = _sort_rows(each, body.count(b"\n"), table)
    return found


def _parse_header(header: bytes) -> list[str]:
    return header.decode("utf-8", "replace").rstrip("\r").split(",")


def _parse_bodies(names: Sequence[str], bodies: Sequence[bytes], table: CsvColumns) -> list[np.ndarray]:
    """Return the readable rows of each CSV body (its text without the header), (columns, rows)."""
    lengths = [body.count(b"\n") for body in bodies]
    try:
        values = _parse_by_arrow(names, b"".join(bodies), table)
    except (pa.ArrowException, ValueError):
        values = None
    if values is not None and values.shape[1] == sum(lengths):
        return np.split(values, np.cumsum(lengths)[:-1], axis=1)
    if len(bodies) > 1:
        return [values for body in bodies for values in _parse_bodies(names, [body], table)]
    return [_parse_by_line(names, bodies[0], table)]


def _parse_by_arrow(names: Sequence[str], body: bytes, table: CsvColumns) -> np.ndarray:
    present = [column for column in table.columns if column in names]
    read = csv.read_csv(
        pa.BufferReader(body),
        csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
        _QUOTED_NEVER,
        csv.ConvertOptions(column_types=dict.fromkeys(present, pa.float64()), include_columns=present),
    )
    values = np.full((len(table.columns), read.num_rows), np.nan)
    for position, column in enumerate(table.columns):
        if column in present:
            values[position] = read.column(column).to_numpy()
    return values


def _parse_by_line(names: Sequence[str], body: bytes, table: CsvColumns) -> np.ndarray:
    """Return the rows of lines that have a field for each name, with NaN for a field that is no number."""
    lines = [line.split(",") for line in body.decode("utf-8", "replace").split("\n")[:-1]]
    whole = [fields for fields in lines if len(fields) == len(names)]
    values = np.full((len(table.columns), len(whole)), np.nan)
    for position, column in enumerate(table.columns):
        if column in names:
            place = names.index(column)
            values[position] = [_parse_number(fields[place]) for fields in whole]
    return values


def _parse_number(field: str) -> float:
    try:
        return math.nan if "_" in field else float(field)
    except ValueError:
        return math.nan


def _sort_rows(values: np.ndarray, lines: int, table: CsvColumns) -> tuple[np.ndarray, Problem]:
    """Return the rows sorted by key without duplicates, and a remark if damaged lines were left out."""
    place = table.columns.index(table.key)
    with np.errstate(invalid="ignore"):
        is_row = values[place] % 1 == 0
    if not is_row.all():
        values = values[:, is_row]
    count = values.shape[1]
    if (np.diff(values[place]) <= 0).any():
        values = values[:, np.argsort(values[place], kind="stable")]
        is_new = np.diff(values[place]) > 0
        if table.finer is not None:
            is_new |= np.diff(values[table.columns.index(table.finer)]) > 0
        values = values[:, np.append(is_new, True)]
    return values, f"damaged lines left out: {lines - count} of {lines}" if count < lines else None
