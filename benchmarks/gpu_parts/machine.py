"""The machine: GPU, versions, the speed of a copy and of a product of matrices."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
from typing import Any

import torch

from benchmarks.gpu_parts.results import Context
from benchmarks.gpu_parts.timing import time_row
from gradsweep.hardware import read_processor_name

PACKAGES = {
    "triton": "the kernels are those of torch",
    "numba": "kernels on the CPU are those of torch",
    "pytest": "no tests",
    "xdist": "tests run one after the other",
    "mpi4py": "no MPI",
    "hydra": "tests that compose configs skip",
    "matplotlib": "no picture",
    "torchvision": "ResNet-50 is ours, with a 3x3 stem on 56 x 56 pixels",
}
"""The packages that need not be there, and the line on what is left out without each."""


def run(context: Context) -> None:
    """Write what the machine is, what is missing, and how fast it copies and multiplies."""
    described = describe(context.device)
    context.write("versions", ", ".join(f"{key} {value}" for key, value in described.items()), **described)
    for package, without in PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            context.write(f"without {package}", without, missing=package)
    if shutil.which("mpirun") is None:
        context.write("without mpirun", "no ranks of MPI", missing="mpirun")
    for elements in [1 << 16] if context.dry else [25_600_000, 124_000_000]:
        source = torch.randn(elements, device=context.device)
        target = torch.empty_like(source)
        copy = functools.partial(target.copy_, source)
        seconds = min(time_row(copy, 20, context.device)[0] for _ in range(5))
        rate = 8 * elements / seconds / 1e9
        text = f"{1e6 * seconds:.1f} us, {rate:.0f} GB/s read and written"
        context.write(f"copy of {elements / 1e6:.4g} M float32", text, us=1e6 * seconds, gb_per_s=rate)
    size = 64 if context.dry else 8192
    left, right = (torch.randn(size, size, device=context.device, dtype=torch.bfloat16) for _ in range(2))
    time_row(lambda: left @ right, 3, context.device)
    seconds = min(time_row(lambda: left @ right, 20, context.device)[0] for _ in range(5))
    rate = 2 * size**3 / seconds / 1e12
    context.write(f"product of {size} x {size} bf16", f"{rate:.1f} TFLOP/s", tflops=rate)


def describe(device: str) -> dict[str, Any]:
    """Return the names and versions of everything that has an influence on the figures."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("triton", "numba"):
        if importlib.util.find_spec(package) is not None:
            found[package] = importlib.import_module(package).__version__
    found["cpu"] = f"{read_processor_name() or platform.machine()}, {os.cpu_count()} cores"
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = properties.name
        found["gpus"] = torch.cuda.device_count()
        found["memory"] = f"{properties.total_memory / 2**30:.0f} GiB"
        found["runtime"] = f"CUDA {torch.version.cuda}" if torch.version.hip is None else f"ROCm {torch.version.hip}"
        found["driver"] = read_driver()
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def read_driver() -> str:
    """Return the version of NVIDIA's driver; "unknown" where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.split("\n")[0].strip() or "unknown"
