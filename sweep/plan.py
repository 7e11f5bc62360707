"""From configs to run directories: signatures, names, and what a resume still has to do."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sweep import run as names
from sweep.mpirun import settle_abandoned, write_state
from sweep.run import Run, write_json, write_text

SIGNATURE_DIGITS = 8  # of 64 in a directory's name; more where two runs would share them

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclasses.dataclass(frozen=True)
class Point:
    """One point of a grid: its resolved config, and its swept keys with their values as typed."""

    config: dict[str, Any]
    swept: dict[str, str]


def signature(config: Mapping[str, Any]) -> str:
    """SHA-256 of the resolved config without places, in hex: what makes two runs the same run."""
    kept = copy.deepcopy(dict(config))
    for place in names.PLACES:
        *parents, key = place.split(".")
        section: Any = kept
        for parent in parents:
            section = section.get(parent, {})
        section.pop(key, None)
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def readable_name(swept: Mapping[str, str], longest: int = 120) -> str:
    """The swept keys and values as a part of a directory's name: safe characters only, not too long."""
    text = ",".join(f"{key}={value}" for key, value in swept.items()) or "run"
    return re.sub(r"[^A-Za-z0-9._=,+-]", "_", text)[:longest]


def swept_keys(points: Sequence[Mapping[str, str]]) -> list[str]:
    """The override keys whose values differ between the points of a grid, in their order."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    return [key for key in keys if len({point.get(key) for point in points}) > 1]


def full_signature(run: Run) -> str | None:
    """The whole signature of an existing run; None where nothing tells."""
    known = run.state().get("signature")
    if isinstance(known, str):
        return known
    try:
        config = yaml.load(run.path(names.CONFIG).read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    return signature(config) if isinstance(config, Mapping) else None


def lay_out(sweep: Path, points: Iterable[Point]) -> list[Run]:
    """Give every point its run directory with config.yaml and state.json, and return the runs in order.

    Directories of earlier runs with the same signature are kept as they are; equal points share one.
    """
    existing: dict[str, Run] = {}
    for run in names.runs_of(sweep):
        known = full_signature(run)
        if known is not None:
            existing[known] = run
    runs = []
    for point in points:
        full = signature(point.config)
        if full not in existing:
            existing[full] = _create(sweep / names.RUNS, point, full)
        elif not is_complete(existing[full]):  # its places may have changed, or the file be damaged
            _write_config(existing[full], point.config)
            write_state(existing[full], signature=full, workers=point.config["workers"])
        runs.append(existing[full])
    return runs


def _create(folder: Path, point: Point, full: str) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    name = readable_name(point.swept)
    for digits in range(SIGNATURE_DIGITS, len(full) + 1):
        directory = folder / f"{name}-{full[:digits]}"
        if not (directory / names.CONFIG).exists():
            break
    directory.mkdir(exist_ok=True)
    run = Run(directory)
    state = {
        "format": names.FORMAT,
        "status": names.PENDING,
        "reason": None,
        "signature": full,
        "workers": point.config["workers"],
        "oversubscribed": None,
        "updated": names.now(),
        "attempts": [],
    }
    write_json(run.path(names.STATE), state)
    _write_config(run, point.config)  # last: a directory with a config is a run
    return run


def _write_config(run: Run, config: Mapping[str, Any]) -> None:
    text = yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    write_text(run.path(names.CONFIG), text)


def is_complete(run: Run) -> bool:
    """Whether a run was computed to an end and its result is there."""
    return run.status() in names.COMPLETE and run.result() is not None


def missing(runs: Iterable[Run]) -> list[Run]:
    """The runs, each once, that have not been computed to an end.

    To be called by the holder of the sweep's lock: a run that says it is running has lost its launcher.
    """
    wanted: dict[Path, Run] = {}
    for run in runs:
        settle_abandoned(run)
        if not is_complete(run):
            wanted.setdefault(run.directory, run)
    return list(wanted.values())
