"""Keys of a config by their paths, such as `optimizer.lr`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def look_up(config: Mapping[str, Any], path: str, missing: Any = None) -> Any:
    """Return the value at a path; `missing` if the config has no such key."""
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return missing
        value = value[key]
    return value


def paths(config: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the paths of all keys and sections, at all levels."""
    for key, value in config.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping):
            yield from paths(value, f"{above}{key}.")


def flatten(config: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Return all values by their paths; an empty mapping counts as a value."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{above}{key}"
        values |= flatten(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return values


def take_out(section: dict[str, Any], path: str) -> None:
    """Remove a key from a mapping or from the mappings in it, which are copied first."""
    key, _, rest = path.partition(".")
    if not rest:
        section.pop(key, None)
    elif isinstance(section.get(key), Mapping):
        section[key] = dict(section[key])
        take_out(section[key], rest)
