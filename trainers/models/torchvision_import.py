"""The one place that imports torchvision.

Beside a CPU-only torch the compiled extension of torchvision's ordinary wheel cannot load; importing
torchvision then fails, because it registers fake kernels for operators that nobody declared.
Declaring their schemas first is enough for its transforms, datasets and models to work.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from types import ModuleType

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_library = None


def import_torchvision() -> ModuleType:
    """The torchvision package, with `datasets`, `models` and `transforms` imported."""
    _declare_missing()
    package = importlib.import_module("torchvision")
    for name in ("datasets", "models", "transforms"):
        importlib.import_module(f"torchvision.{name}")
    return package


def _declare_missing() -> None:
    global _library
    if _library is not None:
        return
    import torch

    _load_extension()
    missing = [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    # kept alive by the module: torch takes a library's operators back when it is collected
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        _library.define(name + _SCHEMAS[name])


def _load_extension() -> None:
    """Let the compiled extension declare the operators itself, if it fits this torch."""
    import torch

    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return
    extension = importlib.machinery.PathFinder.find_spec("_C", package.submodule_search_locations)
    if extension is not None and extension.origin is not None:
        try:
            torch.ops.load_library(extension.origin)
        except OSError:
            return  # the extension was built for another torch
