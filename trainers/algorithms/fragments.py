"""Cuts the units of a model into fragments that are averaged one after another."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from gradsweep.errors import bad_value
from trainers.gradients.flat import Unit


@dataclasses.dataclass(frozen=True)
class Fragment:
    """Neighbouring units; `place` is their slice of the flat buffers."""

    units: Sequence[Unit]
    place: slice


def cut_fragments(units: Sequence[Unit], count: int) -> list[Fragment]:
    """Cut the units, which fill the flat buffers in order, into `count` fragments of about the same size.

    A unit is never cut, so that the largest fragment has at most one unit more than its share of the elements.

    Raises:
        UsageError: there are fewer units than fragments.
    """
    if count > len(units):
        valid = f"an integer from 1 to {len(units)}, the number of units (exchange.granularity) of the model"
        raise bad_value("algorithm.fragments", count, valid)
    ends = [0, *itertools.accumulate(unit.gradient.numel() for unit in units)]
    edges = [0]
    for number in range(1, count):
        ideal = ends[-1] * number / count
        possible = range(edges[-1] + 1, len(units) - (count - number) + 1)  # no fragment is empty
        edges.append(min(possible, key=lambda edge: abs(ends[edge] - ideal)))
    edges.append(len(units))
    return [Fragment(units[low:high], slice(ends[low], ends[high])) for low, high in itertools.pairwise(edges)]
