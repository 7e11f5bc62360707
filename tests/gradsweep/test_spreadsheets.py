"""A text in a CSV stays a text in a spreadsheet, and a number a number."""

from __future__ import annotations

import csv
import io
import math

import pytest

from gradsweep.cli import spreadsheets

NUMBERS = ("-0.5", "-1e-3", "-inf", "+3", "-7", "-.5", "-2.", "1E+9", "-NaN", "0", "-Infinity")
TEXTS = (
    "",
    "none",
    "a=1",
    "compressor=qsgd,workers=2-3f9a2c1e",
    "x@host",
    "5-3",
    "größe",
    'he said "no", then',
    "'as is",
)
FORMULAS = (
    "=1+1",
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-1+1",
    "-",
    "--1",
    "@SUM(A1)",
    " =1",
    "\u00a0=1",
    "＝1+1",
    "＋1+1",
    "－1+1",
    "＠x",
    "-1_000",
    "+a",
    "-٣",
)
CONTROLS = (
    "\t=1",
    "\r=1",
    "\n=1",
    "a\nb",
    "a\r=1",
    "\x1b[31mred",
    "nul\x00",
    "\u202eevil",
    "\ufeff=1",
    "a\x85b",
)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", [*NUMBERS, *TEXTS])
def test_numbers_and_plain_texts_stay_as_they_are(text: str) -> None:
    assert read(spreadsheets.to_csv(["a", "b"], [[text, 1]])) == [["a", "b"], [text, "1"]]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_looks_like_a_formula_is_quoted(text: str) -> None:
    assert read(spreadsheets.to_csv([text], [[text]])) == [[f"'{text}"]] * 2


@pytest.mark.parametrize("text", CONTROLS)
def test_control_characters_are_spelled_out_in_a_quoted_text(text: str) -> None:
    ((_,), (cell,)) = read(spreadsheets.to_csv(["x"], [[text]]))
    assert cell.startswith("'") and cell.isprintable() and cell.count("\\") == 1


def test_values_that_are_numbers_are_written_in_full() -> None:
    values = [-0.1, -1e-300, 1 / 3, -math.inf, -7, True, None]
    ((_), found) = read(spreadsheets.to_csv(list("abcdefg"), [values]))
    assert [float(text) for text in found[:4]] == values[:4] and found[4:] == ["-7", "True", ""]
