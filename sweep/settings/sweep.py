"""The settings of a sweep, which do not change the results of its runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from gradsweep.errors import bad_value
from gradsweep.options.parameters import InvalidParameter, Valid, boolean, check, choice, field, integer, number
from sweep.console import on_end as notify
from sweep.provenance import secrets
from sweep.settings import metrics
from sweep.settings.limits import MEGABYTE, Limits
from sweep.settings.mpi import MpiSettings, parse_mpi
from sweep.settings.sections import parse_section

INVALID = CORNERS, REFUSE, SKIP = "corners", "refuse", "skip"
"""The values of sweep.invalid."""

MOST = 1e9
"""Minutes or megabytes at most: more is a slip, and would overflow in seconds or bytes later."""


def _name() -> Any:
    words = "up to 81 of A-Z, a-z, 0-9, '.', '_' and '-', a letter or digit first"
    pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")

    def test(name: Any) -> bool:
        return name is None or (isinstance(name, str) and pattern.fullmatch(name) is not None)

    return dataclasses.field(default=None, metadata={"valid": Valid(words, test)})


@dataclasses.dataclass
class SweepSettings:
    """The section `sweep` of a config."""

    name: str | None = _name()
    resume: str | None = None
    max_parallel: int | None = integer(None, low=1, optional=True)
    zip: Any = dataclasses.field(default_factory=list)
    exclude: Any = dataclasses.field(default_factory=list)
    include: Any = dataclasses.field(default_factory=list)
    invalid: str = choice(CORNERS, *INVALID)
    dry_run: bool = False
    wait: bool = True
    reuse: bool = False
    snapshot: bool = True
    share_cores: bool = boolean(False)
    pack: bool = boolean(False)
    remeasure: int = integer(0, low=0)
    retries: int = integer(2, low=0)
    backoff_s: float = number(10.0, low=0)
    fail_fast: bool = False
    max_failures: int | None = integer(None, low=1, optional=True)
    hang_minutes: float | None = 30.0
    time_minutes: float | None = None
    log_megabytes: float = 20.0
    metric: str = field(
        Valid(metrics.VALID, lambda value: isinstance(value, str), lambda: metrics.METRICS), default=metrics.DEFAULT
    )
    goal: str | None = choice(None, metrics.MAXIMIZE, metrics.MINIMIZE, optional=True)
    prune: str | None = None
    prune_startup: int = integer(5, low=1)
    prune_warmup: int = integer(1, low=0)
    quiet: bool = False
    json: bool = False
    on_end: list[str] | None = None

    @property
    def limits(self) -> Limits:
        """The limits of every attempt."""
        hang, minutes = self.hang_minutes, self.time_minutes
        return Limits(
            hang_s=None if hang is None else 60 * hang,
            time_s=None if minutes is None else 60 * minutes,
            log_bytes=round(self.log_megabytes * MEGABYTE),
        )

    @property
    def most_failures(self) -> int | None:
        """The number of final failures after which the sweep ends; None: no number ends it."""
        return 1 if self.fail_fast else self.max_failures

    def check(self) -> None:
        """Raise UsageError for a value out of range."""
        try:
            check(self)
        except InvalidParameter as error:
            raise bad_value(f"sweep.{error.name}", error.value, error.valid, error.meant) from error
        for key in ("exclude", "include"):
            self.read_expressions(key)
        for key in ("hang_minutes", "time_minutes"):
            minutes = getattr(self, key)
            if minutes is not None and not 0 < minutes <= MOST:
                raise bad_value(f"sweep.{key}", minutes, f"a number above 0, up to {MOST:g}, or null")
        if not 0.01 <= self.log_megabytes <= MOST:
            raise bad_value("sweep.log_megabytes", self.log_megabytes, f"a number from 0.01 to {MOST:g}")
        metrics.check_metric(self.metric, self.goal)
        metrics.check_pruning(self.metric, self.prune)
        secrets.refuse_texts("sweep.on_end", self.on_end or [])
        notify.check_command(self.on_end or [])

    def read_expressions(self, key: str) -> list[str]:
        """Return the expressions of `exclude` or `include`; a single one needs no list.

        Raises:
            UsageError: the value is not a text or a list of texts.
        """
        given = getattr(self, key)
        given = [given] if isinstance(given, str) else given
        if not isinstance(given, (list, tuple)) or not all(isinstance(text, str) for text in given):
            raise bad_value(
                f"sweep.{key}", given, 'a list of expressions, such as ["workers > 4 and compressor == svd"]'
            )
        return list(given)


def parse_settings(config: Mapping[str, Any]) -> tuple[SweepSettings, MpiSettings]:
    """Return the checked sections `sweep` and `mpi` of a composed config.

    Raises:
        UsageError: a value is out of range, the MPI launcher does not exist, or the MPI library lacks the transport.
    """
    sweep = parse_section(config, "sweep", SweepSettings)
    sweep.check()
    return sweep, parse_mpi(config)
