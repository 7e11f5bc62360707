"""Read the config.yaml files of very many runs, which differ in few lines.

Parsing YAML takes milliseconds a file. A config is a mapping of sections: a key at the beginning of a line, with all
lines up to the next such key. A section means the same wherever it stands, and most sections of a sweep's configs are
equal. So each distinct section is parsed once. A config with other content is parsed as a whole; the values are the
same either way.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from gradsweep import signature, yaml_files
from gradsweep.signature import canonical, signature_of_sections
from reports.reading.columns import name_config_key
from reports.reading.text import clean

_SECTION = re.compile(rb"^[A-Za-z_]\w*:(?=[ \n]).*\n(?:(?:[ ].*|- .*|-)?\n)*", re.MULTILINE)
"""A section, in which lines of a list may begin where its key does. A plain config consists of sections only."""
_NOT_PLAIN = re.compile(rb"[&\r]")  # anchors, which reach beyond their section, and other ends of lines


@dataclasses.dataclass(frozen=True)
class Config:
    """A config, or a section of one.

    Attributes:
        keys: in dotted form, as columns of `Report.runs`.
        sections: the sections by name, as `signature_of_sections` takes them.
    """

    keys: dict[str, Any]
    sections: dict[str, str]

    @classmethod
    def from_mapping(cls, value: Mapping[str, Any]) -> Config:
        """Return the keys and sections of a mapping.

        Raises:
            ValueError: it has values that no JSON has, such as a date.
        """
        try:
            return cls(flatten_keys(value), {key: canonical(section) for key, section in value.items()})
        except TypeError as error:
            raise ValueError(f"not a config: {error}") from error

    @property
    def signature(self) -> str:
        return signature_of_sections(self.sections)


class Configs:
    """Reads configs, and parses each distinct section only once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Config | None] = {}

    def read(self, data: bytes) -> Config:
        """Return the keys and sections of a config.yaml.

        Raises:
            ValueError: it is not YAML, no mapping, empty, has an alias, or values that no config has.
        """
        whole = Config({}, {})
        for section in _split_sections(data):
            if section not in self._known:
                self._known[section] = _parse_section(section)
            found = self._known[section]
            if found is None or not found.sections.keys().isdisjoint(whole.sections):
                return Config.from_mapping(load_mapping(data))
            whole.sections.update(found.sections)
            whole.keys.update(found.keys)
        return whole if whole.sections else Config.from_mapping(load_mapping(data))


def _split_sections(data: bytes) -> list[bytes]:
    """Return the sections of a config; none if it has other content."""
    if _NOT_PLAIN.search(data):
        return []
    sections = _SECTION.findall(data)
    return sections if sum(map(len, sections)) == len(data) else []


def load_mapping(data: bytes) -> dict[str, Any]:
    """Return a YAML mapping that is not empty.

    Raises:
        ValueError: it is none, has an alias, or is nested too deeply.
    """
    if not (value := yaml_files.parse_mapping(data)):
        raise ValueError("an empty YAML mapping")
    return value


def _parse_section(section: bytes) -> Config | None:
    """Return the keys of a section; None if the section cannot be parsed alone."""
    try:
        found = Config.from_mapping(load_mapping(section))
    except ValueError:
        return None
    return found if len(found.sections) == 1 else None


def flatten_keys(config: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested config to dotted keys: `{model: {name: m, depth: 3}}` becomes `{model: m, model.depth: 3}`."""
    keys: dict[str, Any] = {}
    for name, value in config.items():
        key = prefix[:-1] if prefix and name == "name" else f"{prefix}{clean(str(name))}"
        if key in signature.PLACES:
            continue
        if key in signature.NOT_IN_SIGNATURE:
            deciding = signature.DECIDING.get(key, {}) if isinstance(value, Mapping) else {}
            keys |= flatten_keys({own: value[own] for own in deciding if own in value}, f"{key}.")
            continue
        if isinstance(value, Mapping) and value:
            keys |= flatten_keys(value, f"{key}.")
        else:
            key = name_config_key(key)
            is_plain = isinstance(value, (bool, float, type(None))) or (isinstance(value, int) and abs(value) < 2**63)
            keys[key] = value if is_plain else clean(str(value))
    return keys
