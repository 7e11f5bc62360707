"""Try whether Triton works here, before a method depends on it.

Before 3.6, its divisions lose denormals. It also needs a C compiler, Python's headers and a directory to write to,
which not every machine with a GPU has.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch

_OLDEST = (3, 6)


@triton.jit
def write_one(out) -> None:
    tl.store(out, 1)


def find_fault() -> str | None:
    """Return why Triton's kernels cannot be used on this machine; None if they can."""
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < _OLDEST:
        return f"Triton {triton.__version__} is older than 3.6, and divides inexactly"
    if os.environ.get("TRITON_INTERPRET") or not torch.cuda.is_available():
        return None
    try:
        out = torch.zeros(1, dtype=torch.int32, device="cuda")
        launch(write_one, 1, out)
        return None if out.item() == 1 else "Triton starts no kernel"
    except Exception as error:  # of a compiler, a linker, a driver, a file system
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"Triton compiles no kernel here: {lines[-1]}"
