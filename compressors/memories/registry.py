"""Memories by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from compressors.memories import base, dgc_momentum, error_feedback
from compressors.memories.base import Memory
from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import InvalidParameter, from_mapping


@functools.cache
def registry() -> Mapping[str, type[Memory]]:
    """Return all memories by name, in alphabetical order."""
    members = {
        member.name: member
        for module in (base, dgc_momentum, error_feedback)
        for member in vars(module).values()
        if inspect.isclass(member) and issubclass(member, Memory) and not inspect.isabstract(member)
    }
    return dict(sorted(members.items()))


def build(name: str, **values: Any) -> Memory:
    """Return the memory called `name` with the given hyper-parameters.

    Raises:
        InvalidParameter: the name is not known, a hyper-parameter is not known or out of range.
    """
    if name not in registry():
        raise InvalidParameter("name", name, "one of " + ", ".join(registry()), did_you_mean(name, registry()))
    memory: Memory = from_mapping(registry()[name], values)
    return memory
