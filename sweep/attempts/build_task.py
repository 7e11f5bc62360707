"""Builds the tasks of an executor from the configs of runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.directory.description import read_description
from sweep.emulation import find_emulation
from sweep.provenance import code_snapshot, record
from sweep.settings.resolved_point import ResolvedPoint


class TaskBuilder:
    """Builds the tasks of an open sweep's runs; all tasks that it builds use the same code.

    Args:
        directory: the sweep's directory.
        keep_code: runs start from a snapshot, which is created if it does not exist yet (sweep.snapshot).
        about: the description of the sweep; None: it is read from sweep.yaml.

    Raises:
        UsageError: the snapshot cannot be written.
    """

    def __init__(self, directory: Path, *, keep_code: bool, about: Mapping[str, Any] | None = None) -> None:
        code = code_snapshot.read_current()
        self.version = code.version
        self.code = str(code_snapshot.take(code, code_snapshot.find_store(directory))) if keep_code else None
        self._directory, self._given = directory, about

    @functools.cached_property
    def _about(self) -> Mapping[str, Any]:
        """The description of the sweep, read from sweep.yaml only at the first task, when the calibration is in it."""
        return read_description(self._directory) if self._given is None else self._given

    def __call__(self, run: Run, point: ResolvedPoint) -> RunTask:
        """Return the task of one run."""
        config, mpi, options = point.config, point.mpi, point.options
        return RunTask(
            str(run.directory),
            run_directory.count_ranks(config),
            config["threads_per_worker"],
            mpi.resolve_command(),
            mpi.variables,
            code=self.code,
            code_version=self.version,
            origin=record.describe_run(self._about, run.state().get("overrides", []), options.describe_location()),
            limits=point.settings.limits,
            launcher=config["launcher"],
            gpus=options.count_gpus(config),
            network=find_emulation(config),
            module=[run_directory.SCRIPT_MODULE if run_directory.is_script(config) else "trainers"],
        )
