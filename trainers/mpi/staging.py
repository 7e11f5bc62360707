"""Memory for messages of MPI, for a process that computes on a GPU; on the CPU, plain memory.

Messages lie in pinned main memory, and compressors copy payloads to and from it. With a CUDA-aware MPI they lie on the
GPU.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from trainers.mpi.message_sizes import count_words

_CPU = torch.device("cpu")
_device = _CPU
_direct = False


def use(device: torch.device, *, direct: bool) -> None:
    """Set the device of this process, and whether its MPI accesses the device's memory directly."""
    global _device, _direct
    _device, _direct = device, direct and device.type != "cpu"


def is_direct() -> bool:
    """Tell whether MPI accesses the device's memory directly."""
    return _direct


def can_read_gpus() -> bool:
    """Tell whether the MPI in use accepts GPU memory (CUDA or ROCm).

    Open MPI and MPICH have a function for that; an MPI without one counts as unable.
    """
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)  # also finds symbols of the MPI library that it needs
    name = "MPIX_Query_rocm_support" if torch.version.hip is not None else "MPIX_Query_cuda_support"
    query = getattr(library, name, None)
    return query is not None and bool(query())


def allocate_message(size: int, *, host: bool = False) -> torch.Tensor:
    """Allocate `size` bytes for payloads that MPI sends or receives; with `host`, in main memory in any case."""
    if _direct and not host:
        return torch.empty(size, dtype=torch.uint8, device=_device)
    return torch.empty(size, dtype=torch.uint8, pin_memory=_device.type == "cuda")


def get_mpi_buffer(tensor: torch.Tensor) -> Any:
    """Return `tensor` as a buffer for mpi4py: a numpy array, or the tensor itself if it is on a GPU."""
    if tensor.device.type == "cpu":
        return tensor.numpy()
    torch.cuda.current_stream(tensor.device).synchronize()  # its pending writes are complete
    return tensor


def get_words(tensor: torch.Tensor) -> Any:
    """Return `tensor` as a message for mpi4py: its buffer, counted in words of ALIGNMENT bytes.

    Raises:
        MessageTooLarge: there are more than MPI can count.
    """
    from mpi4py import MPI

    return [get_mpi_buffer(tensor), count_words(tensor.numel()), MPI.INT32_T]


def move_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of `tensor` in main memory, or `tensor` itself if it is there."""
    return tensor.cpu()
