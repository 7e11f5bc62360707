"""Tell the versions that `--version` prints."""

from __future__ import annotations

import platform
from importlib import metadata

_BESIDE = {"torch": "torch", "Hydra": "hydra-core", "mpi4py": "mpi4py"}


def version() -> str:
    """Return the line that `--version` prints: the versions of Gradsweep, Python and a few packages, without loading
    these."""
    others = [f"{name} {_find_version(package)}" for name, package in _BESIDE.items()]
    return ", ".join([f"gradsweep {_find_version('gradsweep')}", f"Python {platform.python_version()}", *others])


def _find_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is not installed"
