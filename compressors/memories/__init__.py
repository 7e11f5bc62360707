"""The registry of memories: build them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compressors.memories.base import Memory, NoMemory
from compressors.memories.dgc_momentum import DGC
from compressors.memories.error_feedback import EF21, Residual, ScaledResidual
from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import InvalidParameter, from_mapping

REGISTRY: Mapping[str, type[Memory]] = {cls.name: cls for cls in (DGC, EF21, NoMemory, Residual, ScaledResidual)}
"""All memories."""


def build(name: str, **values: Any) -> Memory:
    """Return the memory called `name` with the given hyper-parameters.

    Raises:
        InvalidParameter: the name or a hyper-parameter is not known, or a value is out of range.
    """
    if name not in REGISTRY:
        raise InvalidParameter("name", name, "one of " + ", ".join(REGISTRY), did_you_mean(name, REGISTRY))
    memory: Memory = from_mapping(REGISTRY[name], values)
    return memory
