"""Format numbers, units and names for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def clean(text: str) -> str:
    """Return a text as one line of printable characters.

    Control characters, which could steer a terminal, and lone surrogates, which no file can hold,
    become spaces.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text).strip()


def format_number(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits: 0.0431, 4.31, 112, 14,300."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = f"{value:.{digits - 1}e}"
    mantissa, _, power = rounded.partition("e")
    exponent = int(power)
    if not -5 < exponent < 9:
        return f"{mantissa}e{exponent}"
    return f"{float(rounded):,.{max(digits - 1 - exponent, 0)}f}"


def format_percent(share: float, decimals: int = 0) -> str:
    """Return a share in percent: `2.1 %`."""
    return f"{100 * share:.{decimals}f} %"


def format_spread(mean: float, std: float, digits: int = 3) -> str:
    """Return `mean ± std` with enough decimals for `digits` digits of `mean` and for one digit of `std`.

    98.10 ± 1.20, 98.312 ± 0.003, 112 ± 4, 14,310 ± 90.
    """
    if not (math.isfinite(std) and 1e-4 <= abs(mean) < 1e9 and std < 1e9):
        return f"{format_number(mean, digits)} ± {format_number(std, 2)}"
    decimals = digits - 1 - _exponent(mean)
    if std > 1e-9 * abs(mean):  # a smaller one is rounding
        decimals = max(decimals, -_exponent(std))
    return " ± ".join(f"{round(value, decimals):,.{max(decimals, 0)}f}" for value in (mean, std))


def _exponent(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])


def format_setting(value: Any) -> str:
    """Return the value of a config key as it is typed on the command line; empty for an unknown value."""
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value != value:
        return ""
    if pd.api.types.is_bool(value):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def format_settings(values: pd.Series) -> list[str]:
    """Return `format_setting` of each value."""
    return list(map(format_setting, values.to_numpy("object")))  # ten times as fast as iterating over `values`


def make_sort_key(value: Any) -> tuple[int, float, str]:
    """Return a sort key for config values of any types: empty values, then numbers by size, then texts."""
    text = format_setting(value)
    if not text or isinstance(value, str):
        return (2 if text else 0, 0.0, text)
    return (1, float(value), text)


def choose_byte_unit(largest: float) -> tuple[float, str]:
    """Return the size in bytes and the name of the decimal unit for a column with this largest value."""
    return next(((size, name) for size, name in _BYTE_UNITS if largest >= size), (1.0, "B"))


def join_words(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `2, 4 and 8`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def shorten_list(words: Sequence[str], most: int = 8) -> list[str]:
    """Return the words; of more than `most`, only the first, followed by a word with the number of the others."""
    return list(words) if len(words) <= most + 1 else [*words[:most], f"{len(words) - most} more"]
