"""A communicator of many workers in one process, in which every other worker has what this one has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI


class Mirror:
    """Stands for a communicator of `size` workers of which this process is worker 0.

    An exchange on it has the parts, calls, encoding and decoding of `size` workers, but nothing is sent. A gathered
    message is this worker's own, `size` times; a partner sends back what it gets; the other workers add nothing to a
    sum. It has only the calls that replicas, and exchanges of all workers, make.
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def Allreduce(self, sent: Any, received: Any, operation: Any = None) -> None:
        """Leave the buffer `received`, which has this worker's numbers (MPI.IN_PLACE), as it is."""

    def Allgather(self, sent: Any, received: Any) -> None:
        """Copy `sent` into the place of every worker; each is an array, or a list that begins with one."""
        source, target = _get_array(sent), _get_array(received)
        target.reshape(self.size, -1)[:] = source.reshape(-1)

    Allgatherv = Allgather  # all messages are equally long

    def Isend(self, message: Any, partner: int) -> MPI.Request:
        return _get_own().Isend(message, 0)

    def Probe(self, partner: int, *, status: MPI.Status) -> None:
        _get_own().Probe(0, status=status)

    def Recv(self, message: Any, partner: int) -> None:
        _get_own().Recv(message, 0)


def _get_array(message: Any) -> np.ndarray:
    return np.asarray(message[0] if isinstance(message, list) else message)


def _get_own() -> MPI.Intracomm:
    from mpi4py import MPI

    return MPI.COMM_SELF
