"""Fields of options that name the user's own code (gradsweep/targets.py)."""

from __future__ import annotations

from typing import Any

from gradsweep.errors import UsageError
from gradsweep.options.parameters import Valid, field
from gradsweep.targets import FORMS, parse_target

ARGS = "a mapping from names to values"


def target(default: str | None = "") -> Any:
    """Return a dataclass field for a target.

    Args:
        default: empty if a run needs a target, which trainers/rules/check.py then asks for; None if null is valid.
    """

    def passes(value: Any) -> bool:
        if value == default:
            return True
        try:
            parse_target("", value)
        except UsageError:
            return False
        return True

    return field(Valid(FORMS + (" or null" if default is None else ""), passes), default=default)
