"""The transports of Open MPI's messages: the values of `mpi.transport`, and a check that a library has them."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from gradsweep.errors import bad_value
from sweep.system.processes import read_text

AUTO, SHM, TCP, UCX, OFI = "auto", "shm", "tcp", "ucx", "ofi"

TRANSPORTS: Mapping[str, Mapping[str, str]] = {
    AUTO: {},
    SHM: {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp"},  # Open MPI 5 also calls vader sm, 4 does not
    TCP: {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"},
    UCX: {
        "OMPI_MCA_pml": "ucx",
        # else UCX is refused where it finds no InfiniBand
        "OMPI_MCA_opal_common_ucx_tls": "any",
        "OMPI_MCA_opal_common_ucx_devices": "any",
    },
    OFI: {
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        # Open MPI's own list has tcp, too: then libfabric is refused where it finds nothing faster
        "OMPI_MCA_opal_common_ofi_provider_exclude": "shm,sockets,udp,rstream,usnic,net",
        "MPI4PY_RC_RECV_MPROBE": "0",  # matched probes fail over libfabric's tcp
    },
}
"""By transport, the variables of the ranks' environment that choose it."""

CHOOSING = ("OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_btl")
"""Variables that choose a transport; all others only tune it."""

DEFAULTS = {"local": SHM, "slurm": AUTO}
"""What null means, by the launcher's cluster: on this machine, probing for devices would cost each start a second."""

_NEEDED = {SHM: (), TCP: (), UCX: ("pml:ucx",), OFI: ("pml:cm", "mtl:ofi")}
"""Components of Open MPI that a transport needs, beside those that every Open MPI has."""

_PATIENCE_S = 20.0


def refuse_other_choice(transport: str, environment: Mapping[str, str]) -> None:
    """Refuse an environment (mpi.environment) that chooses another transport.

    Raises:
        UsageError: it does; the message names the variable.
    """
    chosen = TRANSPORTS[transport]
    for name in CHOOSING:
        if transport != AUTO and name in environment and environment[name] != chosen.get(name):
            valid = f"left out with mpi.transport={transport}, or mpi.transport=auto"
            raise bad_value(f"mpi.environment.{name}", environment[name], valid)


def refuse_lacking(transport: str, program: str) -> None:
    """Refuse a requested transport if the MPI library lacks it.

    Args:
        program: the full path of the MPI launcher.

    Raises:
        UsageError: it is lacking; the message says which transports the library has.
    """
    if transport in (AUTO, SHM):  # no question is asked for a default
        return
    components = _list_components(program)
    if not components:
        valid = f"auto: beside {program} is no ompi_info of an Open MPI, which alone can be told what to use"
        raise bad_value("mpi.transport", transport, valid)
    if not components.issuperset(_NEEDED[transport]):
        has = [AUTO, *(name for name, needed in _NEEDED.items() if components.issuperset(needed))]
        raise bad_value("mpi.transport", transport, f"one of {', '.join(has)}, which the Open MPI of {program} has")


@functools.cache
def _list_components(program: str) -> frozenset[str]:
    """Return the components, such as pml:ucx, of the Open MPI to which an MPI launcher belongs; empty for other MPIs.

    For srun, which belongs to SLURM, the Open MPI is the one in the directory of this Python, or the one on PATH.
    """
    own = Path(program).name != "srun"
    found = shutil.which("ompi_info", path=os.path.dirname(program if own else sys.executable))
    if found is None and not own:
        found = shutil.which("ompi_info")
    lines = read_text(found, "--parsable", timeout=_PATIENCE_S).splitlines() if found else []
    words = [line.split(":") for line in lines if line.startswith("mca:")]  # mca:pml:ucx:version:...
    return frozenset(":".join(each[1:3]) for each in words if len(each) > 3)
