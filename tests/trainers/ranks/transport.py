"""What tests/trainers/network/test_transport.py has real ranks do."""

from __future__ import annotations

import os

import numpy as np
from mpi4py import MPI

from tests.trainers.ranks.exchange import main
from trainers.network.transport import find_transport

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


if __name__ == "__main__":
    main(globals())
