"""Open MPI's own count of the bytes that a rank has sent: of its point-to-point messages, and those of collectives.

With the variables MONITORED a component between MPI and its messages counts them (pml/monitoring), and the tools'
interface of MPI (MPI_T, chapter 15 of the standard), which mpi4py does not have, tells the count.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

NAME = b"pml_monitoring_messages_size"
PVAR_CLASS_SIZE = 2


def required(status: int) -> None:
    if status:
        raise RuntimeError(f"MPI_T: error {status}: is pml/monitoring enabled?")


@functools.cache
def counter() -> Callable[[], int]:
    """What reads the count, from now on."""
    lib = ctypes.CDLL(MPI.__file__)  # with the libmpi that it has loaded
    provided, index, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    session, handle = ctypes.c_void_p(), ctypes.c_void_p()
    required(lib.MPI_T_init_thread(MPI.THREAD_MULTIPLE, ctypes.byref(provided)))
    required(lib.MPI_T_pvar_get_index(NAME, PVAR_CLASS_SIZE, ctypes.byref(index)))
    required(lib.MPI_T_pvar_session_create(ctypes.byref(session)))
    world = ctypes.c_void_p(MPI._addressof(MPI.COMM_WORLD))
    required(lib.MPI_T_pvar_handle_alloc(session, index, world, ctypes.byref(handle), ctypes.byref(count)))
    required(lib.MPI_T_pvar_start(session, handle))

    def read() -> int:
        to_each = np.zeros(count.value, dtype=np.uint64)
        required(lib.MPI_T_pvar_read(session, handle, to_each.ctypes.data_as(ctypes.c_void_p)))
        return int(to_each.sum())

    return read


class Sent:
    """Bytes that this rank sends in `with` blocks, in whatever communicator, beside those that it believes to send."""

    def __init__(self) -> None:
        self.counted, self.believed = 0, 0.0
        self._read = counter()

    def __enter__(self) -> Sent:
        self.counted -= self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self.counted += self._read()

    def require_equal(self, what: object) -> None:
        """All ranks together have sent what they believe."""
        counted, believed = (MPI.COMM_WORLD.allreduce(one) for one in (self.counted, self.believed))
        assert counted > 0 and abs(believed - counted) <= 1e-9 * counted, (what, believed, counted)
