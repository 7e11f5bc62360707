"""--quiet, --json, --trust and --probe=SECONDS: words of a command line that Hydra knows nothing of."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableSequence

QUIET, JSON, VERSION = "--quiet", "--json", "--version"
TRUST = "--trust"
"""The flag that trusts files of another user. It is no config key, as a stranger's config would set it."""
ALL = (QUIET, JSON, TRUST, VERSION)
PROBE = "--probe"
"""With seconds, as `python -m sweep probe` types it: the network is measured, and nothing is trained."""


@dataclasses.dataclass
class Flags:
    """The flags of one command."""

    quiet: bool = False
    json: bool = False
    trust: bool = False
    probe_s: float | None = None
    """How long a probe is to measure; None: this is no probe."""

    @property
    def is_terse(self) -> bool:
        """Whether the command reports no progress."""
        return self.quiet or self.json


def take_flags(arguments: MutableSequence[str]) -> Flags:
    """Remove the flags from a command line and return them.

    They must not be among a run's overrides, which its directory is named by.
    """
    typed = set()
    for flag in (QUIET, JSON, TRUST):
        while flag in arguments:
            arguments.remove(flag)
            typed.add(flag)
    flags = Flags(QUIET in typed, JSON in typed, TRUST in typed)
    for word in [word for word in arguments if word.startswith(f"{PROBE}=")]:
        arguments.remove(word)
        flags.probe_s = float(word.partition("=")[2])
    return flags
