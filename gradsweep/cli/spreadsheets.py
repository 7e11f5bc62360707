"""CSVs that people open in spreadsheets; standard library only, because all programs that write one load it.

A spreadsheet takes a text that begins with = + - or @ for a formula and computes it, whoever has chosen the text: the
name of a run, a host, the reason of a failure.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠﹢﹣﹦﹫−]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)


def to_csv(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a CSV with a header: numbers with all digits, nothing for None, and texts that spreadsheets show as
    texts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(quote, names))
    writer.writerows([quote(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue()


def quote(text: str) -> str:
    r"""Return a text for a spreadsheet, with an apostrophe before it if the spreadsheet would read it as a formula or
    number.

    That is what may be a formula but is no number, and what has control characters, which are spelled out (\x1b).
    """
    printable = _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)
    is_formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{printable}" if is_formula or printable != text else text
