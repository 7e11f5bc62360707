"""Find out what really carries the messages of MPI: the layer of the library, and the connection of its ranks.

The library tells which of its layers sends. The connection of two ranks follows from their sockets: if there is a TCP
connection between them, it carries their messages; otherwise shared memory does on the same host, and a network device
between hosts. Finding this out costs no time in a step.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

SHM, TCP, RDMA, UNKNOWN = "shm", "tcp", "rdma", "unknown"

DEVICES = Path("/sys/class")
_RDMA = ("/dev/infiniband/uverbs", "/dev/hfi1", "/dev/cxi")
"""Beginnings of the device files through which a process sends without TCP."""

_TYPE_AT, _NAME_AT, _NAME_BYTES = 40, 84, 64
"""Of Open MPI's mca_base_component_t: where the name of the component's framework stands, and its own name."""

Connection = tuple[str, int, str, int]
"""Address and port here, and of the other end."""


def find_transport(comm: MPI.Comm) -> dict[str, Any] | None:
    """Find out what carries messages between ranks that follow each other. All ranks call this, between steps.

    Returns:
        On rank 0: `layer`, the part of Open MPI that sends (ob1, ucx or ofi; None: another MPI); `over`, a sorted list
        of shm, tcp, rdma and unknown; `faster`, fast network devices of nodes whose ranks nevertheless send over TCP.
        None on other ranks, and with a single rank.
    """
    if comm.size == 1:
        return None
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    apart = comm.Dup()  # a dedicated server may still receive whatever comes through `comm`
    apart.Sendrecv(bytearray(1), after, recvbuf=bytearray(1), source=before)  # connects them, if nothing has before
    apart.Free()
    everyone = comm.allgather((socket.gethostname(), list_connections()))
    (host, mine), (host_after, theirs) = everyone[comm.rank], everyone[after]
    over = tell_link(mine, theirs, is_near=host == host_after, has_rdma=_has_rdma())
    found = comm.gather((over, list_fast_devices() if over == TCP else []))
    if found is None:
        return None
    return {
        "layer": read_layer(),
        "over": sorted({over for over, _ in found}),
        "faster": sorted({device for _, devices in found for device in devices}),
    }


def tell_link(mine: Iterable[Connection], theirs: Iterable[Connection], *, is_near: bool, has_rdma: bool) -> str:
    """Tell what connects two ranks that have exchanged messages.

    Args:
        mine, theirs: the TCP connections of this rank and of the other.
        is_near: the ranks are on the same host.
        has_rdma: this rank has opened an RDMA device.
    """
    seen_from_here = {(address, port, own, number) for own, number, address, port in theirs}
    if not seen_from_here.isdisjoint(mine):
        return TCP
    if is_near:
        return SHM
    return RDMA if has_rdma else UNKNOWN


def list_connections() -> list[Connection]:
    """List the TCP connections of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile, or has no other end
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as each:
                if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
                    here, there = each.getsockname(), each.getpeername()
                    found.append((_plain(here[0]), here[1], _plain(there[0]), there[1]))
    return found


def _plain(address: str) -> str:
    """Return an address in the form that is the same at both ends: mapped IPv4 as IPv4, and without a scope."""
    return address.removeprefix("::ffff:").partition("%")[0]


def _has_rdma() -> bool:
    """Tell whether this process has opened an RDMA device."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(_RDMA):
                return True
    return False


def list_fast_devices(devices: Path = DEVICES) -> list[str]:
    """List the network devices of this node that send without TCP: those with an InfiniBand-like interface and an
    active port (mlx5_0, hfi1_0, efa_0), and those of Slingshot (cxi0)."""
    states = devices.glob("infiniband/*/ports/*/state")
    active = {state.parents[2].name for state in states if "ACTIVE" in _read(state)}
    return sorted({*active, *(device.name for device in devices.glob("cxi/*"))})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def read_layer() -> str | None:
    """Return the component of Open MPI that sends this process's messages: ob1, ucx, or ofi (Open MPI's cm with
    libfabric); None if this is another MPI, or if it cannot be found out."""
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)  # loaded already: its symbols are those of the MPI behind it, too
    try:
        component = (ctypes.c_char * (_NAME_AT + _NAME_BYTES)).in_dll(library, "mca_pml_base_selected_component").raw
    except ValueError:  # no such symbol
        return None
    if _cut(component[_TYPE_AT:_NAME_AT]) != b"pml":
        return None
    name = _cut(component[_NAME_AT:]).decode("ascii", errors="replace")
    return {"cm": "ofi"}.get(name, name)


def _cut(text: bytes) -> bytes:
    return text.partition(b"\0")[0]
