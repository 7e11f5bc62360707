"""The names of torchvision's classifiers, read from its sources: importing it would take a second and load torch."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

_REGISTERED = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


@functools.cache
def list_classifiers() -> tuple[str, ...]:
    """Return the names in alphabetical order; none without torchvision or its sources."""
    spec = importlib.util.find_spec("torchvision")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        return ()
    sources = (Path(folders[0]) / "models").glob("*.py")
    try:
        return tuple(sorted({name for path in sources for name in _REGISTERED.findall(path.read_text("utf-8"))}))
    except OSError:
        return ()


if __name__ == "__main__":
    print(*list_classifiers(), sep="\n")
