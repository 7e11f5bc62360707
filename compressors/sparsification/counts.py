"""Count how many of n elements a ratio keeps, by the named rules of the papers and of their public code.

The same ratio means different counts in different papers, and a difference of one changes what small layers send.
Ratios are taken as the decimal numbers that they are written as: 0.1 of 30 is 3, although 30 * 0.1 is above 3 as a
float.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

from gradsweep.options.parameters import choice, number

RULES = ("ceil", "floor_plus_one", "at_least_one_floor", "drop_ratio")
"""ceil                 ceil(n r): Deep Gradient Compression
floor_plus_one       floor(n r) + 1: RedSync
at_least_one_floor   max(1, floor(n r)): GRACE, PowerSGD's paper code
drop_ratio           r is the part that is dropped: max(1, floor(n (1 - r))): ChocoSGD. Of 100 elements, r = 0.9
                     keeps 10, where int(100 * (1 - 0.9)) is 9"""


def ratio(default: float) -> Any:
    """Return a dataclass field for a ratio of kept elements."""
    return number(default, low=0, high=1, above=True)


def rule(default: str) -> Any:
    """Return a dataclass field for one of RULES, the rules for counting kept elements."""
    return choice(default, *RULES)


def compute_part_kept(ratio: float, rule: str) -> Fraction:
    """Return the share of the elements that `ratio` keeps by `rule`, before rounding to whole elements."""
    part = Fraction(str(ratio))
    return 1 - part if rule == "drop_ratio" else part


def compute_ratio(part: float, rule: str) -> float:
    """Return the inverse of `compute_part_kept`: the ratio that keeps `part` by `rule`."""
    return float(1 - Fraction(str(part))) if rule == "drop_ratio" else part


@functools.lru_cache(maxsize=4096)  # asked for several times for every unit of a step, and slow as fractions are
def count_kept(n: int, ratio: float, rule: str) -> int:
    """Return how many of n elements `ratio` keeps by `rule`: at least one (if n > 0), at most n."""
    exact = n * compute_part_kept(ratio, rule)
    count = math.ceil(exact) if rule == "ceil" else math.floor(exact) + (rule == "floor_plus_one")
    return min(max(count, 1), n)
