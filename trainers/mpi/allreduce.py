"""The algorithm of MPI's allreduce, chosen for single communicators.

Open MPI decides it when a communicator is created, by a control variable of its component coll/tuned, which can be
changed in a running process. So communicators with different algorithms can exist side by side.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradsweep.errors import bad_value
from trainers.mpi.control_variables import DYNAMIC_RULES, ControlVariable
from trainers.options.exchanges import RABENSEIFNER, RECURSIVE_DOUBLING, RING

if TYPE_CHECKING:
    from mpi4py import MPI

_VARIABLE = b"coll_tuned_allreduce_algorithm"
_NUMBERS = {RING: 4, RECURSIVE_DOUBLING: 3, RABENSEIFNER: 6}
"""Open MPI's numbers of the algorithms."""


@functools.cache
def _find_variable() -> ControlVariable | None:
    """Return the control variable of allreduce's algorithm; None if this MPI does not let a program choose it."""
    try:
        variable = ControlVariable(_VARIABLE)
        variable.write(variable.read())  # it may be readable only
        return variable if ControlVariable(DYNAMIC_RULES).read_flag() else None
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
