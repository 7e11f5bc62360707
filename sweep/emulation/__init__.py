"""Emulate a cluster's network on one Linux machine, for the time of one MPI job (docs/guide/networks.md).

capability_check.py checks before a run starts whether this machine can emulate its network. `build_command` starts
`python -m sweep.emulation` in temporary namespaces: hosts, links and ranks end with this program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def find_emulation(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the section `network` of a run's config if it asks for emulation by a bandwidth; else None."""
    network = config.get("network") or {}
    return dict(network) if "bandwidth" in network else None


def build_command(network: Mapping[str, Any], ranks: int, threads: int, job: Sequence[str]) -> list[str]:
    """Return the command that runs `job`, a complete command line of Open MPI's mpirun, on emulated hosts.

    The command's environment must have ATTEMPT_VARIABLE, the directory for emulation.json, and TMPDIR, a directory of
    the job.

    Args:
        network: the section of the config.
        threads: the number of threads of each rank, from which the number of a host's cores follows.
    """
    asked = {"network": dict(network), "ranks": ranks, "threads": threads}
    return [sys.executable, "-m", "sweep.emulation", json.dumps(asked), *job]
