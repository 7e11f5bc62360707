"""Decides whether points that cannot work are left out of a grid, or make Gradsweep refuse it (sweep.invalid)."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.errors import UsageError
from gradsweep.text import plural
from sweep.settings.sweep import REFUSE, SKIP


@dataclasses.dataclass(frozen=True)
class TakenOut:
    """A point that is left out of the grid, by sweep.exclude or sweep.include or because it cannot work."""

    overrides: Mapping[str, str]
    why: str
    impossible: bool = False


def find_refusal(
    way: str,
    refused: Mapping[int, UsageError],
    worked: Sequence[Mapping[str, str]],
    overrides: Sequence[Mapping[str, str]],
) -> UsageError | None:
    """Return the error with which invalid points refuse the whole grid; None if only these points are left out.

    With sweep.invalid=corners, an invalid point is left out if each of its values occurs in some valid point, so that
    only the combination is invalid. A value that no valid point has is considered a mistake, and refuses the grid.

    Args:
        refused: the errors of the invalid points, by their numbers in the grid, in order.
        worked: the overrides of the valid points, without those that have no effect.
        overrides: the overrides of all points, by number.
    """
    if not refused:
        return None
    first = next(iter(refused.values()))
    if way == REFUSE or not worked:
        return first
    if way == SKIP:
        return None
    works = {item for typed in worked for item in typed.items()}
    return next((error for number, error in refused.items() if not works.issuperset(overrides[number].items())), None)


def find_refusal_of_batch(way: str, refused: Mapping[int, UsageError], worked: bool, begun: bool) -> UsageError | None:
    """Return the error that refuses a batch of a search; None if only its invalid points are left out.

    Unless sweep.invalid=refuse, the batch is refused only if no point of it is valid (`worked`), nor was any point of
    earlier batches (`begun`).
    """
    if not refused or (way != REFUSE and (begun or worked)):
        return None
    return next(iter(refused.values()))


def summarise(taken_out: Sequence[TakenOut]) -> list[dict[str, Any]]:
    """Return the reasons for leaving points out, each with its number of points, in the order of the points."""
    counts = collections.Counter(point.why for point in taken_out)
    return [{"points": count, "why": why} for why, count in counts.items()]


def describe_left_out(taken_out: Sequence[TakenOut], points: int, most: int | None = None) -> list[str]:
    """Return lines on the points that are left out, with at most `most` reasons; sweep.yaml has all of them."""
    lines = []
    impossible = [each for each in taken_out if each.impossible]
    if others := len(taken_out) - len(impossible):
        lines.append(f"{others} of {plural(points, 'point')} are taken out by sweep.exclude or sweep.include")
    if impossible:
        lines.append(f"{len(impossible)} of {plural(points, 'point')} cannot work and are left out (sweep.invalid):")
        reasons = summarise(impossible)
        lines += [f"  {each['points']}: {each['why']}" for each in reasons[:most]]
        if most is not None and len(reasons) > most:
            lines.append(f"  and for {plural(len(reasons) - most, 'other reason')}: sweep.yaml has them")
    return lines
