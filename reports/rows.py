"""The CSVs that runs append to, many of them read as one table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from sweep import run as rundir

PLACE = "place"


def read(
    paths: Sequence[Path], columns: Sequence[str], key: str, leave_out: Callable[[Path, Exception | str], None]
) -> pd.DataFrame:
    """The rows of all files, in the order of the files and within one in that of `key`, as `float64`.

    Columns are `PLACE`, the position of the row's file in `paths`, and `columns`; those that a file
    lacks are NaN. A `key` that is in a file twice counts as it was written last. `leave_out` is told of
    what was not read: a file, or lines of it; a torn last line is nothing to speak of.
    """
    bodies: dict[str, list[str]] = {}
    lines: dict[int, int] = {}
    for place, path in enumerate(paths):
        try:
            header, _, body = rundir.complete_text(path).partition("\n")
        except OSError as error:
            leave_out(path, error)
            continue
        if header and key not in header.split(","):
            leave_out(path, f"not a table: it has no column {key}")
        elif body:
            lines[place] = body.count("\n")
            bodies.setdefault(header, []).append(f"{place}," + body[:-1].replace("\n", f"\n{place},") + "\n")
    # Parsing is fast, starting to parse is not: the files with the same header are parsed as one.
    frames = [_parsed(header, texts, columns) for header, texts in bodies.items()]
    frame = pd.concat([_parsed(key, [], columns), *frames], ignore_index=True)
    frame = frame[(frame[key] % 1 == 0) & frame[PLACE].isin(list(lines))]
    counts = frame[PLACE].value_counts()
    for place, count in lines.items():
        if counts.get(place, 0) < count:
            leave_out(paths[place], f"damaged lines left out: {count - counts.get(place, 0)} of {count}")
    frame = frame.drop_duplicates([PLACE, key], keep="last").sort_values([PLACE, key], ignore_index=True)
    return frame.astype({PLACE: "int64"})


def _parsed(header: str, bodies: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    text = io.StringIO("".join([f"{PLACE},{header}\n", *bodies]))
    # Nothing is quoted in these files; in a damaged one a quote could swallow many lines.
    read = pd.read_csv(text, quoting=csv.QUOTE_NONE, on_bad_lines="skip", index_col=False, low_memory=False)
    texts = [name for name in read if read[name].dtype.kind not in "if"]
    numbers = {str(name): pd.to_numeric(read[name], errors="coerce") for name in texts}
    return read.assign(**numbers).reindex(columns=[PLACE, *columns]).astype("float64")
