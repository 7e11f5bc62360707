"""Find the kernels that a method works with, by recording those that it loads while it works."""

from __future__ import annotations

import importlib.util

from compressors.base import Compressor
from compressors.commands import single_worker
from compressors.commands.sample_tensors import gaussian
from compressors.kernels import backend
from compressors.random_key import Key

_PACKAGES = {"numba": "cpu", "triton": "cuda", "torch": "reference"}


def list_used_kernels(compressor: Compressor) -> list[str]:
    """Return the kernel modules that encoding and decoding a few tensors loads."""
    with backend.record_used() as used, backend.use("torch"):
        for shape in ((24, 40), (3000,)):
            single_worker.quantise(compressor, gaussian(shape), Key(0, 0, 1, 0))
    return [module for module in used if list_implementations(module)]


def list_implementations(module: str) -> list[str]:
    """Return those of numba, triton and torch that a kernel module exists for."""
    return [
        kind
        for kind, package in _PACKAGES.items()
        if importlib.util.find_spec(f"compressors.kernels.{package}.{module}")
    ]
