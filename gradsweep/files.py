"""Write files so that readers always see a whole one, and read files that may be missing or torn.

Two rules keep a directory readable at any moment, also after a power cut: a file is either replaced as a whole
(`write_text`, `write_json`) or only ever appended to (`append_rows`, `append_json`), and whoever reads an appended file
ignores a torn last line (`complete_text`).
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep.disk import disk_errors, file_lock, regular_files

PATIENCE_S = 10.0  # for another process to have appended its line


def now() -> str:
    """Return the present time as ISO 8601 in UTC, to the millisecond: sorts as text, on every host."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace the content of the file at `path` by `text` in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"), durable=durable)


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the content of the file at `path` atomically: readers see the old or the new one, never a part.

    The new file is first written under a name that nobody can guess, so that nobody can have put a link there.

    Args:
        durable: sync the file to the disk before returning; else a power cut may leave the old or an empty file.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with disk_errors.add_file_name(path), os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:  # also a signal's, which may come when the file has got its name
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove_partial(directory: Path) -> None:
    """Remove partial files that a killed process has left in a directory; no other process may be writing there."""
    for path in directory.glob(".*.*"):
        if re.fullmatch(r"\.(.+\.)+[a-z0-9_]{8}", path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace the file at `path` by `value` as strict JSON: NaN and Inf, which JSON lacks, become null."""
    write_text(path, json.dumps(_replace_nan(value), indent=1, allow_nan=False) + "\n", durable=durable)


def _replace_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _replace_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nan(item) for item in value]
    return value


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in the file at `path`; None without a regular file, or if it contains no JSON object."""
    try:
        with disk_errors.add_file_name(path):
            value = json.loads(regular_files.read_text(path))
    except (FileNotFoundError, NotADirectoryError, regular_files.NotRegular, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def append_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a CSV in one write, with a header first if the file is new or empty.

    A torn last line, left by a crash, is cut off before anything is added to it.
    """
    descriptor = regular_files.open_descriptor(path, flags=os.O_RDWR | os.O_CREAT)
    try:
        with disk_errors.add_file_name(path):
            end = _end_of_last_line(descriptor)
            _write_at(descriptor, end, _format_rows(columns, rows, has_header=end == 0))
    finally:
        os.close(descriptor)


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace the CSV at `path` by a header and rows, as `write_text` does."""
    write_text(path, _format_rows(columns, rows, has_header=True))


def _format_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, has_header: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    if has_header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def append_json(path: Path, value: Mapping[str, Any]) -> None:
    """Append an object as one line of strict JSON; a torn last line, left by a crash, is cut off first.

    Several processes may append to one file: they wait for each other, because the unfinished line of another process
    would look like a torn one.

    Raises:
        BlockingIOError: another process has kept the file locked for too long.
    """
    with disk_errors.add_file_name(path), file_lock.take(path, wait_s=PATIENCE_S) as lock:
        _write_at(lock.descriptor, _end_of_last_line(lock.descriptor), json_line(value))


def json_line(value: Mapping[str, Any]) -> str:
    """Return an object as one line of strict JSON in ASCII, whatever characters its strings contain."""
    return json.dumps(_replace_nan(value), allow_nan=False) + "\n"


def _write_at(descriptor: int, end: int, text: str) -> None:
    """Write `text` behind the first `end` bytes, and cut off what follows."""
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    data = memoryview(text.encode())
    while data:
        data = data[os.write(descriptor, data) :]


def keep_rows(path: Path, rows: int) -> None:
    """Cut a CSV after its first `rows` rows, atomically: a reader sees the uncut or the cut file.

    Raises:
        ValueError: it has fewer rows; nothing has been changed.
    """
    end = left = 0
    if path.exists():
        with path.open("rb") as file:
            for number, line in enumerate(file):  # the header is line 0
                if number > rows or not line.endswith(b"\n"):
                    break
                end, left = end + len(line), number
    if left < rows:
        raise ValueError(f"{path.name} has {left} of {rows} rows")
    if path.exists():
        os.truncate(path, end)


def _end_of_last_line(descriptor: int, block: int = 4096) -> int:
    position = os.lseek(descriptor, 0, os.SEEK_END)
    while position > 0:
        start = max(0, position - block)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def complete_text(path: Path) -> str:
    """Return the text of an append-only file up to its last newline; empty if there is no regular file."""
    try:
        with disk_errors.add_file_name(path):
            data = regular_files.read_bytes(path, regular_files.MOST_ROW_BYTES)
    except (FileNotFoundError, regular_files.NotRegular):
        return ""
    return data[: data.rfind(b"\n") + 1].decode("utf-8", errors="replace")


def last_row(path: Path, block: int = 8192) -> dict[str, str] | None:
    """Return the last complete row of a CSV by column name; None if there is none yet.

    Reads the two ends of the file only: cheap enough to follow hundreds of runs.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    try:
        with disk_errors.add_file_name(path), regular_files.open_regular(path) as file:
            header = file.readline(block)
            file.seek(max(len(header), file.seek(0, os.SEEK_END) - block))
            tail = file.read(block)
    except FileNotFoundError:
        return None
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    if not header.endswith(b"\n") or not lines:
        return None
    names, values = (line.decode("utf-8", "replace").split(",") for line in (header.strip(), lines[-1]))
    return dict(zip(names, values, strict=False))


def tail(path: Path, lines: int = 12, block: int = 16384) -> list[str]:
    """Return the last non-empty lines of a log, whatever bytes are in it."""
    try:
        with regular_files.open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - block))
            text = file.read(block).decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
