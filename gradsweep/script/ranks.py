"""Tell torch.distributed the rank of a process that mpirun or srun has started, and the address of rank 0."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from gradsweep.files import read_json, write_json

PATIENCE_S = 120.0
"""Time that a rank waits for rank 0 to tell its address."""
MEETING = "rendezvous.json"
"""In the attempt's directory: address and port of rank 0."""

_RANKS: Mapping[str, tuple[str, ...]] = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
}
"""The variables of torch.distributed, each with those of MPI launchers that tell its value, the surest first."""


def find_rank_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE of this process, as mpirun or srun tell them.

    A value that neither tells is that of the environment, else that of a single process.
    """
    found = {}
    for name, sources in _RANKS.items():
        told = next((environment[source] for source in sources if source in environment), None)
        found[name] = told or environment.get(name) or ("0" if name.endswith("RANK") else "1")
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE")
    if tasks and not any(source in environment for source in _RANKS["LOCAL_WORLD_SIZE"]):
        counts = _expand_tasks(tasks)
        node = int(environment.get("SLURM_NODEID", "0"))
        if node < len(counts):
            found["LOCAL_WORLD_SIZE"] = str(counts[node])
    return found


def _expand_tasks(text: str) -> list[int]:
    """Return the number of tasks on each node, from SLURM's form such as `2(x3),1`."""
    counts: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(number)] * int(times or 1)
    return counts


def find_master(attempt: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT: rank 0 chooses a free port and tells the others by a file.

    Args:
        attempt: the directory of the attempt, which all ranks see.
        variables: those of `find_rank_variables`.

    Raises:
        TimeoutError: rank 0 has told nothing.
    """
    path = attempt / MEETING
    if variables["RANK"] == "0":
        is_alone = variables["WORLD_SIZE"] == variables["LOCAL_WORLD_SIZE"]
        address = "127.0.0.1" if is_alone else socket.gethostname()
        with socket.socket() as probe:
            probe.bind((address if is_alone else "", 0))
            write_json(path, {"address": address, "port": probe.getsockname()[1]}, durable=False)
    deadline = time.monotonic() + PATIENCE_S
    while (told := read_json(path)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 has not written {path} within {PATIENCE_S:g} s")
        time.sleep(0.02)
    return {"MASTER_ADDR": str(told["address"]), "MASTER_PORT": str(told["port"])}
