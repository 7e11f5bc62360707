"""Make a table and a CSV of averaging consensus: a row for each scheme, and a line for each iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compressors.commands import descriptions
from gradsweep.cli import spreadsheets
from gradsweep.cli.tables import Column, Table
from trainers.consensus.simulate import Course
from trainers.topology.mixing import Mixing

Courses = Mapping[str, tuple[float, Course]]
"""The stepsize and the course of each scheme."""

_SHARE = 1e-6
NOTE = f"Errors are parts of that at the start; bits: what a worker has sent by the time it is {_SHARE:g}."
"""The explanation that is printed below the table."""


def build_table(courses: Courses, mixing: Mixing) -> Table:
    """Return a table with a row for each scheme."""
    numbers = ["stepsize", "distance a step", "exact, by the gap", "error at the end", f"steps to {_SHARE:g}", "bits"]
    rows = []
    for scheme, (stepsize, course) in courses.items():
        share = course.errors / course.errors[0]
        below = np.flatnonzero(share <= _SHARE)
        first = int(below[0]) if len(below) else None
        rows.append(
            [
                scheme,
                f"{stepsize:.4g}",
                "diverges" if course.diverged else f"x {course.factor:.4f}",
                f"x {1 - mixing.damp(stepsize).gap:.4f}",
                "-" if course.diverged else f"{share[-1]:.2g}",
                "-" if first is None else str(first),
                "-" if first is None else descriptions.format_number(course.bits[first]),
            ]
        )
    return Table([Column("scheme"), *(Column(name, is_number=True) for name in numbers)], rows)


def write(courses: Courses, path: Path) -> None:
    """Write all errors and bits to a CSV, for each scheme until it diverges.

    Raises:
        OSError: the file cannot be written.
    """
    rows = [
        [scheme, stepsize, iteration, *(f"{value:.9g}" for value in values)]
        for scheme, (stepsize, course) in courses.items()
        for iteration, values in enumerate(zip(course.errors, course.estimate_errors, course.bits, strict=True))
        if math.isfinite(values[0])
    ]
    names = ["scheme", "stepsize", "iteration", "error", "estimate_error", "bits"]
    path.write_text(spreadsheets.to_csv(names, rows), encoding="utf-8")
