"""The registry of memories: build them by name."""

from __future__ import annotations

from typing import Any

from compressors.memories.base import Memory, NoMemory
from compressors.memories.dgc_momentum import DGC
from compressors.memories.error_feedback import LoCo, Residual, ScaledResidual
from compressors.memories.estimates import EF21, EControl
from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import InvalidParameter, from_mapping
from gradsweep.plugins import Members

_OURS: tuple[type[Memory], ...] = (DGC, EControl, EF21, LoCo, NoMemory, Residual, ScaledResidual)
REGISTRY: Members[Memory] = Members("memory", {cls.name: cls for cls in _OURS}, Memory)  # type: ignore[type-abstract]
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
