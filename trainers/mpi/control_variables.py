"""Control variables of the MPI library: which algorithms its collectives use.

MPI's tool interface (MPI_T, chapter 15 of the standard), which mpi4py does not offer, reads and changes them in a
running process. The names are Open MPI's; another MPI has no such variables.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

DYNAMIC_RULES = b"coll_tuned_use_dynamic_rules"
"""Without it, the variables of algorithms have no effect."""
_BCAST = "linear chain pipeline split_binary binary binomial knomial scatter_allgather scatter_allgather_ring"
ALGORITHMS: Mapping[str, str] = {
    "allreduce": "linear reduce_bcast recursive_doubling ring segmented_ring rabenseifner allgather_reduce",
    "allgather": "linear bruck recursive_doubling ring neighbor two_proc sparbit direct",
    "allgatherv": "linear bruck ring neighbor two_proc sparbit",
    "alltoall": "linear pairwise modified_bruck linear_sync two_proc",
    "alltoallv": "linear pairwise",
    "bcast": _BCAST,
    "reduce": "linear chain pipeline binary binomial in_order_binary rabenseifner knomial",
}
"""The algorithms of each collective of an exchange, which Open MPI's component coll/tuned numbers from 1 on
(`ompi_info --param coll tuned --level 9`)."""


class ControlVariable:
    """An integer control variable of the MPI library, which MPI_T can read and change.

    Raises:
        LookupError: the library has no such variable, or no MPI_T.
    """

    def __init__(self, name: bytes) -> None:
        from mpi4py import MPI

        self._library = ctypes.CDLL(MPI.__file__)  # with the libmpi that it has loaded
        self._handle = ctypes.c_void_p()
        provided, index, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        try:
            self._require(self._library.MPI_T_init_thread(MPI.THREAD_MULTIPLE, ctypes.byref(provided)))
            self._require(self._library.MPI_T_cvar_get_index(name, ctypes.byref(index)))
            handle = ctypes.byref(self._handle)
            self._require(self._library.MPI_T_cvar_handle_alloc(index, None, handle, ctypes.byref(count)))
        except AttributeError as error:
            raise LookupError(str(error)) from error

    @staticmethod
    def _require(status: int) -> None:
        if status:
            raise LookupError(f"MPI_T: error {status}")

    def read(self) -> int:
        value = ctypes.c_int()
        self._require(self._library.MPI_T_cvar_read(self._handle, ctypes.byref(value)))
        return value.value

    def read_flag(self) -> bool:
        value = ctypes.c_bool()  # a byte: an int would have undefined ones beside it
        self._require(self._library.MPI_T_cvar_read(self._handle, ctypes.byref(value)))
        return value.value

    def write(self, value: int) -> None:
        self._require(self._library.MPI_T_cvar_write(self._handle, ctypes.byref(ctypes.c_int(value))))


def read_algorithms() -> dict[str, str | None] | None:
    """Ask the MPI library which algorithm each collective of `ALGORITHMS` uses on new communicators.

    The value of a collective is None if the library chooses by the size of messages. None is returned if the library
    cannot be asked.
    """
    try:
        is_fixed = ControlVariable(DYNAMIC_RULES).read_flag()
        return {name: _read_algorithm(name) if is_fixed else None for name in ALGORITHMS}
    except LookupError:
        return None


def _read_algorithm(collective: str) -> str | None:
    number = ControlVariable(f"coll_tuned_{collective}_algorithm".encode()).read()
    names = ALGORITHMS[collective].split()
    return None if number == 0 else names[number - 1] if 0 < number <= len(names) else str(number)
