"""Find out about this machine's processor, GPUs and compilers without loading torch."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
from pathlib import Path

_MODEL = re.compile(r"^model name\s*:\s*(.*\S)", re.MULTILINE)
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows Subsystem for Linux


def has_gpu_driver() -> bool:
    """Tell whether this machine may have a GPU: without the driver's device file it certainly has none."""
    return any(Path(device).exists() for device in _DRIVERS)


def read_processor_name() -> str:
    """Return the model of this machine's processor; empty if the system does not give it."""
    try:
        match = _MODEL.search(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def has_compiler() -> bool:
    """Tell whether torch.compile finds a C++ compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++") if name)


@functools.cache
def torch_has_gpus() -> bool:
    """Tell whether the installed torch was built for GPUs; True if its files do not show it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return True
    libraries = Path(found.origin).parent / "lib"
    for_gpus = any((libraries / f"libtorch_{kind}.so").exists() for kind in ("cuda", "hip"))
    return for_gpus or not (libraries / "libtorch_cpu.so").exists()
