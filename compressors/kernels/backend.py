"""Choose the implementation of a kernel by the device of a tensor: numba on the CPU, Triton on CUDA, else torch.

All of them give the same bits; `use` is for comparing them, and for a machine where one does not work.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from compressors.lazy import torch
from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import InvalidParameter

CHOICES = ("auto", "numba", "triton", "torch")
PACKAGES = {"numba": "cpu", "triton": "cuda", "torch": "reference"}
"""The folder of kernels that are written for each."""
_DEVICES = {"numba": "cpu", "triton": "cuda"}

used: dict[str, str] = {}
"""The kernels that this process has loaded last for each method; result.json and `bench` report them."""

_chosen = "auto"


def choose(kernels: str) -> None:
    """Use these kernels in the whole process from now on.

    Raises:
        InvalidParameter: not one of CHOICES, or the package that they need is not installed.
    """
    global _chosen
    if kernels not in CHOICES:
        raise InvalidParameter("kernels", kernels, "one of " + ", ".join(CHOICES), did_you_mean(kernels, CHOICES))
    if kernels in _DEVICES and (fault := _find_fault(kernels)):
        raise InvalidParameter("kernels", kernels, f"another one where {fault}")
    _chosen = kernels


@contextlib.contextmanager
def use(kernels: str) -> Iterator[None]:
    """Use these kernels within the block, as `choose` does."""
    before = _chosen
    choose(kernels)
    try:
        yield
    finally:
        choose(before)


def select(method: str, device: torch.device | str) -> str:
    """Return the implementation that `load` chooses: "numba", "triton" or "torch".

    Raises:
        InvalidParameter: the chosen kernels cannot work on that device.
    """
    kind = device.partition(":")[0] if isinstance(device, str) else device.type
    if _chosen == "torch":
        return "torch"
    if _chosen != "auto" and _DEVICES[_chosen] != kind:
        raise InvalidParameter("kernels", _chosen, f"auto or torch for tensors on {kind}")
    for kernels, works_on in _DEVICES.items():
        if works_on == kind and has_module(PACKAGES[kernels], method):
            if (fault := _find_fault(kernels)) is None:
                return kernels
            if kernels == "triton":
                _warn(f"kernels=auto: torch's on {kind}, many times slower than Triton's would be: {fault}")
    return "torch"


def explain_lacking(methods: Iterable[str], device: torch.device | str) -> str | None:
    """Return a line about the modules that have no kernels in Triton, with a GPU as `device`; None without any."""
    lacking = sorted({method for method in methods if not has_module(PACKAGES["triton"], method)})
    if _chosen == "torch" or not str(device).startswith("cuda") or not lacking:
        return None
    return f"kernels={_chosen}: torch's on cuda for {', '.join(lacking)}, which have none in Triton"


def select_on_host() -> str:
    """Return the implementation for matrices that were copied to the CPU from any device: "numba" or "torch"."""
    return "numba" if _chosen != "torch" and _find_fault("numba") is None else "torch"


@contextlib.contextmanager
def record_used() -> Iterator[dict[str, str]]:
    """Yield a mapping that, at the end of the block, has all kernel modules that were used in it."""
    before, found = dict(used), dict[str, str]()
    used.clear()
    try:
        yield found
    finally:
        found.update(used)
        used.clear()
        used.update(before | found)


def load(method: str, device: torch.device | str) -> ModuleType:
    """Import and return the module `method` of the kernels for tensors on `device`; the import compiles its kernels."""
    kernels = select(method, device)
    used[method] = kernels
    return importlib.import_module(f"compressors.kernels.{PACKAGES[kernels]}.{method}")


@functools.cache
def _find_fault(kernels: str) -> str | None:
    """Return why these kernels cannot be used in this process; None if they can."""
    if importlib.util.find_spec(kernels) is None:
        return f"{kernels} is not installed"
    if kernels == "triton":
        return importlib.import_module("compressors.kernels.cuda.primitives.trial").find_fault()
    return None


@functools.cache
def _warn(text: str) -> None:
    """Print a line to stderr, once in a process."""
    print(text, file=sys.stderr, flush=True)


@functools.cache
def has_module(package: str, method: str) -> bool:
    """Tell whether a folder of kernels has a module of this name."""
    return importlib.util.find_spec(f"compressors.kernels.{package}.{method}") is not None
