"""Measure the CPU time that this process has used, and that all processes have used of given cores.

Linux counts the time of cores since boot. If /proc/stat cannot be read (in some containers), it is unknown: NaN.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import time
from collections.abc import Collection
from pathlib import Path

from gradsweep.run_directory import SWITCH_VARIABLE

_STAT = Path("/proc/stat")
_TASKS = Path("/proc/self/task")
_KERNEL = Path("/proc/sys/kernel/random/boot_id")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 7)
"""Columns of a core in /proc/stat after its name: user, nice, system, steal. Interrupts are no process, and most of
them serve messages of the run itself. Time that is not idle would contain them: on an emulated network, interrupts of
idle cores took 16 % of two cores, and the kernel counted few of them as such."""
_PROCESS_TIMES = slice(11, 15)
"""Fields of /proc/PID/stat after the name: utime, stime, and those of ended children."""


def read_kernel_id() -> str:
    """Return an identifier of the running kernel, the same under different host names; empty if unknown."""
    try:
        return _KERNEL.read_text().strip()
    except OSError:
        return ""


def measure_process_s() -> float:
    """Return the CPU time of this process so far, in seconds, with its threads and children (data loaders)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_measure_process_s, _find_children()))


def measure_busy_s(cores: Collection[int]) -> float:
    """Return the seconds since boot in which any process used `cores`, summed over them; NaN if unknown.

    Time that the hypervisor took from this machine (steal) counts, too.
    """
    try:
        lines = [line.split() for line in _STAT.read_text().splitlines() if line.startswith("cpu")]
    except OSError:
        return math.nan
    columns = {words[0]: words[1:] for words in lines}
    try:
        return _TICK_S * sum(int(columns[f"cpu{core}"][column]) for core in cores for column in _BUSY)
    except (KeyError, IndexError, ValueError):
        return math.nan


def measure_switch_s() -> float:
    """Return the CPU time of the switch of this run's emulated network, in seconds; 0 without such a process."""
    switch = os.environ.get(SWITCH_VARIABLE, "")
    return _measure_process_s(int(switch)) if switch else 0.0


def _find_children() -> list[int]:
    found: list[int] = []
    for task in os.listdir(_TASKS):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile, or the kernel does not tell
            found += map(int, (_TASKS / task / "children").read_text().split())
    return found


def _measure_process_s(process: int) -> float:
    """Return the CPU time of a process and of its ended children, in seconds; 0 if it does not exist."""
    try:
        _, _, fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")
    except OSError:
        return 0.0
    return _TICK_S * sum(map(int, fields.split()[_PROCESS_TIMES]))
