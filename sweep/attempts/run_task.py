"""A run as a job: the plain fields that an executor is given, and that a job of SLURM gets as JSON."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gradsweep.run_directory import Run
from sweep import emulation
from sweep.settings.limits import Limits


@dataclasses.dataclass
class RunTask:
    """Trains the run in `directory` with `workers` ranks (with a dedicated server one more than the config's workers).

    Plain fields: it travels as JSON.

    `command` is the MPI launcher with its arguments, with {workers} where the number goes.
    """

    directory: str
    workers: int
    threads_per_worker: int
    command: list[str]
    environment: dict[str, str]
    code: str | None = None
    """Directory of the packages that the ranks run; None: of those that run here."""
    code_version: str | None = None
    """Of that code, as sweep/provenance/code_snapshot.py has it."""
    origin: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Command, commit and the like: what sweep/provenance/record.py says of the run."""
    limits: Limits = dataclasses.field(default_factory=Limits)
    gpus: int = 0
    """GPUs that the run needs for itself."""
    alone: bool = False
    """Nothing may run beside it: no memory was left when something may have."""
    launcher: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The options of hydra/launcher for this run."""
    module: list[str] = dataclasses.field(default_factory=lambda: ["trainers"])
    """What Python runs as each rank, with arguments before the directory."""
    network: dict[str, Any] | None = None
    """The config's section of that name where it is to be emulated."""

    @property
    def run(self) -> Run:
        return Run(Path(self.directory))

    @property
    def cores(self) -> int:
        """Cores that the run would like to have for itself."""
        return self.workers * self.threads_per_worker

    def build_command(self) -> list[str]:
        """The full command line of the job."""
        words = [word.replace("{workers}", str(self.workers)) for word in self.command]
        job = [*words, sys.executable, "-m", *self.module, self.directory]
        if self.network is None:
            return job
        return emulation.build_command(self.network, self.workers, self.threads_per_worker, job)


def load_task(fields: Mapping[str, Any]) -> RunTask:
    """The task that `dataclasses.asdict` was given."""
    return cast(RunTask, _from_dict(RunTask, fields))


def _from_dict(cls: Any, fields: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    found = {}
    for name, value in fields.items():
        kinds = [kind for kind in (hints[name], *typing.get_args(hints[name])) if dataclasses.is_dataclass(kind)]
        found[name] = _from_dict(kinds[0], value) if kinds and isinstance(value, Mapping) else value
    return cls(**found)
