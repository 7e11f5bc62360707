"""sweep.yaml: the description of a sweep, with each command that has started or resumed it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gradsweep import files, run_directory, yaml_files
from gradsweep.disk import regular_files
from gradsweep.files import write_text
from gradsweep.sweeps import planned_runs
from sweep.provenance import record

LAYING_OUT = "laying_out"
"""In sweep.yaml by versions without a record of the runs: how many points there are, until all had a directory."""


def describe_command(
    directory: Path,
    mpi_program: Sequence[str],
    overrides: Sequence[str] = (),
    swept: Sequence[str] = (),
    *,
    race: Mapping[str, Any] | None = None,
    is_same: bool = False,
) -> None:
    """Record in sweep.yaml the command that starts or resumes the sweep in `directory`.

    Args:
        overrides: the overrides of all its points; empty for `python -m sweep resume`.
        swept: keys whose values differ between the points of the command so far.
        race: the section `race` of the points' configs; None for `python -m sweep resume`.
        is_same: these are further points of the last command in sweep.yaml.
    """
    path = directory / run_directory.SWEEP
    known = _read_yaml(path)
    if is_same and known:
        last = _list_commands(known)[-1]
        last["overrides"] = list(dict.fromkeys([*_keep_texts(last.get("overrides")), *overrides]))
    else:
        this = {"created": files.now(), "overrides": list(overrides), **record.describe(mpi_program)}
        this |= {} if race is None else {"race": dict(race)}
        if "format" in known:
            known["resumed"] = [*_list_commands(known)[1:], this]
        else:  # no file, or none with the beginning of the sweep
            damaged = regular_files.set_aside(path)
            known = {"format": run_directory.FORMAT, **this, **({"damaged": damaged} if damaged else {})}
    known["swept"] = list(dict.fromkeys([*_keep_texts(known.get("swept")), *swept]))
    if (directory / planned_runs.FILE).exists():
        known.pop(LAYING_OUT, None)
    _write_yaml(path, known)


def add_to_description(directory: Path, **facts: Any) -> None:
    """Add facts to the last command's entry in sweep.yaml of `directory`; this process must hold the sweep's lock."""
    path = directory / run_directory.SWEEP
    known = _read_yaml(path)
    _list_commands(known)[-1].update(facts)
    _write_yaml(path, known)


def read_description(directory: Path) -> dict[str, Any]:
    """Return sweep.yaml's entry of the last command that started or resumed the sweep; empty if the file is damaged."""
    known = _read_yaml(directory / run_directory.SWEEP)
    return {**known, **_list_commands(known)[-1]}


def read_fact(directory: Path, key: str) -> Any:
    """Return the value of `key` from the latest entry in sweep.yaml that has it; None without one."""
    commands = _list_commands(_read_yaml(directory / run_directory.SWEEP))
    return next((command[key] for command in reversed(commands) if key in command), None)


def explain_torn(directory: Path) -> str | None:
    """Return a warning if an earlier version of Gradsweep has not created all runs of the sweep; else None."""
    try:
        text = regular_files.read_bytes(directory / run_directory.SWEEP).decode("utf-8", errors="replace")
    except OSError:
        return None
    points = re.search(rf"^{LAYING_OUT}: (\d+)$", text, re.MULTILINE)  # a parser takes seconds for a large grid
    if points is None:
        return None
    return (
        f"it was ended while its {points[1]} points were laid out, and some are not there; its own command, "
        f"with sweep.resume={os.path.relpath(directory)}, lays out the rest"
    )


def _write_yaml(path: Path, known: Mapping[str, Any]) -> None:
    write_text(path, yaml.dump(dict(known), Dumper=yaml_files.Dumper, sort_keys=False, allow_unicode=True))


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in sweep.yaml; empty if the file is damaged."""
    try:
        return yaml_files.read_mapping(path)
    except (OSError, ValueError):
        return {}


def _list_commands(known: dict[str, Any]) -> list[dict[str, Any]]:
    """Return sweep.yaml's entries of all commands that have started or resumed the sweep, the first one first."""
    resumed = known.get("resumed")
    return [known, *(each for each in resumed if isinstance(each, dict))] if isinstance(resumed, list) else [known]


def _keep_texts(value: object) -> list[str]:
    """Return the texts in a list from a file that may be damaged; an empty list if `value` is no list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
