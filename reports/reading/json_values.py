"""Check values from JSON and YAML that other users may have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def as_number(value: Any) -> float:
    """Return the value if it is a number below 1e300, else NaN."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if is_number else math.nan


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []
