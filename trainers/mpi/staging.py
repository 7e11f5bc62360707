"""Memory that MPI can read and write, for a process that computes on a GPU; on the CPU, plain memory.

Messages are in pinned main memory, to and from which compressors copy what they have encoded or shall decode. With an
MPI that is CUDA-aware, they are on the GPU themselves.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_CPU = torch.device("cpu")
_device = _CPU
_direct = False


def use(device: torch.device, *, direct: bool) -> None:
    """This process computes on `device`; `direct`: its MPI reads and writes the memory there."""
    global _device, _direct
    _device, _direct = device, direct and device.type != "cpu"


def is_direct() -> bool:
    """MPI reads and writes the device's memory."""
    return _direct


def can_read_gpus() -> bool:
    """Whether the MPI that is in use says of itself that it takes GPU memory (CUDA or ROCm).

    Open MPI and MPICH have a function for that; an MPI without one is not asked to do it.
    """
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)  # finds what is in the MPI library, too, which it needs
    name = "MPIX_Query_rocm_support" if torch.version.hip is not None else "MPIX_Query_cuda_support"
    query = getattr(library, name, None)
    return query is not None and bool(query())


def allocate_message(size: int, *, host: bool = False) -> torch.Tensor:
    """Room for `size` bytes of payloads that MPI sends or receives; `host`: in main memory in any case."""
    if _direct and not host:
        return torch.empty(size, dtype=torch.uint8, device=_device)
    return torch.empty(size, dtype=torch.uint8, pin_memory=_device.type == "cuda")


def get_mpi_buffer(tensor: torch.Tensor) -> Any:
    """`tensor` as mpi4py takes it, which knows arrays of numpy and those that say where on a GPU they are."""
    if tensor.device.type == "cpu":
        return tensor.numpy()
    torch.cuda.current_stream(tensor.device).synchronize()  # what has been written there is there
    return tensor


def move_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in main memory: itself where it is there."""
    return tensor.cpu()
