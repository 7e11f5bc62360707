"""Files on a scheduler's jobs: job.json of each run, and waiting.json of the sweep."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.run_directory import Run

Job = tuple[str, str]
"""The cluster, a value of hydra.launcher.cluster, and the scheduler's id."""

COMPLETING = "completing"
"""What a job waits for that has been ended, while its scheduler tidies up: it may then be gone, or queued again."""
WAITING = "waiting.json"  # in the sweep's directory, while a launcher waits for a scheduler


def read_job(run: Run) -> Job | None:
    """Return the latest scheduler job of a run; None if no scheduler has the run."""
    cluster, job = (_read_texts(run).get(key) for key in ("cluster", "id"))
    return None if cluster is None or job is None else (cluster, job)


def note_waiting(directory: Path, waiting: Mapping[str, tuple[str, str | None]]) -> None:
    """Write waiting.json for other shells: the job of each run that waits, by the run's name, and why it waits."""
    with contextlib.suppress(OSError):  # a full disk
        if waiting:
            files.write_json(directory / WAITING, {"pid": os.getpid(), "runs": dict(waiting)}, durable=False)
        else:
            (directory / WAITING).unlink(missing_ok=True)


def read_waiting(directory: Path, holder: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Return the waiting jobs from waiting.json; empty if not the sweep's current launcher has written the file."""
    try:
        noted = files.read_json(directory / WAITING) or {}
    except OSError:
        return {}
    if noted.get("pid") != holder.get("pid") or not isinstance(noted.get("runs"), dict):
        return {}
    pairs = {name: each for name, each in noted["runs"].items() if isinstance(each, list) and len(each) == 2}
    return {name: (str(job), None if why is None else str(why)) for name, (job, why) in pairs.items()}


def read_cluster(run: Run) -> str | None:
    """Return the cluster to which a run was submitted; None if it never was."""
    return _read_texts(run).get("cluster")


def _read_texts(run: Run) -> dict[str, str]:
    """Return the texts in a run's job.json; none if the file cannot be read."""
    try:
        content = files.read_json(run.path(run_directory.JOB)) or {}
    except OSError:
        return {}
    return {key: value for key, value in content.items() if isinstance(value, str)}
