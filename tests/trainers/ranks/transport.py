"""What tests/trainers/network/test_transport.py has real ranks do."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers.config import run_config
from trainers.mpi import allreduce
from trainers.mpi.control_variables import read_algorithms
from trainers.network.transport import find_transport
from trainers.rules.resolve import resolve
from trainers.training.rank import describe_transport

COMM = MPI.COMM_WORLD


def told() -> None:
    """It is what was asked for; calls that lanes are made of work with it."""
    mean = COMM.allreduce(np.full(300_000, COMM.rank, np.float32))
    assert (mean == sum(range(COMM.size))).all()
    after, before = (COMM.rank + 1) % COMM.size, (COMM.rank - 1) % COMM.size
    sent = COMM.isend(list(range(50_000)), after)
    status = MPI.Status()
    COMM.Probe(before, MPI.ANY_TAG, status)
    assert COMM.recv(source=before) == list(range(50_000)) and status.Get_source() == before
    sent.wait()
    layer, over = os.environ["TESTED"].split()
    for _ in range(2):
        found = find_transport(COMM)
        assert found == ({"layer": layer, "over": [over], "faster": []} if COMM.rank == 0 else None), found
    assert find_transport(MPI.COMM_SELF) is None


def algorithms() -> None:
    """Those of all collectives are asked of the library, as it was told by the environment and by the run."""
    rings = dict.fromkeys(("allreduce", "allgather", "allgatherv"), "ring")
    rest = dict.fromkeys(("alltoall", "alltoallv", "bcast"))
    found = read_algorithms()
    assert found == {**rings, "reduce": "binomial", **rest}, found
    with allreduce.using("rabenseifner"):
        assert read_algorithms() == {**found, "allreduce": "rabenseifner"}
    changes: dict[str, Any] = {"exchange": {"name": "allreduce", "allreduce": "recursive_doubling"}}
    told = describe_transport(run_config.parse(resolve(compose_config(workers=COMM.size, **changes))), COMM)
    assert (told or {}).get("algorithms") == ({**found, "allreduce": "recursive_doubling"} if told else None)


def free() -> None:
    """Without fixed algorithms the library chooses them."""
    found = read_algorithms()
    assert found is not None and set(found.values()) == {None}, found


if __name__ == "__main__":
    main(globals())
