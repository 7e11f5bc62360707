"""What an attempt may take: time, time without progress, and room for its logs."""

from __future__ import annotations

import dataclasses

MEGABYTE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Limits:
    """Plain fields: they travel with their RunTask."""

    hang_s: float | None = None
    """Seconds without a change in any file of the run after which it is ended; None: never."""
    time_s: float | None = None
    """Seconds after which an attempt is told to save and to end; None: never."""
    log_bytes: int = 20 * MEGABYTE
    """Of stdout.log and of stderr.log, each."""
