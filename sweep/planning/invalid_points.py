"""Points of a grid that cannot work: they are left out of the sweep or refuse it (sweep.invalid)."""

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
    """A point that is left out of the grid, by sweep.exclude or sweep.include or because it is `impossible`."""

    overrides: Mapping[str, str]
    why: str
    impossible: bool = False


def find_refusal(
    way: str,
    refused: Mapping[int, UsageError],
    worked: Sequence[Mapping[str, str]],
    overrides: Sequence[Mapping[str, str]],
) -> UsageError | None:
    """Return the error by which invalid points refuse the whole grid; None if only these points are left out.

    With `corners` a value belongs to points that work and to points that do not: each works by itself, and only some
    pairs of them do not. A value that works nowhere is a mistake.

    Args:
        refused: by the numbers of points that cannot work, why, in order.
        worked: overrides of those that can, as far as they decide anything of them.
        overrides: of all points, by number.
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
    """Return the error that refuses a search's batch; None if its sweeper is told which points have no result.

    Only where none of it `worked`, nor any of a batch before (`begun`), the search is refused.
    """
    if not refused or (way != REFUSE and (begun or worked)):
        return None
    return next(iter(refused.values()))


def summarise(taken_out: Sequence[TakenOut]) -> list[dict[str, Any]]:
    """Return the reasons for leaving points out, each with its number of points, in the order of the points."""
    counts = collections.Counter(point.why for point in taken_out)
    return [{"points": count, "why": why} for why, count in counts.items()]


def describe_left_out(taken_out: Sequence[TakenOut], points: int, most: int | None = None) -> list[str]:
    """Return lines on the points that are left out, with `most` reasons; sweep.yaml has all of them."""
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
