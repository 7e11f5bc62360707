"""CSVs that people open in spreadsheets; standard library only, because all programs that write one load it.

A spreadsheet takes a text that begins with = + - or @ for a formula and executes it. Others may have chosen the text:
it may be the name of a run, a host, or the reason of a failure.
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
    r"""Return a text so that a spreadsheet shows it and does not execute it as a formula.

    A text that may be a formula gets an apostrophe in front, unless it is a number. So does a text with control
    characters, which are escaped (\x1b).
    """
    printable = _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)
    is_formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{printable}" if is_formula or printable != text else text
