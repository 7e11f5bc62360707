"""The runs that a sweep is to have: name, signature and config of each, in one file beside their directories.

It is written before the directories are: one that somebody removes, or that was never made, is known to be missing, and
is laid out from here. Sweeps of earlier versions have none, and none is as good as a damaged one: then what is there is
all. Standard library only.
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
    """One run: its config is `base` with `changes`, without the keys that it `lacks`."""

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
    """Return a run for `note`."""
    return Recorded(name, signature, tuple(overrides), {}, config)


def read(sweep: Path) -> dict[str, Recorded]:
    """Return the recorded runs by their signatures; what is damaged is not among them."""
    try:
        known = files.read_json(sweep / FILE) or {}
    except OSError:
        return {}
    base, runs = known.get("base"), known.get("runs")
    if not isinstance(base, dict) or not isinstance(runs, dict):
        return {}
    found = {signature: _parse_run(signature, each, base) for signature, each in runs.items()}
    return {signature: each for signature, each in found.items() if each is not None}


def _parse_run(signature: str, found: object, base: Mapping[str, Any]) -> Recorded | None:
    if not isinstance(found, dict):
        return None
    name, changes = found.get("name"), found.get("changes")
    overrides, lacks = found.get("overrides"), found.get("lacks", [])
    if not isinstance(name, str) or not isinstance(changes, dict):
        return None
    if not name or Path(name).name != name or name.startswith("."):  # it would lie elsewhere
        return None
    if not all(isinstance(each, list) and all(isinstance(word, str) for word in each) for each in (overrides, lacks)):
        return None
    return Recorded(name, signature, tuple(overrides or ()), base, changes, tuple(lacks))


def note(sweep: Path, runs: Collection[Recorded]) -> None:
    """Add these runs to those that are recorded; one of the same signature is replaced.

    The sections of a config that all have in common stand there once: of ten thousand points it is a few megabytes.
    """
    known = read(sweep)
    base = next(iter(known.values())).base if known else next((each.config for each in runs), {})
    known |= {each.signature: each for each in runs}
    texts = {key: json.dumps(value) for key, value in base.items()}
    written = {signature: _content(each, base, texts) for signature, each in known.items()}
    content = {"format": run_directory.FORMAT, "base": base, "runs": written}
    files.write_text(sweep / FILE, json.dumps(content, separators=(",", ":")) + "\n")


def _content(run: Recorded, base: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return what the file says of a run; `texts` are the sections of `base` as JSON."""
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
    """Say what is wrong with the record of a sweep; None where it is whole, or there is none."""
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
    """Return the recorded runs that are not among those that are `there`, of which either names or signatures are
    given."""
    return [each for each in read(sweep).values() if each.signature not in there and each.name not in there]
