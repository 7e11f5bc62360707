"""Builds the tasks of an executor from the configs of runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.directory.description import read_description
from sweep.emulation import find_emulation
from sweep.provenance import code_snapshot, record, user_code
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
        self._store = code_snapshot.find_store(directory) if keep_code else None
        self.code = None if self._store is None else str(code_snapshot.take(code, self._store))
        self._user_code: dict[tuple[str, ...], dict[str, str]] = {}  # the variable for ranks, by digests
        self._directory, self._given = directory, about

    @functools.cached_property
    def _about(self) -> Mapping[str, Any]:
        """The description of the sweep, read from sweep.yaml only at the first task, when the calibration is in it."""
        return read_description(self._directory) if self._given is None else self._given

    def __call__(self, run: Run, point: ResolvedPoint, others: Sequence[Mapping[str, Any]] = ()) -> RunTask:
        """Return the task of one run.

        Args:
            others: configs of further runs that the ranks train, whose code of the user they need, too.
        """
        config, mpi, options = point.config, point.mpi, point.options
        origin = record.describe_run(self._about, run.state().get("overrides", []), options.describe_location())
        if (own := user_code.find(config)) is not None:
            origin[user_code.FACT] = own.describe()
        codes = [code for each in (config, *others) if (code := user_code.find(each)) is not None]
        key = tuple(code.digest for code in codes)
        if key not in self._user_code:
            self._user_code[key] = user_code.take(codes, self._store)
        return RunTask(
            str(run.directory),
            run_directory.count_ranks(config),
            config["threads_per_worker"],
            mpi.resolve_command(),
            {**mpi.variables, **self._user_code[key]},
            code=self.code,
            code_version=self.version,
            origin=origin,
            limits=point.settings.limits,
            launcher=config["launcher"],
            gpus=options.count_gpus(config),
            network=find_emulation(config),
            module=[run_directory.SCRIPT_MODULE if run_directory.is_script(config) else "trainers"],
        )
