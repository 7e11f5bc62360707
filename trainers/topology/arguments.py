"""Parse topologies and numbers of workers on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compressors.commands import method_specs
from gradsweep.cli.arguments import make_integer_type
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import InvalidParameter, from_mapping, show
from trainers.config.groups import GROUPS
from trainers.options.topologies import NoTopology
from trainers.topology.validity import MOST

NAMES = [name for name, cls in GROUPS["topology"].items() if cls is not NoTopology]

_TEXTS = ("file", "links")  # options whose values are texts, numbers too

parse_workers = make_integer_type(f"integer from 1 to {MOST}", 1, MOST)


def parse_topologies(words: Sequence[str]) -> list[Any]:
    """Return the topologies named by `NAME` words, each with all `topology.OPTION=VALUE` options.

    Raises:
        UsageError: a name or an option is not known, given twice or out of range.
    """
    names = [word for word in words if "=" not in word]
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            continue
        key = key.removeprefix("topology.")
        if key in values:
            raise UsageError(f"topology.{show(key)}: valid is once")
        values[key] = value if key in _TEXTS else method_specs.parse_constant(value)
    for name in names:
        if name not in NAMES:
            valid = f"one of {', '.join(NAMES)}"
            raise bad_value("topology", show(name), valid, did_you_mean(name, NAMES))
    if values and not names:
        raise UsageError(f"topology.{show(next(iter(values)))}: valid is with a topology: {', '.join(NAMES)}")
    try:
        return [from_mapping(GROUPS["topology"][name], values) for name in names]
    except InvalidParameter as error:
        raise bad_value(f"topology.{error.name}", error.value, error.valid, error.meant) from error
