"""The record of a sweep's planned runs: one file in the sweep's directory with each run's name, signature and config.

The file is written before the directories: a run whose directory was removed or never made is known to be missing, and
is laid out from the file. Sweeps of earlier versions have no such file; without it, or with a damaged one, only
existing directories count. Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory

FILE = "runs.json"  # in the sweep's directory
GONE = f"its directory or its {run_directory.CONFIG} is not there; a resume lays it out"


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A recorded run, whose config is the mapping `base` with `changes` applied and the keys in `lacks` removed."""

    name: str
    signature: str
    overrides: tuple[str, ...]
    base: Mapping[str, Any]
    changes: Mapping[str, Any]
    lacks: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        return {key: value for key, value in {**self.base, **self.changes}.items() if key not in self.lacks}


def entry(name: str, signature: str, overrides: Iterable[str], config: Mapping[str, Any]) -> Recorded:
    """Return the record of a run for `note`."""
    return Recorded(name, signature, tuple(overrides), {}, config)


def read(sweep: Path) -> dict[str, Recorded]:
    """Return the recorded runs by signature, without damaged records."""
    try:
        content = files.read_json(sweep / FILE) or {}
    except OSError:
        return {}
    base, runs = content.get("base"), content.get("runs")
    if not isinstance(base, dict) or not isinstance(runs, dict):
        return {}
    parsed = {signature: _parse_run(signature, entry, base) for signature, entry in runs.items()}
    return {signature: run for signature, run in parsed.items() if run is not None}


def _parse_run(signature: str, entry: object, base: Mapping[str, Any]) -> Recorded | None:
    """Return the run of an entry in the file; None if it is damaged."""
    if not isinstance(entry, dict):
        return None
    name, changes = entry.get("name"), entry.get("changes")
    overrides, lacks = entry.get("overrides"), entry.get("lacks", [])
    if not isinstance(name, str) or not isinstance(changes, dict):
        return None
    if not name or Path(name).name != name or name.startswith("."):  # it would lie elsewhere
        return None
    if not isinstance(overrides, list) or not isinstance(lacks, list):
        return None
    if not all(isinstance(word, str) for word in (*overrides, *lacks)):
        return None
    return Recorded(name, signature, tuple(overrides), base, changes, tuple(lacks))


def note(sweep: Path, runs: Collection[Recorded]) -> None:
    """Record these runs; a run replaces the recorded one with the same signature.

    Config sections that all runs have in common are stored once, so that ten thousand runs take a few megabytes.
    """
    recorded = read(sweep)
    base = next(iter(recorded.values())).base if recorded else next((run.config for run in runs), {})
    recorded |= {run.signature: run for run in runs}
    texts = {key: json.dumps(value) for key, value in base.items()}
    written = {signature: _content(run, base, texts) for signature, run in recorded.items()}
    content = {"format": run_directory.FORMAT, "base": base, "runs": written}
    files.write_text(sweep / FILE, json.dumps(content, separators=(",", ":")) + "\n")


def _content(run: Recorded, base: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of a run in the file; `texts` are the sections of `base` as JSON."""
    changes, lacks = run.changes, list(run.lacks)
    if run.base is not base:
        config = run.config
        # 1, 1.0 and True are equal, and in a signature they are not
        common = base.keys() & config.keys()
        same = {key for key in common if config[key] is base[key] or json.dumps(config[key]) == texts[key]}
        changes = {key: value for key, value in config.items() if key not in same}
        lacks = [key for key in base if key not in config]
    about = {"name": run.name, "overrides": list(run.overrides), "changes": changes}
    return {**about, "lacks": lacks} if lacks else about


def flaw(sweep: Path) -> str | None:
    """Describe the damage of a sweep's record; None if the record is whole or does not exist."""
    if not os.path.lexists(sweep / FILE):
        return None
    try:
        runs = (files.read_json(sweep / FILE) or {}).get("runs")
    except OSError as error:
        return f"{FILE} cannot be read ({error.strerror})"
    if isinstance(runs, dict) and runs and len(read(sweep)) == len(runs):
        return None
    return (
        f"{FILE} is damaged: of runs whose directories are gone nothing is known; "
        f"the sweep's own command, with sweep.resume=, lays them out"
    )


def missing(sweep: Path, there: Collection[str]) -> list[Recorded]:
    """Return the recorded runs without those in `there`, a collection of names or of signatures."""
    return [run for run in read(sweep).values() if run.signature not in there and run.name not in there]
