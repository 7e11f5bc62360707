"""The sides of a torus of workers."""

from __future__ import annotations

import math

from trainers.options.topologies import Torus


def compute_sides(options: Torus, workers: int) -> tuple[int, int]:
    """Rows and columns of a torus; without `rows`, as many as can be up to the square root of workers."""
    rows = options.rows or max(rows for rows in range(1, math.isqrt(workers) + 1) if workers % rows == 0)
    return rows, workers // rows
