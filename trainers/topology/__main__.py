"""Topologies for decentralised training: what their mixing matrices promise, what a step sends, and a picture.

Of one topology its facts; of several, or without a name of all that so many workers can have, a table to choose by.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compressors.commands import parsing
from compressors.parameters import InvalidParameter, from_mapping, shown
from sweep.run import UsageError, bad_value
from trainers.options.topologies import TOPOLOGIES, Edges, NoTopology
from trainers.topology import Mixing, build, facts
from trainers.topology_rules import MOST, name_of

_SUFFIXES = (".png", ".svg", ".pdf")
_CONSTANTS = {"true": True, "false": False, "null": None}
_NAMES = [name for name, cls in TOPOLOGIES.items() if cls is not NoTopology]
_SHARE = 1e-3


@dataclasses.dataclass(frozen=True)
class Payload:
    """What a worker sends to a neighbour; `exact` where its size does not depend on the values."""

    size: int
    exact: bool
    words: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, or 2 with one line that says what is valid."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        _check_suffix(given.picture)
        payload = None
        if given.parameters is not None:
            payload = _payload(given.parameters, given.compressor or "none")
        elif given.compressor is not None:
            raise UsageError("--compressor: valid is together with --parameters, how many the model has")
        chosen = _options(given.words)
        found = _built(chosen, given.workers) if chosen else _possible(given.workers)
        for line in _facts(*found[0], payload) if len(chosen) == 1 else _table(found, payload):
            print(line)
        if not chosen:
            _explain(given.workers)
        if given.picture:
            _draw(found, given.picture)
    except (UsageError, parsing.UsageError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
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
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the graphs: .png, .svg or .pdf")
    return parser


def _options(words: Sequence[str]) -> list[Any]:
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


def _built(chosen: Sequence[Any], workers: int) -> list[tuple[Any, Mixing]]:
    return [(options, build(options, workers)) for options in chosen]


def _possible(workers: int) -> list[tuple[Any, Mixing]]:
    """All topologies that so many workers can have with their defaults."""
    found = []
    for cls in TOPOLOGIES.values():
        if cls in (NoTopology, Edges):
            continue
        try:
            found.append((cls(), build(cls(), workers)))
        except UsageError:
            continue
    return found


def _explain(workers: int) -> None:
    """What there is not for so many workers, and what there is instead."""
    for cls in TOPOLOGIES.values():
        if cls in (NoTopology, Edges):
            continue
        try:
            build(cls(), workers)
        except UsageError as error:
            print(error)


def _payload(parameters: int, compressor: str) -> Payload:
    """A message of one flat tensor."""
    method = parsing.parse(compressor)
    size = method.payload_size((parameters,))
    exact = size is not None
    words = f"{parameters} parameters, compressor={parsing.label(method)}"
    return Payload(size if size is not None else method.payload_bound((parameters,)), exact, words)


def _facts(options: Any, mixing: Mixing, payload: Payload | None) -> list[str]:
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    words = {True: "true", False: "false"}
    given = [
        f"topology.{name}={words[value] if isinstance(value, bool) else shown(value)}"
        for name, value in values.items()
        if value not in (None, "")
    ]
    found = facts(mixing)
    rows = [
        ("symmetric", "yes" if found["symmetric"] else "no"),
        ("doubly stochastic", "yes" if found["doubly_stochastic"] else "no: with algorithm=sgp only"),
        ("spectral gap", f"{mixing.gap:.4f}"),
        (f"steps to {_SHARE:g}", f"{_steps(mixing)} (of the workers' distance from their mean, by mixing alone)"),
        ("degree", f"{mixing.degree}: from so many a worker receives in a step at most"),
        (
            "messages",
            f"{mixing.messages:.4g} a worker and step, {mixing.messages * mixing.workers:.4g} of all together",
        ),
    ]
    if payload:
        most = "" if payload.exact else "at most "
        rows.append(
            ("bytes", f"{most}{_bytes(mixing, payload)} a worker and step: {payload.size} a message ({payload.words})")
        )
    width = max(len(name) for name, _ in rows)
    return [
        f"{name_of(options)} of {mixing.workers} worker{'' if mixing.workers == 1 else 's'}: {', '.join(given)}",
        *(f"  {name:{width}}  {value}" for name, value in rows),
    ]


def _table(found: Sequence[tuple[Any, Mixing]], payload: Payload | None) -> list[str]:
    heads = ["topology", "weights", "degree", "spectral gap", "messages", f"steps to {_SHARE:g}", "messages until then"]
    rows = []
    for options, mixing in found:
        steps = mixing.steps_to(_SHARE)
        until = "-" if steps is None else f"{steps * mixing.messages:.4g}"
        row = [
            name_of(options),
            options.weights,
            str(mixing.degree),
            f"{mixing.gap:.4f}",
            f"{mixing.messages:.4g}",
            _steps(mixing),
            until,
        ]
        rows.append([*row, str(_bytes(mixing, payload))] if payload else row)
    if payload:
        heads.append("bytes" if payload.exact else "bytes at most")
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    of = f"; bytes: {payload.words}" if payload else ""
    return [
        f"{found[0][1].workers} workers; messages and bytes are a worker's in a step{of}",
        *(
            "  ".join(
                cell.ljust(width) if place < 2 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [heads, *rows]
        ),
    ]


def _steps(mixing: Mixing) -> str:
    steps = mixing.steps_to(_SHARE)
    return "never" if steps is None else str(steps)


def _bytes(mixing: Mixing, payload: Payload) -> int:
    return round(mixing.messages * payload.size)


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
