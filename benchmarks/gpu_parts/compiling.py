"""Compile the kernels of all methods and ResNet-9 in several processes, into caches on disk that later parts read."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch

from benchmarks.gpu_parts import bits, methods, steps
from benchmarks.gpu_parts.results import ROOT, Context, build_environment
from compressors.base import Cooperative
from compressors.commands.bench_timing import Gradients, Worker
from compressors.commands.method_specs import parse
from gradsweep.errors import get_first_line

_PROCESSES = 12
_STEPS = "--steps"
"""In place of methods: ResNet-9 by torch.compile, whose cache is on disk, too."""


def run(context: Context) -> None:
    """Let processes take a step of every method at the sizes that are measured, until the part must be done."""
    names = methods.list_methods(context)
    count = 1 if context.dry else min(_PROCESSES, len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "benchmarks.gpu_parts.compiling", context.device, str(context.seconds_left)]
    environment = build_environment()
    processes = [
        subprocess.Popen([*command, *names[place::count]], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
        for place in range(count)
    ]
    if not context.dry:
        processes.append(subprocess.Popen([*command, _STEPS], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL))
    began = time.monotonic()
    statuses = [process.wait() for process in processes]
    taken = time.monotonic() - began
    failed = sum(map(bool, statuses))
    context.write("all methods", f"{taken:.1f} s in {len(processes)} processes, {failed} failed", seconds=taken)


def compile_methods(device: str, seconds: float, names: list[str]) -> None:
    """Take a step of each method, aligned and not, as long as there is time."""
    end, size = time.monotonic() + seconds, methods.FLAT if device == "cuda" else 3_000
    rooms: dict[bool, Gradients] = {}
    x = torch.randn(size + 1, device=device)[1:]
    for name in names:
        if time.monotonic() > end:
            return
        try:
            compressor = parse(name)
            matrix = compressor.needs_matrix
            if matrix not in rooms:
                rooms[matrix] = Gradients(methods.list_resnet50(dry=device != "cuda") if matrix else [(size,)], device)
            worker = Worker(compressor, rooms[matrix])
            worker.encode()
            worker.decode_and_finish()
            if not isinstance(compressor, Cooperative):
                bits.compare(compressor, x.view(size // 50, 50) if matrix else x, reference=False)
        except Exception as error:  # of any method: the others are compiled all the same
            print(f"{name}: {type(error).__name__}: {get_first_line(error)}", flush=True)


if __name__ == "__main__":
    if sys.argv[3:] == [_STEPS]:
        steps.compile_resnet9(sys.argv[1])
    else:
        compile_methods(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
