"""Memory of this process and of its machine, by the kernel's own figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch

_PRIVATE = ("Private_Dirty:", "Private_Hugetlb:")
_FORGET_PEAK = "5"  # written to /proc/self/clear_refs, it makes the present resident size the highest one
_PROCESS = Path("/proc/self")
_CGROUPS = Path("/sys/fs/cgroup")


def measure_private_bytes() -> int:
    """Return the resident memory of this process without shared pages and without unchanged pages of files.

    Libraries are pages of files; whether they are shared depends on the other processes of the machine.
    """
    lines = (_PROCESS / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PRIVATE))


def measure_free_bytes(device: torch.device) -> float:
    """Return the free memory of `device`: a GPU, or this machine within the limits of its cgroups."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return min(_read_available(), _read_cgroup_room())


def identify_gpu(device: torch.device) -> str:
    """Return an identifier of a GPU, the same in all processes of its machine; empty for the CPU."""
    if device.type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def measure_used_bytes() -> dict[str, int]:
    """Return the memory of this process by kind of device: `cpu`, and `cuda` of its current GPU."""
    has_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {"cpu": measure_private_bytes(), "cuda": torch.cuda.memory_reserved() if has_gpu else 0}


class MemoryUse(NamedTuple):
    """The memory that a process has taken since its meter started, in bytes; NaN where a figure is unknown.

    `before` is the private memory of the process at the start. The other figures do not contain it.
    """

    before: float
    peak_host: float
    end_host: float
    peak_gpu: float
    end_gpu: float


class MemoryMeter:
    """Measures how far the memory of this process grows from now on. The meter costs nothing until `measure`.

    The kernel keeps the highest resident size of the process (VmHWM). The meter resets it at the start. VmHWM contains
    shared pages, such as libraries and MPI's segments, and their number hardly changes during a run. So the highest
    private size is the private size at the end, plus the distance of VmHWM from the resident size at the end. On a
    GPU, torch's allocator counts.

    In a process that has trained other runs, the peaks and the leftovers of these runs do not count.
    """

    def __init__(self) -> None:
        self._before = _measure_private()
        self._mark = 0.0 if _forget_peak() else _read_status()["VmHWM"]
        self._gpus: list[int] = []
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            for number in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(number)
                self._gpus.append(torch.cuda.memory_allocated(number))

    def measure(self, device: torch.device) -> MemoryUse:
        """Return the memory that the process has taken so far, on the host and on `device`."""
        status, end = _read_status(), _measure_private() - self._before
        known = status["VmHWM"] > self._mark  # else the peak may be of the time before the start
        peak = end + status["VmHWM"] - status["VmRSS"] if known else math.nan
        if device.type != "cuda":
            return MemoryUse(self._before, peak, end, math.nan, math.nan)
        before = self._gpus[device.index or 0] if self._gpus else 0
        of_gpu = (torch.cuda.max_memory_allocated(device) - before, torch.cuda.memory_allocated(device) - before)
        return MemoryUse(self._before, peak, end, *map(float, of_gpu))


def _measure_private() -> float:
    """Return the private bytes of this process; NaN if the kernel does not count them."""
    try:
        return float(measure_private_bytes())
    except OSError:
        return math.nan


def _forget_peak() -> bool:
    """Make the present resident size the highest one; return whether the kernel allows it."""
    try:
        (_PROCESS / "clear_refs").write_text(_FORGET_PEAK)
    except OSError:
        return False
    return True


def _read_status() -> dict[str, float]:
    """Return the resident size of this process (VmRSS) and its highest value (VmHWM), in bytes."""
    words = map(str.split, (_PROCESS / "status").read_text().splitlines())
    found = {name: 1024.0 * float(size) for name, size, *_ in (line for line in words if line[-1:] == ["kB"])}
    return {name: found.get(f"{name}:", math.nan) for name in ("VmHWM", "VmRSS")}


def _read_available() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _read_cgroup_room() -> float:
    """Return the free memory within the limits of this process's cgroups (version 2); infinity without limits."""
    try:
        line = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return math.inf
    room = math.inf
    folder = _CGROUPS / line[3:].strip("/")
    while folder.is_relative_to(_CGROUPS):
        try:
            most = (folder / "memory.max").read_text().strip()
            if most != "max":
                room = min(room, float(most) - float((folder / "memory.current").read_text()))
        except (OSError, ValueError):
            pass
        folder = folder.parent
    return max(room, 0.0)
