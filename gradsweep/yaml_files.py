"""Read YAML that other users may have written; aliases are refused, as Gradsweep writes none.

Ten lines of nested aliases can expand to billions of values ("billion laughs").
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import yaml

from gradsweep.disk import regular_files

Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader, in C where it was built so, which is ten times as fast."""
MOST_DEPTH = 100  # of values in values


def parse(text: str | bytes) -> Any:
    """Return the value of a YAML document without aliases.

    Raises:
        ValueError: it is not YAML, has an alias, or is nested too deeply; in one line.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        # each level of nesting needs a bracket, or a column of its line
        most_levels = text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0)
        if "&" in text or most_levels > 4 * MOST_DEPTH:  # an alias needs an anchor
            _check_events(text)
        return yaml.load(text, Loader=Loader)
    except Exception as error:  # whatever a constructor makes of a stranger's text, such as a date in month 13
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def parse_mapping(text: str | bytes) -> dict[str, Any]:
    """Return the mapping in a YAML document; its keys must be texts.

    Raises:
        ValueError: the document is no such mapping, or see `parse`.
    """
    value = parse(text)
    if not isinstance(value, dict):
        raise ValueError("not a YAML mapping")
    if not all(isinstance(key, str) for key in value):
        raise ValueError("a key that is no text")
    return value


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        OSError: the file is not there, is no regular file, or cannot be read.
        ValueError: it does not contain a valid mapping, see `parse_mapping`.
    """
    return parse_mapping(regular_files.read_bytes(path))


def read_sections(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the mapping in a YAML file; a section with the same text as in an earlier file is not parsed again.

    A section is a key without indentation, with all lines up to the next such key. Callers must not change its value,
    because it is shared.

    Raises:
        OSError, ValueError: see `read_mapping`.
    """
    text = regular_files.read_text(path)
    starts = [found.start() for found in _KEY.finditer(text)]
    if not starts or starts[0]:  # something stands before the first key
        return parse_mapping(text)
    found: dict[str, Any] = {}
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        found |= _section(text[start:end])
    return found


@functools.lru_cache(maxsize=10_000)
def _section(text: str) -> dict[str, Any]:
    return parse_mapping(text)


_KEY = re.compile(r"^[A-Za-z_]", re.MULTILINE)


def _check_events(text: str) -> None:
    """Refuse aliases, and nesting so deep that the loader in C would overrun its stack and crash."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"has an alias (*{event.anchor}), which no file of Gradsweep has")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise ValueError("nested too deeply")
