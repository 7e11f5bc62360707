"""Errors in what the user asked for, each with a message of one line."""

from __future__ import annotations

LISTED_BY = "python multirun.py --help"
"""Lists the keys of a config, and the members of its groups."""


class UsageError(Exception):
    """A user's request that cannot work; nothing was started. `str()` is the one line to print."""


def bad_value(key: str, value: object, valid: str, meant: str = "") -> UsageError:
    """Return a UsageError that names the key, its value and what is valid, in one line whatever the value is.

    Args:
        meant: a hint from `gradsweep.options.hints.did_you_mean`, put before what is valid.
    """
    shown = "null" if value is None else str(value)
    return UsageError(f"{key}={shown if shown.isprintable() else repr(shown)}: {meant}valid is {valid}")


def get_first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
