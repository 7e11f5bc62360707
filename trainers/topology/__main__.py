"""Topologies for decentralised training: what their mixing matrices promise, what a step sends, and a picture.

Of one topology its facts; of several, or without a name of all that so many workers can have, a table to choose by.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compressors.commands import pages, parsing
from compressors.parameters import InvalidParameter, from_mapping, shown
from sweep.run import UsageError, bad_value
from trainers.options.topologies import TOPOLOGIES, Edges, NoTopology
from trainers.topology import Mixing, build, check, tables
from trainers.topology_rules import MOST

PART = "topologies"
"""The part of docs/decentralised.md that the table stands in."""

_SUFFIXES = (".png", ".svg", ".pdf")
_CONSTANTS = {"true": True, "false": False, "null": None}
_NAMES = [name for name, cls in TOPOLOGIES.items() if cls is not NoTopology]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, 2 with one line that says what is valid, or 130 by Ctrl-C."""
    parser = _parser()
    given = parser.parse_intermixed_args(arguments)  # options may stand between words
    try:
        _check_suffix(given.picture)
        payload = None
        if given.parameters is not None:
            payload = tables.payload(given.parameters, given.compressor or "none")
        elif given.compressor is not None:
            raise UsageError("--compressor: valid is together with --parameters, how many the model has")
        chosen = named(given.words)
        found = [(one, build(one, given.workers)) for one in chosen] or _possible(given.workers)
        if given.into:
            pages.fill(given.into, PART, tables.markdown(found, payload))
        else:
            print(tables.facts_of(*found[0], payload) if len(chosen) == 1 else tables.text(found, payload))
            for line in [] if chosen else _refused(given.workers):
                print(line)
        if given.picture:
            _draw(found, given.picture)
        sys.stdout.flush()
    except (UsageError, parsing.UsageError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except KeyboardInterrupt:
        return 130
    return 0


def workers(text: str) -> int:
    """How many workers a run may have."""
    value = parsing.positive(text)
    if value > MOST:
        raise ValueError(text)
    return value


workers.__name__ = f"integer from 1 to {MOST}"  # how argparse calls it in "invalid ... value"


def _parser() -> argparse.ArgumentParser:
    parser = parsing.Parser(
        prog="python -m trainers.topology",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  python -m trainers.topology --workers 16\n"
        "  python -m trainers.topology ring --workers 16 --picture ring.png\n"
        "  python -m trainers.topology torus topology.rows=2 --workers 16 --parameters 11.2e6 --compressor sign_norm\n"
        "  python -m trainers.topology edges topology.file=links.txt --workers 8\n",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME | topology.OPTION=VALUE",
        help=f"{', '.join(_NAMES)}; their options as in a run (conf/topology)",
    )
    parser.add_argument("--workers", type=workers, default=16, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--parameters", type=parsing.elements, metavar="N", help="of the model: a step's bytes are counted, too"
    )
    parser.add_argument(
        "--compressor", metavar="NAME[,option=value...]", help="what these are sent with (default: none, 32 bits each)"
    )
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between the comments in this page")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the graphs: .png, .svg or .pdf")
    return parser


def named(words: Sequence[str]) -> list[Any]:
    """The topologies that are named, all with the options that are given.

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
            raise UsageError(f"topology.{shown(key)}: valid is once")
        values[key] = value if key in ("file", "links") else _value(value)
    for name in names:
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, 1)
            nearest = f"; the nearest is {near[0]}" if near else ""
            raise bad_value("topology", shown(name), f"one of {', '.join(_NAMES)}{nearest}")
    if values and not names:
        raise UsageError(f"topology.{shown(next(iter(values)))}: valid is with a topology: {', '.join(_NAMES)}")
    try:
        return [from_mapping(TOPOLOGIES[name], values) for name in names]
    except InvalidParameter as error:
        raise bad_value(f"topology.{error.name}", error.value, error.valid) from error


def _value(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    try:
        return int(text)
    except ValueError:
        return text


def _every() -> list[Any]:
    """All topologies that need no file, with their defaults."""
    return [cls() for cls in TOPOLOGIES.values() if cls not in (NoTopology, Edges)]


def _possible(workers: int) -> list[tuple[Any, Mixing]]:
    """Those of them that so many workers can have."""
    return [(options, build(options, workers)) for options in _every() if not _why_not(options, workers)]


def _refused(workers: int) -> list[str]:
    """Why they cannot have the others, and what there is instead."""
    return [why for options in _every() if (why := _why_not(options, workers))]


def _why_not(options: Any, workers: int) -> str | None:
    try:
        check(options, workers)
    except UsageError as error:
        return str(error)
    return None


def _check_suffix(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in _SUFFIXES:
        raise bad_value("--picture", path, f"a file that ends in {', '.join(_SUFFIXES)}")


def _draw(found: Sequence[tuple[Any, Mixing]], path: Path) -> None:
    from trainers.topology import picture  # loads matplotlib

    try:
        picture.draw([picture.Panel(options, mixing) for options, mixing in found], path)
    except OSError as error:
        raise bad_value("--picture", path, f"a file that can be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
