"""--quiet, --json, --trust and --probe=SECONDS: words of a command line that Hydra knows nothing of."""

from __future__ import annotations

from collections.abc import MutableSequence

from sweep.provenance import file_owners

QUIET, JSON, VERSION = "--quiet", "--json", "--version"
TRUST = "--trust"
"""What belongs to another user may decide what runs. In no config: a stranger's would have it."""
ALL = (QUIET, JSON, TRUST, VERSION)
PROBE = "--probe"
"""With seconds, as `python -m sweep probe` types it: the network is measured, and nothing is trained."""

_typed: set[str] = set()


def take(arguments: MutableSequence[str]) -> None:
    """Take the flags out of a command line and remember them for this process.

    As flags, they are not among a run's overrides, which its directory is named by.
    """
    for flag in (QUIET, JSON, TRUST):
        while flag in arguments:
            arguments.remove(flag)
            note(flag)
    for word in [word for word in arguments if word.startswith(f"{PROBE}=")]:
        arguments.remove(word)
        note(word)


def note(flag: str) -> None:
    """Take a flag as typed: another parser has found it."""
    _typed.add(flag)
    if flag == TRUST:
        file_owners.trust_everybody()


def probe_seconds() -> float | None:
    """How long a probe is to measure; None where none was asked for."""
    return next((float(word.partition("=")[2]) for word in _typed if word.startswith(f"{PROBE}=")), None)


def typed(flag: str) -> bool:
    """Whether a flag stood on the command line."""
    return flag in _typed
