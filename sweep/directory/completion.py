"""Tells which runs of a sweep are complete, and which a resume still has to compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gradsweep import run_directory, yaml_files
from gradsweep.errors import UsageError
from gradsweep.run_directory import SIGNATURE_DIGITS, Run
from gradsweep.signature import signature
from gradsweep.text import one_line
from sweep.directory.run_identity import is_blocked
from sweep.directory.run_state import reconcile_abandoned

SETTINGS = ("sweep", "mpi", "launcher")  # sections of a config that say how it is run


def load_config(run: Run) -> dict[str, Any]:
    """Return the content of a run's config.yaml.

    Raises:
        UsageError: the file cannot be read, or no longer has the run's signature.
    """
    path = run.path(run_directory.CONFIG)
    again = "valid is what the sweep has written; its command with sweep.resume= writes it again"
    if is_blocked(run):
        raise UsageError(f"{run.path(run_directory.STATE)}: not a regular file; valid is to remove it")
    try:
        config = yaml_files.read_mapping(path)
        now = signature(config)
    except (OSError, ValueError, TypeError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise UsageError(f"{path}: cannot be read ({one_line(why)}); {again}") from error
    if not all(isinstance(config.get(place), dict) for place in SETTINGS):
        raise UsageError(f"{path}: not the config of a run; {again}")
    full = run.state().get("signature")
    if not now.startswith(full if isinstance(full, str) else run.signature):
        raise UsageError(f"{path}: changed since, its signature is now {now[:SIGNATURE_DIGITS]}; {again}")
    return config


def is_complete(run: Run) -> bool:
    """Tell whether a run has finished with a complete result, or was pruned."""
    status = run.status()
    return status in run_directory.COMPLETE and (status not in run_directory.RESULTS or run.result() is not None)


def list_missing(runs: Iterable[Run], reconcile: Callable[[Run], None] = reconcile_abandoned) -> list[Run]:
    """Return the incomplete runs, each once, after `reconcile` has corrected their states.

    The caller must hold the sweep's lock: then no launcher works on a run whose state says that it is running.
    """
    wanted: dict[Path, Run] = {}
    for run in runs:
        if is_complete(run):
            continue
        reconcile(run)
        if not is_complete(run):
            wanted.setdefault(run.directory, run)
    return list(wanted.values())


def list_unfinished(runs: Iterable[Run]) -> list[Run]:
    """Return the runs, each once, that are incomplete according to their files; do not correct their states."""
    return [run for run in dict.fromkeys(runs) if not is_complete(run)]
