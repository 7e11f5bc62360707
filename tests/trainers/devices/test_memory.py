"""The memory that a process takes: its highest, without what others share or had before."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from trainers.devices import memory

MB = 10**6
CPU = torch.device("cpu")
PROGRAM = """
import ctypes, mmap, os
import numpy as np
import torch
from trainers.devices.memory import MemoryMeter, measure_private_bytes

MB = 10**6

def take(size):
    return np.ones(size * MB, dtype=np.uint8)

shared = mmap.mmap(-1, 150 * MB)  # as MPI's segments: of two processes
(here, there), (read, write) = os.pipe(), os.pipe()
if not os.fork():
    os.read(here, 1)
    sum(shared[::4096])
    os.write(write, b".")
    os.close(there)
    os.read(here, 1)
    os._exit(0)
before = take(300)
del before
ctypes.CDLL(None).malloc_trim(0)
kept = take(50)
meter, private = MemoryMeter(), measure_private_bytes()
shared.write(b"x" * 150 * MB)
os.write(there, b".")
os.read(read, 1)
more = take(40)
highest = take(120)
del highest
print(*meter.measure(torch.device("cpu"))[:3], private)
"""


def test_peak_and_end_are_beyond_what_was_before_and_without_shared_pages() -> None:
    """160 MB at most and 40 at the end, beside 150 that a child shares, 50 from before, and 300 that were freed."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, peak, end, private = map(float, done.stdout.split())
    assert before == pytest.approx(private, abs=2 * MB) and before > 50 * MB
    assert peak == pytest.approx(160 * MB, abs=8 * MB) and end == pytest.approx(40 * MB, abs=8 * MB)


def test_a_peak_that_may_be_of_what_was_before_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the kernel does not forget a peak, and it has not been passed since; nor are private pages known."""
    monkeypatch.setattr(memory, "_PROCESS", tmp_path)
    (tmp_path / "clear_refs").mkdir()

    def say(highest: int, now: int, private: int | None) -> None:
        (tmp_path / "status").write_text(f"Name:\tpython\nVmHWM:\t{highest} kB\nVmRSS:\t{now} kB\n")
        (tmp_path / "smaps_rollup").unlink(missing_ok=True)
        if private is not None:
            (tmp_path / "smaps_rollup").write_text(f"0-f ---p 0 00:00 0 [rollup]\nPrivate_Dirty: {private} kB\n")

    say(900, 500, 100)
    meter = memory.MemoryMeter()
    say(900, 700, 250)
    use = meter.measure(CPU)
    assert math.isnan(use.peak_host) and (use.before, use.end_host) == (100 * 1024, 150 * 1024)
    say(1000, 700, 250)
    assert meter.measure(CPU).peak_host == (150 + 300) * 1024
    say(1000, 700, None)
    assert all(map(math.isnan, meter.measure(CPU)[1:]))


def test_a_gpus_peak_is_what_torch_has_allocated_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each GPU that the process knows, because which one the run gets is not known yet."""
    allocated, peaks = {0: 7, 1: 20}, {0: 90, 1: 95}

    def number_of(device: torch.device | int) -> int:
        return device if isinstance(device, int) else device.index

    for name, answer in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "reset_peak_memory_stats": lambda device: peaks.update({device: allocated[device]}),
        "memory_allocated": lambda device: allocated[number_of(device)],
        "max_memory_allocated": lambda device: peaks[number_of(device)],
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    meter = memory.MemoryMeter()
    allocated[1], peaks[1] = 50, 80
    use = meter.measure(torch.device("cuda", 1))
    assert (use.peak_gpu, use.end_gpu) == (60, 30)
    assert meter.measure(torch.device("cuda", 0)).peak_gpu == 0


@pytest.mark.gpu
def test_a_gpus_peak() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    before = torch.zeros(50 * MB, dtype=torch.uint8, device="cuda")
    meter = memory.MemoryMeter()
    kept = torch.zeros(30 * MB, dtype=torch.uint8, device="cuda")
    torch.zeros(60 * MB, dtype=torch.uint8, device="cuda")
    use = meter.measure(kept.device)
    assert use.peak_gpu == pytest.approx(90 * MB, rel=0.05) and use.end_gpu == pytest.approx(30 * MB, rel=0.05)
    assert before.numel() == 50 * MB
