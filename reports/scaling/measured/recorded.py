"""Read what runs have recorded of their messages: the calls of a step, and the parts of a gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from reports.reading.text import format_setting
from reports.scaling.measured.run_labels import RunRow
from reports.scaling.measured.traffic import Gradient


def read_calls(group: Sequence[RunRow]) -> tuple[dict[str, float] | None, dict[str, float]]:
    """Return the calls of a step by kind, and the early ones, from the first run that has counted them."""
    for row in group:
        result = run_directory.Run(Path(row["directory"])).result() or {}
        if isinstance(found := result.get("collectives_per_step"), Mapping):
            early = result.get("early_collectives_per_step")
            return _keep_positive(found) or None, _keep_positive(early) if isinstance(early, Mapping) else {}
    return None, {}


def _keep_positive(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(kind): count for kind, value in found.items() if (count := to_number(value)) > 0}


def read_gradient(run: RunRow) -> Gradient:
    """Return the bytes of a run's gradient and of its units."""
    size = 4 * to_number(run.get("parameters"))
    bucket = to_number(run.get("exchange.bucket_mib")) * 2**20
    return Gradient(size, {"bucket": bucket, "model": size}.get(format_setting(run.get("exchange.granularity")), 0.0))


def to_number(value: Any) -> float:
    """Return a number; 0 for what is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if math.isfinite(found) else 0.0
