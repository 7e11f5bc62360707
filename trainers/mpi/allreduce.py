"""The algorithm of MPI's allreduce, chosen for single communicators.

Open MPI decides it when a communicator is created, by a control variable of its component coll/tuned. MPI's tool
interface (MPI_T, chapter 15 of the standard), which mpi4py does not offer, can change this variable in a running
process. So communicators with different algorithms can exist side by side.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradsweep.errors import bad_value
from trainers.options.exchanges import RABENSEIFNER, RECURSIVE_DOUBLING, RING

if TYPE_CHECKING:
    from mpi4py import MPI

_VARIABLE = b"coll_tuned_allreduce_algorithm"
_NEEDED = b"coll_tuned_use_dynamic_rules"
"""Without it, the variable of the algorithm has no effect."""
_NUMBERS = {RING: 4, RECURSIVE_DOUBLING: 3, RABENSEIFNER: 6}
"""Open MPI's numbers of the algorithms."""


class _ControlVariable:
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


@functools.cache
def _find_variable() -> _ControlVariable | None:
    """Return the control variable of allreduce's algorithm; None if this MPI does not let a program choose it."""
    try:
        variable = _ControlVariable(_VARIABLE)
        variable.write(variable.read())  # it may be readable only
        return variable if _ControlVariable(_NEEDED).read_flag() else None
    except LookupError:
        return None


def can_choose() -> bool:
    """Tell whether this MPI lets a program choose the algorithm of a communicator."""
    return _find_variable() is not None


@contextlib.contextmanager
def using(algorithm: str | None) -> Iterator[None]:
    """Give communicators created within the block this algorithm of allreduce; None: as environment variables say.

    Raises:
        UsageError: this MPI does not let a program choose.
    """
    if algorithm is None:
        yield
        return
    from mpi4py import MPI

    variable = _find_variable()
    if variable is None:
        library = MPI.Get_library_version().splitlines()[0].strip("\0 ")
        valid = f"null, or Open MPI with the variables of mpi=openmpi, which lets a program choose (here {library})"
        raise bad_value("exchange.allreduce", algorithm, valid)
    before = variable.read()
    variable.write(_NUMBERS[algorithm])
    try:
        yield
    finally:
        variable.write(before)


def duplicate(comm: MPI.Comm, algorithm: str | None) -> MPI.Comm:
    """Return a copy of a communicator with this algorithm of allreduce. All ranks of `comm` call this.

    Raises:
        UsageError: this MPI does not let a program choose.
    """
    with using(algorithm):
        return comm.Dup()
