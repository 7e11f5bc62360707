"""What a topology promises and sends, as lines for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from compressors.commands import parsing
from compressors.parameters import shown
from trainers.topology.mixing import Mixing
from trainers.topology_rules import name_of

_SHARE = 1e-3
_LEFT = 2  # columns of words; the others are numbers
_WORDS = {True: "true", False: "false"}


@dataclasses.dataclass(frozen=True)
class Payload:
    """What a worker sends to a neighbour; `exact` where its size, in bytes, does not depend on the values."""

    size: int
    exact: bool
    words: str

    def of(self, mixing: Mixing) -> int:
        """Bytes that a worker sends in a step, on average."""
        return round(mixing.messages * self.size)


def payload(parameters: int, compressor: str) -> Payload:
    """The message of a compressor (`NAME[,option=value...]`) for one flat tensor.

    Raises:
        compressors.commands.parsing.UsageError: there is no such compressor.
    """
    method = parsing.parse(compressor)
    size = method.payload_size((parameters,))
    words = f"{parameters} parameters, compressor={parsing.label(method)}"
    return Payload(method.payload_bound((parameters,)) if size is None else size, size is not None, words)


def facts_of(options: Any, mixing: Mixing, sent: Payload | None) -> str:
    """A line for each fact of one topology."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given = [
        f"topology.{name}={_WORDS[value] if isinstance(value, bool) else shown(value)}"
        for name, value in values.items()
        if value not in (None, "")
    ]
    rows = [
        ("symmetric", "yes" if mixing.symmetric else "no"),
        ("doubly stochastic", "yes" if mixing.doubly_stochastic else "no: with algorithm=sgp only"),
        ("spectral gap", _gap(mixing)),
        (f"steps to {_SHARE:g}", f"{_steps(mixing)} (of the workers' distance from their mean, by mixing alone)"),
        ("degree", f"{mixing.degree}: from so many a worker receives in a step at most"),
        (
            "messages",
            f"{mixing.messages:.4g} a worker and step, {mixing.messages * mixing.workers:.4g} of all together",
        ),
    ]
    if sent:
        most = "" if sent.exact else "at most "
        rows.append(("bytes", f"{most}{sent.of(mixing)} a worker and step: {sent.size} a message ({sent.words})"))
    width = max(len(name) for name, _ in rows)
    of = f"{mixing.workers} worker{'' if mixing.workers == 1 else 's'}"
    return "\n".join(
        [f"{name_of(options)} of {of}: {', '.join(given)}", *(f"  {name:{width}}  {value}" for name, value in rows)]
    )


def text(found: Sequence[tuple[Any, Mixing]], sent: Payload | None) -> str:
    """A table for a terminal: a row for each topology."""
    rows = _rows(found, sent)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [_heading(found, sent)]
    for row in rows:
        cells = [
            cell.ljust(width) if place < _LEFT else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(found: Sequence[tuple[Any, Mixing]], sent: Payload | None) -> str:
    """The same table for a page."""
    heads, *rows = _rows(found, sent)
    rule = ["---" if place < _LEFT else "---:" for place in range(len(heads))]
    return "\n".join([f"{_heading(found, sent)}:", "", *(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))])


def _heading(found: Sequence[tuple[Any, Mixing]], sent: Payload | None) -> str:
    workers = found[0][1].workers
    of = f"; bytes: {sent.words}" if sent else ""
    return f"{workers} worker{'' if workers == 1 else 's'}; messages and bytes are a worker's in a step{of}"


def _rows(found: Sequence[tuple[Any, Mixing]], sent: Payload | None) -> list[list[str]]:
    heads = ["topology", "weights", "degree", "spectral gap", "messages", f"steps to {_SHARE:g}", "messages until then"]
    if sent:
        heads.append("bytes" if sent.exact else "bytes at most")
    rows = [heads]
    for options, mixing in found:
        steps = mixing.steps_to(_SHARE)
        until = "-" if steps is None else f"{round(steps * mixing.messages)}"
        row = [name_of(options), options.weights, str(mixing.degree), _gap(mixing), f"{mixing.messages:.4g}"]
        rows.append([*row, _steps(mixing), until, *([str(sent.of(mixing))] if sent else [])])
    return rows


def _gap(mixing: Mixing) -> str:
    """Four places, as in papers, where these say enough."""
    return f"{mixing.gap:.4f}" if mixing.gap >= 0.001 or mixing.gap == 0 else f"{mixing.gap:.1e}"


def _steps(mixing: Mixing) -> str:
    steps = mixing.steps_to(_SHARE)
    return "never" if steps is None else str(steps)
