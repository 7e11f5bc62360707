"""The cost of a run in memory: the peak of a worker, and the bytes of its tensors by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradsweep.run_directory import MEMORY_PARTS
from trainers.algorithms.base import Algorithm
from trainers.devices.memory import MemoryMeter
from trainers.replica.replica import Replica

if TYPE_CHECKING:
    from mpi4py import MPI

_OWN = ("trainers", "compressors")
"""Packages whose objects are searched for tensors."""


class TensorSearch:
    """Counts the bytes of tensors. Each piece of memory counts once, also if several tensors or searches find it."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._storages: set[tuple[torch.device, int]] = set()

    def skip(self, holder: Any) -> None:
        """Exclude the object `holder` and its attributes from all searches."""
        self._seen.add(id(holder))

    def count_bytes(self, holders: Iterable[Any]) -> int:
        """Return the bytes of all tensors in `holders` whose memory has not been counted before.

        A holder is a tensor, a collection, or an object of our own classes, whose attributes are searched in turn.
        """
        total, waiting = 0, list(holders)
        while waiting:
            holder = waiting.pop()
            if isinstance(holder, torch.Tensor):
                storage = holder.untyped_storage()
                place = (storage.device, storage.data_ptr())
                if place not in self._storages:
                    self._storages.add(place)
                    total += storage.nbytes()
            elif id(holder) not in self._seen:
                self._seen.add(id(holder))
                waiting.extend(_list_parts(holder))
        return total


def _list_parts(holder: Any) -> Iterable[Any]:
    if isinstance(holder, Mapping):
        return holder.values()
    if isinstance(holder, (list, tuple, set)):
        return holder
    return (
        vars(holder).values() if type(holder).__module__.split(".")[0] in _OWN and hasattr(holder, "__dict__") else ()
    )


def measure_parts(replica: Replica, algorithm: Algorithm) -> dict[str, int]:
    """Return the bytes of a worker's tensors between two steps by MEMORY_PARTS, on the host and on GPUs.

    The buffer of a message counts as a whole, including the part that no payload has filled.
    """
    setup, search = algorithm.setup, TensorSearch()
    exchange = setup.exchange
    model = search.count_bytes((replica.flat.values, *replica.model.parameters(), *replica.model.buffers()))
    gradients = search.count_bytes([replica.flat.gradients])
    optimizer = search.count_bytes([setup.optimizer])
    search.skip(exchange)  # the algorithm refers to it
    compressor = search.count_bytes((*exchange.keepers, algorithm))
    messages = search.count_bytes(vars(exchange).values())
    return dict(zip(MEMORY_PARTS, (model, gradients, optimizer, compressor, messages), strict=True))


def explain_shortage(device: torch.device, parts: Mapping[str, int], rows: int, pieces: int) -> str:
    """Return what fills a GPU on which a step has found no memory, and what would fit.

    Args:
        parts: bytes of this worker's tensors, by `measure_parts`.
        rows: of the worker's batch, computed in `pieces`.
    """
    free, total = torch.cuda.mem_get_info(device)
    own = torch.cuda.memory_reserved(device)
    name = torch.cuda.get_device_name(device)
    return describe_shortage(name, total, max(0, total - free - own), parts, max(1, rows // pieces), pieces)


def describe_shortage(name: str, total: int, others: int, parts: Mapping[str, int], rows: int, pieces: int) -> str:
    """Return the line of `explain_shortage` for a GPU with `total` bytes, of which other processes have `others`."""
    kept = sum(parts.values())
    listed = ", ".join(f"{part} {_format(size)}" for part, size in parts.items() if size)
    room = total - others - kept
    line = f"{name}, {_format(total)}, is out of memory: {listed}; other processes {_format(others)}"
    if room <= total // 50:
        return f"{line}. Valid is a smaller model, fewer ranks on this GPU or another memory and compressor"
    line += f"; the other {_format(room)} are not enough for {rows} rows of a batch at once"
    return f"{line}. Valid is a smaller batch.size, or batch.accumulate={2 * pieces} for half as many rows at once"


def _format(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"


def measure_cost(meter: MemoryMeter, device: torch.device, parts: Mapping[str, int], comm: MPI.Comm) -> dict[str, Any]:
    """Return the figures of result.json about memory, in bytes; None where a figure is unknown. All workers call this.

    Each figure is the maximum over the workers; `peak_memory_mean` is the mean. `peak_memory` and `end_memory` belong
    to the device that the workers compute on. They do not contain `memory_before`, the memory of the process on the
    host before the run.

    Args:
        parts: of this worker, by `measure_parts`.
    """
    use = meter.measure(device)
    mine = np.array([*use, *parts.values()], dtype=np.float64)
    everyone = np.empty((comm.size, len(mine)))
    comm.Allgather(mine, everyone)
    largest, mean = (dict(zip((*use._fields, *parts), map(_convert, row), strict=True)) for row in _combine(everyone))
    kind = "gpu" if device.type == "cuda" else "host"
    return {
        "peak_memory": largest[f"peak_{kind}"],
        "peak_memory_mean": mean[f"peak_{kind}"],
        "end_memory": largest[f"end_{kind}"],
        "peak_host_memory": largest["peak_host"],
        "peak_gpu_memory": largest["peak_gpu"],
        "memory_before": largest["before"],
        "memory_parts": {part: largest[part] for part in parts},
    }


def _combine(everyone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return maximum and mean of each figure over the workers; NaN if it is unknown on any worker."""
    return everyone.max(axis=0), everyone.mean(axis=0)


def _convert(value: float) -> int | None:
    return None if np.isnan(value) else round(value)
