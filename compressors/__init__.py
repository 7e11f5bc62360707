"""The registry of compressors: build them by name.

    compressor = compressors.build("qsgd", levels=7)
    key = compressors.Key(seed=0, worker=0, step=1, unit=0)
    payload = compressor.compress(gradient, key)               # 1-D uint8: what travels
    compressor.decompress_add(payload, mean, key, weight=0.5)  # mean += Q(gradient) / 2

Every module of the folders in FAMILIES is searched for subclasses of `Compressor`, so a new method is one new file in
one of them. Methods of other distributions and of the user's files join them (gradsweep/plugins.py). Importing the
package loads neither torch nor numba.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

from compressors.base import Compressor, CorruptPayload, Law
from compressors.random_key import Key
from gradsweep.options.hints import did_you_mean, one_of
from gradsweep.options.parameters import InvalidParameter, from_mapping
from gradsweep.plugins import Members

__all__ = [
    "Compressor",
    "CorruptPayload",
    "InvalidParameter",
    "Key",
    "Law",
    "aliases",
    "build",
    "presets",
    "registry",
]


FAMILIES = ("quantisation", "sparsification", "low_rank")
"""The folders with methods."""

LISTED_BY = "python -m compressors list"


@functools.cache
def registry() -> Members[Compressor]:
    """Return all methods by name: ours in alphabetical order, then those of plug-ins."""
    found: dict[str, type[Compressor]] = {}
    names = [
        f"{family}.{info.name}" for family in FAMILIES for info in pkgutil.iter_modules([f"{__path__[0]}/{family}"])
    ]
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        for member in vars(module).values():
            if inspect.isclass(member) and issubclass(member, Compressor) and not inspect.isabstract(member):
                other = found.setdefault(member.name, member)
                if other is not member:
                    raise TypeError(f"{other.__qualname__} and {member.__qualname__} are both named {member.name}")
    return Members("compressor", dict(sorted(found.items())), Compressor)  # type: ignore[type-abstract]


def aliases() -> Mapping[str, str]:
    """Return the aliases of methods, each with the name of its method."""
    return _find_aliases(len(registry()))


@functools.cache
def _find_aliases(methods: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, member in registry().items():
        for alias in member.aliases:
            if alias in registry() or found.setdefault(alias, name) != name:
                raise TypeError(f"{alias}, an alias of {name}, names another method already")
    return dict(sorted(found.items()))


def presets() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return the names of presets, each with the name of its method and the options that it sets."""
    return _find_presets(len(registry()))


@functools.cache
def _find_presets(methods: int) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, member in registry().items():
        for preset, options in member.presets.items():
            if preset in registry() or preset in aliases() or found.setdefault(preset, (name, options))[0] != name:
                raise TypeError(f"{preset}, a preset of {name}, names another method already")
    return dict(sorted(found.items()))


def build(name: str, **values: Any) -> Compressor:
    """Return the compressor with this name, alias or preset, and with the given hyper-parameters.

    Raises:
        InvalidParameter: the name or a hyper-parameter is not known, or a value is out of range.
    """
    if name not in registry().ours:
        if name in presets():
            name, options = presets()[name]
            values = {**options, **values}
        name = aliases().get(name, name)
    if name not in registry():
        known = [*registry(), *aliases(), *presets()]
        raise InvalidParameter("name", name, one_of(known, LISTED_BY), did_you_mean(name, known))
    compressor: Compressor = from_mapping(registry()[name], values)
    return compressor
