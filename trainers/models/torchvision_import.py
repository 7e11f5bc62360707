"""The one place that imports torchvision.

Beside a CPU-only torch the compiled extension of torchvision's ordinary wheel cannot load; importing
torchvision then fails, because it registers fake kernels for operators that nobody declared.
Declaring their schemas first is enough for its transforms, datasets and models to work.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision() -> ModuleType:
    """Return the torchvision package, with `datasets`, `models` and `transforms` imported."""
    _declare_missing()
    package = importlib.import_module("torchvision")
    for name in ("datasets", "models", "transforms"):
        importlib.import_module(f"torchvision.{name}")
    return package


@functools.cache  # keeps the library: torch takes its operators back when it is collected
def _declare_missing() -> torch.library.Library:
    """Declare the operators that the compiled extension should have declared; return the library that holds them."""
    import torch

    _load_extension()
    missing = [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(name + _SCHEMAS[name])
    return library


def _load_extension() -> None:
    """Load the compiled extension, which declares the operators, if it fits this torch."""
    import torch

    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return
    extension = importlib.machinery.PathFinder.find_spec("_C", package.submodule_search_locations)
    if extension is not None and extension.origin is not None:
        with contextlib.suppress(OSError):  # the extension was built for another torch
            torch.ops.load_library(extension.origin)
