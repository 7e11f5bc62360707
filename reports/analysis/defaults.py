"""Read the defaults of options from conf/, so that captions name what differs from them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.source_tree import CONF
from reports.reading.configs import flatten_keys, load_mapping
from reports.reading.text import format_setting

_LIST, _OVERRIDE = "defaults", "override "
DECIDED_LATER = ("auto", "tuned")
"""Defaults in whose place the config of a run has what was chosen."""


def load_defaults(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the defaults of a config's keys as texts, for the groups' choices that it has, such as model=resnet18.

    A key without a known default is absent, such as one of a plug-in.
    """
    found = dict(_read_file(CONF / "config.yaml"))
    for group in [key for key in found if (CONF / key).is_dir()]:
        choice = format_setting(config.get(group, found[group]))
        options = _read_file(CONF / group / f"{choice}.yaml", f"{group}.") if choice.isidentifier() else {}
        found = {**options, **found}
    texts = {key: format_setting(value) for key, value in found.items()}
    return {key: text for key, text in texts.items() if "${" not in text}


@functools.cache
def _read_file(path: Path, prefix: str = "") -> Mapping[str, Any]:
    """Return the keys of a file of conf/ and of those that its defaults name, with the choices of its groups.

    Args:
        prefix: of the keys.
    """
    try:
        content = load_mapping(path.read_bytes())
    except (OSError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for entry in content.pop(_LIST, []):
        if isinstance(entry, Mapping):
            found |= {str(key): choice for key, choice in entry.items() if not str(key).startswith(_OVERRIDE)}
        elif str(entry).isidentifier() and entry != "_self_":
            found |= _read_file(path.with_name(f"{entry}.yaml"), prefix)
    return found | flatten_keys(content, prefix)
