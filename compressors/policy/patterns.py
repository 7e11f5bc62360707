"""Choose compressors by name: a unit whose name matches a regular expression gets a compressor of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import compressors
from compressors.base import Compressor
from gradsweep.options.parameters import InvalidParameter

WORDS = "a list of {match: a regular expression, compressor: {name: ..., ...}}"


def is_rule(item: Any) -> bool:
    """Tell whether a value has the form of an entry in `policy.patterns`."""
    return (
        isinstance(item, Mapping)
        and set(item) == {"match", "compressor"}
        and isinstance(item["match"], str)
        and isinstance(item["compressor"], Mapping)
        and isinstance(item["compressor"].get("name"), str)
        and all(isinstance(option, str) for option in item["compressor"])
    )


def build_exceptions(rules: Sequence[Any]) -> list[tuple[str, Compressor]]:
    """Return the regular expression and the compressor of each entry.

    Raises:
        InvalidParameter: a regular expression is not valid, a compressor is not known, or one of its options is out of
            range.
    """
    found = []
    for rule in rules:
        try:
            re.compile(rule["match"])
        except re.error as error:
            raise InvalidParameter("patterns", rule["match"], f"a regular expression ({error})") from error
        try:
            found.append((rule["match"], compressors.build(**rule["compressor"])))
        except InvalidParameter as error:
            raise error.prefix("patterns.compressor") from error
    return found


def check_names(rules: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse entries that match none of the tensors with these names, or only tensors that an earlier entry matches.

    Raises:
        InvalidParameter: there is such an entry; the message names the first.
    """
    left = list(names)
    for rule in rules:
        others = [name for name in left if not re.search(rule["match"], name)]
        if len(others) == len(left):
            shown = ", ".join([*left[:4], *(["..."] if len(left) > 4 else [])]) or "none is left"
            further = "" if len(left) == len(names) else " that no pattern before it finds"
            valid = f"a regular expression found in the name of a tensor{further} ({shown})"
            raise InvalidParameter("patterns.match", rule["match"], valid)
        left = others
