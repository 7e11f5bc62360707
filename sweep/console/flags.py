"""The flags --quiet, --json, --trust and --probe=SECONDS, which Hydra must not see."""

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

    They must not remain among a run's overrides, because these name its directory.
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
