"""Values from JSON and YAML that anybody may have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def as_number(value: Any) -> float:
    """Return a number; NaN for what is none, and for one of 1e300 or more."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if is_number else math.nan


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping; an empty one for what is none."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list; an empty one for what is none."""
    return value if isinstance(value, list) else []
