"""Which kernels a method works with, found by watching it work."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from unittest import mock

import torch

from compressors.base import Compressor, Key
from compressors.commands import single_worker
from compressors.commands.sample_tensors import gaussian
from compressors.kernels import backend

_PACKAGES = {"numba": "cpu", "triton": "cuda", "torch": "reference"}


def used_by(compressor: Compressor) -> list[str]:
    """The kernel modules that encoding and decoding a few tensors loads."""
    found: dict[str, None] = {}
    load = backend.load

    def watched(method: str, device: torch.device | str) -> ModuleType:
        found[method] = None
        return load(method, device)

    with mock.patch.object(backend, "load", watched), backend.use("torch"):
        for shape in ((24, 40), (3000,)):
            single_worker.quantised(compressor, gaussian(shape), Key(0, 0, 1, 0))
    return list(found)


def written_for(module: str) -> list[str]:
    """Those of numba, triton and torch that a kernel module exists for."""
    return [
        kind
        for kind, package in _PACKAGES.items()
        if importlib.util.find_spec(f"compressors.kernels.{package}.{module}")
    ]
