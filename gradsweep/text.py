"""Format text, numbers and tables for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

LARGE = 1e9
"""Of numbers that are shown: all below stand as they are."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    r"""Return a text of unknown origin with control characters escaped (\x1b) and carriage returns as new lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def one_line(text: str) -> str:
    return harmless(" ".join(text.split()))


def align(rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return the lines of a table with aligned columns; the columns in `right` are aligned right.

    The last column is not padded.
    """
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def number(value: float | None, form: str) -> str:
    """Return a number formatted by `form`; a very large one with three significant digits, None as an empty text."""
    return "" if value is None else format(value, form if abs(value) < LARGE else ".3g")


def plural(count: int | str, what: str) -> str:
    """Return a count with its noun: `1 run`, `9 runs`; a text in place of the count is used unchanged: `2 and 4
    workers`."""
    return f"{count} {what}{'' if str(count) == '1' else 's'}"


def duration(seconds: float | None) -> str:
    """Return seconds for people: 8.1 s, 2:05, 1:02:03."""
    if seconds is None:
        return ""
    if seconds < 60 or seconds >= LARGE:
        return f"{number(seconds, '.1f')} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def describe_lock_owner(holder: dict[str, Any]) -> str:
    """Return words for the process that has locked a sweep, as `read_lock_owner` found it."""
    gone = f" (if it has ended there, remove {holder['remove']})" if "remove" in holder else ""
    return one_line(f"pid {holder.get('pid')} on {holder.get('host')}{gone}")
