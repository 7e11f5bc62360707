"""The parts of a page that are no visible text: its style, its scripts with plotly's, and their data."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DPI = 200  # of the pictures in plots/
_HERE = Path(__file__).parent
_SCRIPTS = (
    "text.js",
    "dom.js",
    "theme.js",
    "data.js",
    "means.js",
    "choice.js",
    "draw.js",
    "curves.js",
    "scaling.js",
    "breakdown.js",
    "pareto.js",
    "heatmap.js",
    "parallel.js",
    "plots.js",
    "config.js",
    "details.js",
    "filter.js",
    "table.js",
    "runs.js",
    "start.js",
)
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclasses.dataclass(frozen=True)
class Script:
    """A script as it stands between its tags; `source` identifies it in a Content-Security-Policy."""

    text: str

    @functools.cached_property
    def source(self) -> str:
        digest = hashlib.sha256(self.text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"


@functools.cache
def read_style() -> str:
    return (_HERE / "page.css").read_text(encoding="utf-8")


@functools.cache
def read_scripts() -> tuple[Script, Script]:
    """Return plotly's library, and the page's own scripts joined into one that has a scope of its own."""
    from plotly.offline import get_plotlyjs  # loads for a fifth of a second

    own = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return _make_script(get_plotlyjs()), _make_script(f'(() => {{\n"use strict";\n{own}\n}})();\n')


@functools.cache
def read_head_script() -> Script:
    """Return the script that runs before the page is shown."""
    return _make_script((_HERE / "head.js").read_text(encoding="utf-8"))


def _make_script(text: str) -> Script:
    """Return a script with `</script` and the like escaped, and with LF as line ending, so that its hash is always the
    same.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("<!--", "<\\!--")
    return Script(re.sub("<(?=/?script)", r"\\x3c", text, flags=re.IGNORECASE))


def embed_json(value: Any) -> str:
    """Return a value as JSON for a `<script type="application/json">`: all of it is ASCII, without markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for char, code in _ESCAPED.items():
        text = text.replace(char, code)
    return text


def measure_width(png: bytes) -> int:
    """Return the width of a picture in CSS pixels of 1/96 inch (PNG, https://www.w3.org/TR/png-3/#11IHDR)."""
    return round(int.from_bytes(png[16:20], "big") * 96 / DPI)


def encode_texts(texts: Iterable[str]) -> dict[str, Any]:
    """Encode a column of texts, many of which are equal: each text once, and for each row the position of its text."""
    places: dict[str, int] = {}
    rows = [places.setdefault(text, len(places)) for text in texts]
    return {"texts": list(places), "rows": rows}


def round_digits(values: np.ndarray, digits: int = 4) -> np.ndarray:
    """Return numbers with this number of significant digits; NaN and infinities stay."""
    known = np.isfinite(values) & (values != 0)
    decimals = np.zeros(values.shape)
    decimals[known] = digits - 1 - np.floor(np.log10(np.abs(values[known])))
    # By powers of ten that are exact floats, so that the result is the float nearest to so many digits.
    power = 10.0 ** np.abs(decimals)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(np.where(decimals < 0, values / power, values * power))
        return np.where(decimals < 0, scaled * power, scaled / power)


def convert_numbers(values: np.ndarray) -> list[float | int | None]:
    """Return numbers for JSON: None for NaN and infinities, integers if all numbers are whole."""
    return [
        None if not math.isfinite(value) else int(value) if value.is_integer() and abs(value) < 1e15 else value
        for value in values.tolist()
    ]


def thin_places(count: int, most: int) -> Sequence[int]:
    """Return at most `most` of the positions 0 ... `count` - 1, evenly spaced, including the first and the last."""
    if count <= most:
        return range(count)
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})
