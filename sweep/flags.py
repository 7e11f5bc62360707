"""--quiet and --json: words of a command line that Hydra knows nothing of."""

from __future__ import annotations

from collections.abc import MutableSequence

QUIET, JSON = "--quiet", "--json"

_typed: set[str] = set()


def take(arguments: MutableSequence[str]) -> None:
    """Take the flags out of a command line and remember them for this process.

    As flags, they are not among a run's overrides, which its directory is named by.
    """
    for flag in (QUIET, JSON):
        while flag in arguments:
            arguments.remove(flag)
            _typed.add(flag)


def note(flag: str) -> None:
    """Take a flag as typed: another parser has found it."""
    _typed.add(flag)


def typed(flag: str) -> bool:
    """Whether a flag stood on the command line."""
    return flag in _typed
