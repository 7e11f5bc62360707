"""Format the files of one run for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradsweep import disturbance, files, run_directory, timed_steps
from gradsweep.disk import regular_files
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


def explain_disturbance(run: Run) -> str | None:
    """Return a sentence if other programs slowed down a run's training, by the fastest yardstick reading of its sweep.

    None: they did not, or it is not known.
    """
    yardstick = (run.result() or {}).get("yardstick")
    if not yardstick:
        return None
    best = disturbance.find_best(_list_yardsticks(run.directory.parent.parent))
    return disturbance.explain_disturbed(yardstick, disturbance.choose_best(yardstick, best))


def _list_yardsticks(sweep: Path) -> Iterator[Any]:
    """Yield the yardsticks of all runs of a sweep and of all heats of its races."""
    yield from ((each.result() or {}).get("yardstick") for each in run_directory.runs_of(sweep))
    races = sweep / run_directory.RACES
    for name in regular_files.real_directories(races) if races.is_dir() else ():
        ratios = files.read_json(races / name / run_directory.RATIOS) or {}
        heats = ratios.get("heats")
        if isinstance(heats, list):
            yield from (heat.get("yardstick") for heat in heats if isinstance(heat, dict))


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
