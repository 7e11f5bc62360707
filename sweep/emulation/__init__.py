"""Emulate a cluster's network on one Linux machine, for the time of one MPI job (docs/guide/networks.md).

capability_check.py checks before a start whether this machine can do it. The program that `build_command` starts,
`python -m sweep.emulation`, lives in throw-away namespaces: hosts, links and ranks end with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def find_emulation(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the section `network` of a run's config if it asks for emulation: it then has a bandwidth."""
    network = config.get("network") or {}
    return dict(network) if "bandwidth" in network else None


def build_command(network: Mapping[str, Any], ranks: int, threads: int, job: Sequence[str]) -> list[str]:
    """Return the command that runs `job`, a complete command line of Open MPI's mpirun, on emulated hosts.

    The environment must have ATTEMPT_VARIABLE, the directory for emulation.json, and TMPDIR, a directory of the job.

    Args:
        network: the section of the config.
        threads: of each rank, to give each host its cores.
    """
    asked = {"network": dict(network), "ranks": ranks, "threads": threads}
    return [sys.executable, "-m", "sweep.emulation", json.dumps(asked), *job]
