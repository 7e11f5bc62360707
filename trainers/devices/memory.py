"""Memory of this process and of its machine, by the kernel's own figures."""

from __future__ import annotations

import math
from pathlib import Path

import torch

_PRIVATE = ("Private_Clean:", "Private_Dirty:", "Private_Hugetlb:")
_CGROUPS = Path("/sys/fs/cgroup")


def measure_private_bytes() -> int:
    """Return the resident memory of this process without pages shared with other processes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PRIVATE))


def measure_free_bytes(device: torch.device) -> float:
    """Return the free memory of `device`: a GPU, or this machine within the limits of its cgroups."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return min(_read_available(), _read_cgroup_room())


def measure_used_bytes() -> dict[str, int]:
    """Return the memory of this process by kind of device: `cpu`, and `cuda` of its current GPU."""
    has_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {"cpu": measure_private_bytes(), "cuda": torch.cuda.memory_reserved() if has_gpu else 0}


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
