"""`mpirun -n W python -m trainers.training.probe SECONDS DIRECTORY`: one rank of a probe of the network (python -m
sweep probe).

Measures for SECONDS how long the collectives of training take, with the MPI and the settings that training would have.
DIRECTORY has the config.yaml of a run. Rank 0 writes network.json there, and a result.json for the launcher.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from trainers.mpi.process import limit_threads
from trainers.training.rank import check_size_and_pin, describe_transport, find_attempt_directory, main

SETTINGS = "OMPI_MCA_coll"
"""Prefix of the environment variables that choose Open MPI's collectives."""


def probe(seconds: str, directory: Path) -> None:
    """Measure the network, and write network.json and result.json.

    Raises:
        UsageError: the config cannot be used, or the MPI world has the wrong size.
    """
    from trainers.config import run_config as configs

    config = configs.load(directory / "config.yaml")
    limit_threads(config.threads_per_worker)

    from mpi4py import MPI

    from gradsweep.files import now, read_json, write_json
    from gradsweep.run_directory import DONE, EMULATION, FORMAT, NETWORK, RESULT
    from trainers.network import links
    from trainers.network.collective_times import Probe

    comm, started, began = MPI.COMM_WORLD, now(), time.perf_counter()
    check_size_and_pin(config, comm, config.workers)
    network = links.measure_run(comm, config.network, read_json(find_attempt_directory(directory) / EMULATION))
    left_s = float(seconds) - (time.perf_counter() - began)
    latency_s, left_s = comm.bcast((network["measured"]["latency_s"] if network else None, left_s))
    collectives = Probe(comm, left_s, latency_s).run()
    hosts = comm.gather(MPI.Get_processor_name())
    transport = describe_transport(config, comm)
    if network is not None:  # on rank 0
        report = {
            **network,
            **_describe_probe(directory, list(dict.fromkeys(hosts or [])), comm.size),
            "started": started,
        }
        report |= {"workers": comm.size, "transport": transport, "took_s": round(time.perf_counter() - began, 3)}
        write_json(directory / NETWORK, {**report, "collectives": collectives})
        write_json(directory / RESULT, {"format": FORMAT, "status": DONE, "reason": None})


def _describe_probe(directory: Path, hosts: list[str], workers: int) -> dict[str, Any]:
    """Return the hosts, machine, MPI and its settings, which network.json records with the measurements."""
    from mpi4py import MPI

    from gradsweep.files import read_json
    from gradsweep.run_directory import PROVENANCE
    from trainers.mpi.message_sizes import segment_bytes

    machine = read_json(find_attempt_directory(directory) / PROVENANCE) or {}
    return {
        "kind": "probe",
        "hosts": hosts,
        "machine": {key: machine.get(key) for key in ("host", "platform", "cpu")},
        "mpi": MPI.Get_library_version().split(",")[0].strip("\0 \n"),
        "settings": {key: value for key, value in sorted(os.environ.items()) if key.startswith(SETTINGS)},
        "allreduce_segment_bytes": segment_bytes(workers),
    }


if __name__ == "__main__":
    main(sys.argv[1:], probe, "trainers.training.probe", "SECONDS DIRECTORY")
