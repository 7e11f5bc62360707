"""The limits of an attempt: time, time without progress, and room for its logs."""

from __future__ import annotations

import dataclasses

MEGABYTE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of an attempt, as plain fields for JSON.

    Attributes:
        hang_s: seconds without a change in any file of the run after which it is ended; None: never.
        time_s: seconds after which an attempt is asked to save and to end; None: never.
        log_bytes: of stdout.log and of stderr.log, each.
    """

    hang_s: float | None = None
    time_s: float | None = None
    log_bytes: int = 20 * MEGABYTE
