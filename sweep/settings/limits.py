"""The limits of an attempt: its duration, its time without progress, and the size of its logs."""

from __future__ import annotations

import dataclasses

MEGABYTE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of an attempt; the fields are plain values, for JSON.

    Attributes:
        hang_s: an attempt is ended after so many seconds without a change in any of the run's files; None: never.
        time_s: an attempt is asked to save and to end after so many seconds; None: never.
        log_bytes: the largest size of stdout.log and of stderr.log, each.
    """

    hang_s: float | None = None
    time_s: float | None = None
    log_bytes: int = 20 * MEGABYTE
