"""Points of a grid that cannot work: which are left out, which refuse the sweep (sweep.invalid), what is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.errors import UsageError
from gradsweep.text import plural
from sweep.settings.sweep import REFUSE, SKIP


@dataclasses.dataclass(frozen=True)
class TakenOut:
    """A point that is left out of the grid: sweep.exclude or sweep.include says so, or it is `impossible`."""

    overrides: Mapping[str, str]
    why: str
    impossible: bool = False


def refusal(
    way: str,
    refused: Mapping[int, UsageError],
    worked: Sequence[Mapping[str, str]],
    overrides: Sequence[Mapping[str, str]],
) -> UsageError | None:
    """What the whole grid is refused with; None where the points that cannot work are left out of it.

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


def refusal_of_batch(way: str, refused: Mapping[int, UsageError], worked: bool, begun: bool) -> UsageError | None:
    """As `refusal`, for a batch of a search, which goes by results: its sweeper is told that a point has none.

    Only where none of it `worked`, nor any of a batch before (`begun`), the search is refused.
    """
    if not refused or (way != REFUSE and (begun or worked)):
        return None
    return next(iter(refused.values()))


def summary(taken_out: Sequence[TakenOut]) -> list[dict[str, Any]]:
    """Why points are left out, and how many each time; in the order of the points."""
    counts: dict[str, int] = {}
    for each in taken_out:
        counts[each.why] = counts.get(each.why, 0) + 1
    return [{"points": count, "why": why} for why, count in counts.items()]


def lines(taken_out: Sequence[TakenOut], points: int, most: int | None = None) -> list[str]:
    """What people are told of what is left out of so many points; `most` reasons, the others stand in sweep.yaml."""
    said = []
    impossible = [each for each in taken_out if each.impossible]
    if others := len(taken_out) - len(impossible):
        said.append(f"{others} of {plural(points, 'point')} are taken out by sweep.exclude or sweep.include")
    if impossible:
        said.append(f"{len(impossible)} of {plural(points, 'point')} cannot work and are left out (sweep.invalid):")
        reasons = summary(impossible)
        said += [f"  {each['points']}: {each['why']}" for each in reasons[:most]]
        if most is not None and len(reasons) > most:
            said.append(f"  and for {plural(len(reasons) - most, 'other reason')}: sweep.yaml has them")
    return said
