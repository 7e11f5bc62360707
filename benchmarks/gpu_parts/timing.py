"""Timing on a GPU: by events, by the host's clock, and by the profiler."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_parts.results import compute_spread

Operation = Callable[[], object]

_ROUND_S = 0.015
"""Seconds of a row of repetitions, about; a slow operation is a row of one."""
_ROUNDS = 5
_CYCLES_PER_S = 2e9
"""The approximate clock of a GPU, for the time that it is kept busy before a row."""
_MOST_LAUNCHES = 500
"""In a row; the host waits when some thousand are enqueued."""
_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "hipStreamSynchronize", "hipEventSynchronize")


class Cost(NamedTuple):
    """The time of an operation.

    Attributes:
        seconds: of one of a row of repetitions, by the device's clock; the host has enqueued the row before it begins.
        copies: the same, in copies timed in the same way in the same round.
        host_s: seconds until the host has enqueued it.
        wall_s: seconds with a wait for the device before and after.
        spread: relative distance of the quartiles of `copies`.
    """

    seconds: float
    copies: float
    host_s: float
    wall_s: float
    spread: float


class Profile(NamedTuple):
    """The launches, the waits of the host, the seconds of the device and the longest kernels of one call."""

    launches: int
    waits: int
    busy_s: float
    top: list[tuple[str, int, float]]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_once(operation: Operation, device: str) -> float:
    """Return the seconds of a call with a wait before and after."""
    wait(device)
    start = time.perf_counter()
    operation()
    wait(device)
    return time.perf_counter() - start


def time_row(operation: Operation, count: int, device: str, head_s: float = 0.0) -> tuple[float, float]:
    """Return the seconds of one of `count` calls in a row: of the device, and of the host to enqueue it.

    Args:
        head_s: seconds for which the device is kept busy first, so that it never waits for the host.
    """
    if device != "cuda":
        start = time.perf_counter()
        for _ in range(count):
            operation()
        taken = (time.perf_counter() - start) / count
        return taken, taken
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if head_s:
        torch.cuda._sleep(int(head_s * _CYCLES_PER_S))
    begin.record()
    start = time.perf_counter()
    for _ in range(count):
        operation()
    host = time.perf_counter() - start
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / count, host / count


def measure(operation: Operation, copy: Operation, device: str, rounds: int = _ROUNDS, launches: int = 1) -> Cost:
    """Time an operation, and copies between its rows, after one call that is not counted.

    Args:
        launches: of one operation, about.
    """
    operation()
    once, copied = time_once(operation, device), time_once(copy, device)
    rounds = 1 if once > 0.3 or device == "cpu" else rounds
    row_s = 0.0 if device == "cpu" else _ROUND_S  # a dry run
    count, copies = (max(1, min(50, int(row_s / max(taken, 1e-6)))) for taken in (once, copied))
    count = max(1, min(count, _MOST_LAUNCHES // max(1, launches)))
    rows: list[tuple[float, float, float, float]] = []
    for _ in range(rounds):
        base, _ = time_row(copy, copies, device, 0.001)
        seconds, host = time_row(operation, count, device, 1.2 * once * count)
        rows.append((seconds, seconds / base, host, time_once(operation, device)))
    seconds, ratio, host, waited = (statistics.median(column) for column in zip(*rows, strict=True))
    return Cost(seconds, ratio, host, waited, compute_spread(row[1] for row in rows))


def profile(operation: Operation, device: str) -> Profile | None:
    """Count what one call does, by torch.profiler; None on the CPU."""
    if device != "cuda":
        return None
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as start_profile

    torch.cuda.synchronize()
    with start_profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        operation()
    kernels: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0])
    waits = 0
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name][0] += 1
            kernels[event.name][1] += event.time_range.elapsed_us() / 1e6
        elif event.name in _WAITS:
            waits += 1
    top = sorted(kernels.items(), key=lambda item: -item[1][1])[:6]
    return Profile(
        int(sum(count for count, _ in kernels.values())),
        waits,
        sum(taken for _, taken in kernels.values()),
        [(name[:70], int(count), taken) for name, (count, taken) in top],
    )


def measure_peak(operation: Operation, device: str) -> int | None:
    """Return the bytes that a call allocates at its peak beyond what is allocated already; None on the CPU."""
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    operation()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def describe_cost(cost: Cost, profiled: Profile | None) -> dict[str, Any]:
    """Return a cost as values of a result."""
    values: dict[str, Any] = {
        "ms": 1e3 * cost.seconds,
        "copies": cost.copies,
        "host_ms": 1e3 * cost.host_s,
        "wall_ms": 1e3 * cost.wall_s,
        "spread": cost.spread,
    }
    if profiled is not None:
        base = cost.seconds / cost.copies
        values |= {"launches": profiled.launches, "waits": profiled.waits, "busy": profiled.busy_s / base}
        values["top"] = [(name, count, taken / base) for name, count, taken in profiled.top]
    return values
