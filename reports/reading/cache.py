"""Cache the rows that were read from a sweep's runs, so that the next report reads only new rows.

The cache lies in SWEEP/.report-cache, never in a run's directory, and may be deleted at any time. It consists of parts:
Parquet files with unique names, each written once, so that processes do not disturb each other. Parts that are torn,
foreign or from another version of this program are ignored. The cached rows of a run are valid as long as the files
from which they were made keep the size and the modification time that they had before they were read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gradsweep import csv_columns, files, run_directory, signature, timed_steps, yaml_files
from gradsweep.disk.regular_files import open_regular
from reports.reading.run_files import Stamp, read_stamp

DIRECTORY = ".report-cache"
PLACE = "place"
"""The column with the run of a row: its position in the `runs` of a part, or among the names that were asked for."""

Stamps = Mapping[str, Stamp]
"""The stamps of the files that rows were made from, by their paths in the run's directory."""

_NAME = re.compile(r"[a-z]+-(?P<version>[0-9a-f]{16})-[0-9a-f]{32}\.(parquet|new)")
_SETTLED_NS = 2_000_000_000  # some file systems count in seconds: a file can change again unnoticed within one
_ABANDONED_S = 3600.0
_MANY = 8  # parts, which are then merged into one


@dataclasses.dataclass(frozen=True)
class CachedRows:
    """The cached rows of some runs.

    Attributes:
        table: the rows.
        stamps: by run, the stamps (size and time) of the files from which its rows were made.
        parts: all cache files of this kind of rows, also those without rows of these runs.
    """

    table: pa.Table
    stamps: dict[str, Stamps]
    parts: tuple[Path, ...] = ()


class Cache:
    """The cache of one sweep.

    Args:
        sweep: its directory.
    """

    def __init__(self, sweep: Path) -> None:
        self._runs = f"{sweep / run_directory.RUNS}{os.sep}"
        self._directory = sweep / DIRECTORY

    def find(self, kind: str, schema: pa.Schema, names: Sequence[str]) -> CachedRows:
        """Return the cached rows of these runs; their column PLACE is the position of a row's run in `names`."""
        position = {name: place for place, name in enumerate(names)}
        parts = tuple(self._list_parts(kind))
        stamps: dict[str, Stamps] = {}
        tables = []
        for path in parts:
            part = _load(path, schema)
            if part is None:
                continue
            table, runs = part
            places = np.full(len(runs), -1, "int32")
            for number, (name, made_from) in enumerate(runs.items()):
                if name in position and name not in stamps and self._is_unchanged(name, made_from):
                    places[number] = position[name]
                    stamps[name] = made_from
            place = places[table[PLACE].to_numpy()] if len(runs) else np.empty(0, "int32")
            table = table.set_column(0, PLACE, pa.array(place))
            tables.append(table if (place >= 0).all() else table.filter(pa.array(place >= 0)))
        return CachedRows(pa.concat_tables(tables) if tables else schema.empty_table(), stamps, parts)

    def add(
        self, kind: str, names: Sequence[str], table: pa.Table, new: Mapping[str, Stamps], found: CachedRows
    ) -> None:
        """Add the rows of newly read runs to the cache; if the cache cannot be written, do nothing.

        Args:
            kind: the kind of rows.
            names: the names of all runs, read now or found in the cache.
            table: the rows of the newly read runs only; the column PLACE is the position of a row's run in `names`.
            new: the stamps of the newly read runs; runs whose files changed just now are not stored.
            found: the rows that the cache had before.
        """
        before = time.time_ns() - _SETTLED_NS
        settled = {name: stamps for name, stamps in new.items() if all(at < before for _, at in stamps.values())}
        if not settled:
            return
        old: tuple[Path, ...] = ()
        if len(found.parts) >= _MANY:
            old, settled = found.parts, {**found.stamps, **settled}
            table = pa.concat_tables([found.table, table])
        numbers = {name: number for number, name in enumerate(settled)}
        places = np.array([numbers.get(name, -1) for name in names], "int32")[table[PLACE].to_numpy()]
        table = table.set_column(0, PLACE, pa.array(places)).filter(pa.array(places >= 0))
        with contextlib.suppress(OSError, pa.ArrowException):
            self._directory.mkdir(exist_ok=True)
            _save(self._directory / f"{kind}-{_hash_sources()}-{uuid.uuid4().hex}.parquet", table, settled)
            for path in [*old, *self._find_abandoned()]:
                path.unlink(missing_ok=True)

    def _is_unchanged(self, name: str, stamps: Stamps) -> bool:
        within = f"{self._runs}{name}{os.sep}"  # joined by hand: os.path.join takes longer than os.stat
        return all(read_stamp(within + path) == known for path, known in stamps.items())

    def _list_parts(self, kind: str) -> list[Path]:
        return sorted(self._directory.glob(f"{kind}-{_hash_sources()}-*.parquet"))

    def _find_abandoned(self) -> Iterator[Path]:
        """Yield the cache's files that earlier versions of this program left, and incomplete ones."""
        before = time.time() - _ABANDONED_S
        for path in self._directory.iterdir():
            if match := _NAME.fullmatch(path.name):
                is_unwritten = path.suffix == ".new" and path.stat().st_mtime < before
                if is_unwritten or match["version"] != _hash_sources():
                    yield path


def _save(path: Path, table: pa.Table, runs: Mapping[str, Stamps]) -> None:
    about = {"runs": json.dumps(runs)}
    temporary = path.with_suffix(".new")
    try:
        pq.write_table(
            table.replace_schema_metadata(about),
            temporary,
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _load(path: Path, schema: pa.Schema) -> tuple[pa.Table, dict[str, Stamps]] | None:
    """Return the rows of a cache file and the stamps of their sources; None if the file cannot be used."""
    try:
        with open_regular(path) as file:
            table = pq.ParquetFile(file, page_checksum_verification=True).read()
        said: dict[str, Any] = json.loads(table.schema.metadata[b"runs"])
        runs: dict[str, Stamps] = {
            name: {path: (size, at) for path, (size, at) in stamps.items()} for name, stamps in said.items()
        }
        table = table.replace_schema_metadata(None)
        places = table[PLACE].to_numpy()
        is_sound = table.schema == schema and (not len(places) or 0 <= places.min() <= places.max() < len(runs))
    except (OSError, pa.ArrowException, ValueError, TypeError, AttributeError, LookupError):
        return None
    return (table, runs) if is_sound else None


@functools.cache
def _hash_sources() -> str:
    """Return a hash of the source files that determine the content of the cache."""
    modules = [
        Path(str(module.__file__)) for module in (csv_columns, files, run_directory, signature, timed_steps, yaml_files)
    ]
    sources = [*sorted(Path(__file__).parent.glob("*.py")), *modules]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
