"""Load torch and numpy lazily: a module that imports them from here loads each at the first use of an attribute."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _LazyModule:
    """A module that loads when its first attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:  # Python calls it for missing attributes only
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
else:
    np, npt, torch = map(_LazyModule, ("numpy", "numpy.typing", "torch"))

__all__ = ["np", "npt", "torch"]
