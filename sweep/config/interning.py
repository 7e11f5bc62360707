"""Store equal sections of many configs once: ten thousand points of a grid differ in few values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Sections:
    """A store that returns one object for all equal sections with the same name; the objects must not be changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Any] = {}

    def share(self, name: str, value: Any) -> Any:
        """Return the stored object of this name that equals `value`; objects of different names are never shared."""
        return self._known.setdefault((name, repr(value)), value)  # repr: 1, 1.0 and True are not the same

    def share_changed(self, config: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config with its sections shared; those that are the same objects in `before` are shared already."""
        return {key: value if before.get(key) is value else self.share(key, value) for key, value in config.items()}
