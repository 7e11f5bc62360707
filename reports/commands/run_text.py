"""Format the files of one run for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gradsweep import timed_steps
from gradsweep.disturbance import SweepYardsticks
from gradsweep.errors import UsageError
from gradsweep.options import config_keys
from gradsweep.run_directory import CONFIG, Run
from gradsweep.text import one_line

RATES = ("iterations_per_second", "samples_per_second")


def read_config(run: Run) -> dict[str, Any]:
    """Return the resolved config of a run with dotted keys: `compressor.levels`, and `compressor` for its name.

    Raises:
        UsageError: config.yaml is no YAML mapping.
    """
    from gradsweep import yaml_files

    path = run.path(CONFIG)
    try:
        return flatten(yaml_files.read_mapping(path))
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
    raise UsageError(f"{path}: no config can be read ({one_line(why)})")


def flatten(found: Mapping[Any, Any]) -> dict[str, Any]:
    """Flatten a nested mapping to dotted keys: `{model: {name: m, depth: 3}}` becomes `{model: m, model.depth: 3}`."""
    return {path.removesuffix(".name"): value for path, value in config_keys.flatten(found).items()}


def explain_figure(run: Run, config: Mapping[str, Any], key: str) -> str:
    """Return the remark on one number of the run's result, such as a throughput over few steps; else nothing."""
    if key not in RATES:
        return ""
    warmup = config.get("warmup_steps")
    return timed_steps.remark_on(run.result() or {}, warmup if isinstance(warmup, int) else None)


class Disturbance(NamedTuple):
    """In words how other programs disturbed the times of a run; None: they did not, or it is not known.

    Attributes:
        times: its throughput and phases, measured in its race if it raced.
        training: its training.
        is_raced: the throughput is that of a race.
    """

    times: str | None
    training: str | None
    is_raced: bool

    @property
    def lines(self) -> list[str]:
        if not self.is_raced:
            return [f"disturbed: {self.training}"] if self.training else []
        told = (("disturbed in its race", self.times), ("disturbed in its training", self.training))
        return [f"{title}: {reason}" for title, reason in told if reason]


def explain_disturbance(run: Run) -> Disturbance:
    """Explain whether other programs disturbed a run, by the fastest yardstick readings of its sweep."""
    found = SweepYardsticks.read(run.directory.parent.parent)
    training, is_raced = found.explain_training(run.name), found.is_raced(run.name)
    return Disturbance(found.explain_raced(run.name) if is_raced else training, training, is_raced)


def format_value(value: Any) -> str:
    """Return a value as it is typed on the command line; numbers have at most six digits."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return one_line(f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value))


def format_size(count: int) -> str:
    """Return a number of bytes in decimal units: 812 B, 12.3 kB."""
    for unit, exponent in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**exponent:
            return f"{count / 10**exponent:.3g} {unit}"
    return f"{count} B"


def list_files(directory: Path) -> list[tuple[str, int]]:
    """Return the files below a run's directory with their sizes in bytes; symbolic links are not followed."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
    return [(str(path.relative_to(directory)), path.lstat().st_size) for path in paths]
