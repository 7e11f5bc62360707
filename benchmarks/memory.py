"""Bytes that the steps of a method add to the peak of a process, beyond their payload.

    python benchmarks/memory.py NAME[,option=value...] ELEMENTS|resnet18

What importing and compiling take is not counted: a small gradient goes through a compressor of its own first; nor is
the room that the linear algebra library takes once for products of layers, as training does without a compressor, nor
are the pages of a library's code that a step is the first to use: they are the file's, one copy for all processes.
From there on everything counts over two steps: what a step needs and lets go of, and what stays behind, whether the
method or a kernel remembers it. Prints "unknown" where the system cannot say what the peak was (it is asked
through /proc).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

# Memory that is let go of returns to the system at once. What malloc keeps of it would be in the figure before the
# steps, and what the steps then take from that would not show.
_MALLOPT = {-1: 65536, -3: 65536, -8: 1}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
    for option, value in _MALLOPT.items():
        ctypes.CDLL(None).mallopt(option, value)

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from benchmarks.measuring import read_memory  # noqa: E402
from compressors import Key  # noqa: E402
from compressors.base import Compressor, Cooperative  # noqa: E402
from compressors.commands import bench_timing, single_worker  # noqa: E402
from compressors.commands.method_specs import parse  # noqa: E402

SMALL = {True: [(64, 3, 3, 3), (128, 64, 3, 3)], False: [(1 << 16,)]}
"""Shapes that load all that layers, and a flat gradient, need."""
STEPS = 2


def step(compressor: Compressor, gradients: bench_timing.Gradients, number: int) -> int:
    """Encode all units, then decode them; return the bytes of the payloads."""
    batch = [(x, Key(0, 0, number, unit)) for unit, x in enumerate(gradients.steps[number % 2])]
    if isinstance(compressor, Cooperative):
        payloads = [one.mean for one in compressor.reduce_alone(batch)]
    else:
        payloads = [single_worker.encode(compressor, x, key) for x, key in batch]
    for payload, mean, (_, key) in zip(payloads, gradients.means, batch, strict=True):
        compressor.decompress_add(payload, mean, key)
        compressor.finish(mean, key, 1)
    return sum(len(payload) for payload in payloads)


def run(compressor: Compressor, gradients: bench_timing.Gradients) -> int:
    """Run some steps with a compressor without state; return the bytes of the last step's payloads."""
    compressor = single_worker.copy_without_state(compressor)
    return [step(compressor, gradients, number) for number in range(1, STEPS + 1)][-1]


def _shapes(size: str) -> list[tuple[int, ...]]:
    return bench_timing.resnet18_shapes() if size == "resnet18" else [(int(size),)]


def settle() -> None:
    """Prepare this process so that from now on only its own allocations change its memory figures in /proc."""
    # Linux counts pages on each core and adds up later: some dozens of each core on which this runs may be missing.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *path = line.split(maxsplit=5)
        if rights.startswith("r-") and path and ".so" in path[0]:  # a page comes to count when it is first looked at
            first, last = (int(end, 16) for end in place.split("-"))
            (ctypes.c_char * (last - first)).from_address(first)[:: mmap.PAGESIZE]


def main() -> None:
    method, size = sys.argv[1:]
    torch.set_num_threads(1)
    layers = size == "resnet18"
    small, gradients = (bench_timing.Gradients(shapes) for shapes in (SMALL[layers], _shapes(size)))
    run(parse(method), small)
    for x in gradients.means if layers else ():
        torch.mm(x.flatten(1).T @ x.flatten(1), x.flatten(1).T)
    gradients.copy()  # zeros that nobody has written to are not in memory yet
    try:
        settle()
        before = read_memory()["VmRSS"]
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        payload = run(parse(method), gradients)
        print(max(0, read_memory()["VmHWM"] - before - payload))
    except (OSError, KeyError, AttributeError):
        print("unknown")


if __name__ == "__main__":
    main()
