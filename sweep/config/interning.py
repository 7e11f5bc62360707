"""Equal sections of many configs, kept once: ten thousand points differ in a few values each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Sections:
    """Gives back one and the same object for equal sections of that name; nobody may change what it gives."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Any] = {}

    def share(self, name: str, value: Any) -> Any:
        """`value`, or what equals it and was here before. By name, so that no config has one object in two places."""
        return self._known.setdefault((name, repr(value)), value)  # repr: 1, 1.0 and True are not the same

    def share_changed(self, config: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """A config with its sections shared; those that are still the objects of `before` are so already."""
        return {key: value if before.get(key) is value else self.share(key, value) for key, value in config.items()}
