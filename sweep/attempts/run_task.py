"""The task to train a run: the input of executors; a SLURM job gets its fields as JSON."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.run_directory import Run
from sweep import emulation
from sweep.settings.limits import Limits


@dataclasses.dataclass
class RunTask:
    """The task to train the run in `directory`.

    Attributes:
        workers: the number of ranks; with a dedicated server one more than the config's `workers`.
        command: the MPI launcher with its arguments; {workers} stands for the number of ranks.
        environment: additional environment variables of the MPI launcher.
        code: directory of the packages that the ranks run; None: the packages of this process.
        code_version: version of that code (sweep/provenance/code_snapshot.py).
        origin: command, commit and the like (sweep/provenance/record.py).
        gpus: the number of GPUs that the run needs for itself.
        alone: no other run may run at the same time, because an earlier attempt ran out of memory.
        launcher: the options of hydra/launcher for this run.
        module: the module that each rank runs (`python -m`), and its arguments before the run's directory.
        network: the config's section `network` if the network is to be emulated.
    """

    directory: str
    workers: int
    threads_per_worker: int
    command: list[str]
    environment: dict[str, str]
    code: str | None = None
    code_version: str | None = None
    origin: dict[str, Any] = dataclasses.field(default_factory=dict)
    limits: Limits = dataclasses.field(default_factory=Limits)
    gpus: int = 0
    alone: bool = False
    launcher: dict[str, Any] = dataclasses.field(default_factory=dict)
    module: list[str] = dataclasses.field(default_factory=lambda: ["trainers"])
    network: dict[str, Any] | None = None

    @property
    def run(self) -> Run:
        return Run(Path(self.directory))

    @property
    def cores(self) -> int:
        """The number of cores that the run needs for itself."""
        return self.workers * self.threads_per_worker

    def build_command(self) -> list[str]:
        """Return the full command line of the job."""
        words = [word.replace("{workers}", str(self.workers)) for word in self.command]
        job = [*words, sys.executable, "-m", *self.module, self.directory]
        if self.network is None:
            return job
        return emulation.build_command(self.network, self.workers, self.threads_per_worker, job)


def load_task(fields: Mapping[str, Any]) -> RunTask:
    """Return the task with these `fields`, the result of `dataclasses.asdict`."""
    return RunTask(**{**fields, "limits": Limits(**fields.get("limits", {}))})
