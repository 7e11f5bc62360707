"""config.yaml of very many runs, which differ in few lines.

YAML takes milliseconds a file. Configs are mappings whose sections (a key at the beginning of a line, with all lines up
to the next) mean the same wherever they stand, and most of the sections of a sweep's configs are equal: each different
one is parsed once. What is not so plain is parsed as a whole, so that the values are always yaml's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from reports.columns import RUN_COLUMNS
from reports.text import clean
from sweep import run as rundir

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there

_SECTION = re.compile(rb"^[A-Za-z_]\w*:(?=[ \n]).*\n(?:(?:[ ].*|- .*|-)?\n)*", re.MULTILINE)
"""A section; lines of a list may begin where its key does. A plain config consists of nothing else."""
_NOT_PLAIN = re.compile(rb"[&\r]")  # anchors, which reach beyond their section, and other ends of lines


class Configs:
    """Reads configs, each different section of them once."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Any, dict[str, Any]] | None] = {}

    def keys(self, data: bytes) -> dict[str, Any]:
        """The keys of a config in dotted form, as columns of `Report.runs`.

        Raises:
            yaml.YAMLError, ValueError, RecursionError: it is not YAML, no mapping, empty, or contains itself.
        """
        keys: dict[str, Any] = {}
        names = set()
        for section in _sections(data):
            if section not in self._known:
                self._known[section] = _alone(section)
            found = self._known[section]
            if found is None or found[0] in names:
                return keys_of(load(data))
            names.add(found[0])
            keys |= found[1]
        return keys if names else keys_of(load(data))


def _sections(data: bytes) -> list[bytes]:
    """The sections of a config; none where it does not consist of sections."""
    if _NOT_PLAIN.search(data):
        return []
    sections = _SECTION.findall(data)
    return sections if sum(map(len, sections)) == len(data) else []


def load(data: bytes) -> dict[str, Any]:
    """A YAML mapping that is not empty.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: it is none, or nested too deeply.
    """
    value = yaml.load(data, Loader=_LOADER)
    if not isinstance(value, dict) or not value:
        raise ValueError("not a YAML mapping, or an empty one")
    return value


def _alone(section: bytes) -> tuple[Any, dict[str, Any]] | None:
    """The name of a section and its keys; None where it cannot be understood by itself."""
    try:
        value = load(section)
    except (ValueError, RecursionError, yaml.YAMLError):
        return None
    (name, *others) = value
    return None if others else (name, keys_of(value))


def keys_of(config: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as dotted keys; a group goes by its name: `{model: {name: m, depth: 3}}`: model, model.depth.

    Raises:
        RecursionError: it contains itself.
    """
    keys: dict[str, Any] = {}
    for name, value in config.items():
        key = prefix[:-1] if prefix and name == "name" else f"{prefix}{clean(str(name))}"
        if key in rundir.PLACES:
            continue
        if isinstance(value, Mapping) and value:
            keys |= keys_of(value, f"{key}.")
        else:
            key = f"config.{key}" if key in RUN_COLUMNS else key
            is_plain = isinstance(value, (bool, float, type(None))) or (isinstance(value, int) and abs(value) < 2**63)
            keys[key] = value if is_plain else clean(str(value))
    return keys
