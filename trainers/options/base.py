"""What all options have in common."""

from __future__ import annotations

from gradsweep.options.parameters import check


class Part:
    """Base of all options: the ranges of the fields are checked on construction."""

    def __post_init__(self) -> None:
        check(self)
