"""Read the CPU and memory limits of this process's control groups, which a container's options set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def read_cpu_limit(root: Path = Path("/")) -> float | None:
    """Return the CPU limit of this process in cores (`docker run --cpus=2`); None without a limit.

    Args:
        root: the root of the file system with proc and sys.
    """
    return _find_least_limit("cpu", _read_cpu_time, root)


def read_memory_limit(root: Path = Path("/")) -> int | None:
    """Return the memory limit of this process in bytes (`docker run --memory=4g`); None without a limit.

    Args:
        root: the root of the file system with proc and sys.
    """
    least = _find_least_limit("memory", _read_bytes, root)
    return None if least is None else int(least)


def _find_least_limit(controller: str, read_limit: Callable[[Path], float | None], root: Path) -> float | None:
    """Return the lowest limit among this process's group and its parents; None without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if not controllers or controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / (controller if controllers else "")
            group = top / path.lstrip("/")
            # in a container the path may be the host's, of which only the top is mounted
            limits += [read_limit(part) for part in {top, group, *group.parents} if part == top or top in part.parents]
    return min((limit for limit in limits if limit is not None), default=None)


def _read_cpu_time(group: Path) -> float | None:
    """Return the CPU limit in cores from the files of a group: version 2 has one file, version 1 has two."""
    words = _read_words(group, "cpu.max") or [
        *_read_words(group, "cpu.cfs_quota_us"),
        *_read_words(group, "cpu.cfs_period_us"),
    ]
    try:
        time, period = map(float, words)
    except ValueError:  # "max" stands for no limit
        return None
    return time / period if time > 0 and period > 0 else None


def _read_bytes(group: Path) -> float | None:
    words = _read_words(group, "memory.max") or _read_words(group, "memory.limit_in_bytes")
    return float(words[0]) if words and words[0].isdecimal() else None


def _read_words(group: Path, name: str) -> list[str]:
    try:
        return (group / name).read_text(encoding="utf-8").split()
    except OSError:
        return []
