"""Make tables of the properties of topologies, and of the messages and bytes that a step sends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from compressors.commands import method_specs
from compressors.commands.descriptions import format_value
from gradsweep.cli.tables import Column, Table
from gradsweep.options.parameters import show
from gradsweep.text import plural
from trainers.config.groups import get_name
from trainers.topology.mixing import Mixing

_SHARE = 1e-3


@dataclasses.dataclass(frozen=True)
class Payload:
    """The bytes that a worker sends to a neighbour; `exact` if they do not depend on the values."""

    size: int
    exact: bool
    words: str

    def count_bytes(self, mixing: Mixing) -> int:
        """Return the mean bytes that a worker sends in a step."""
        return round(mixing.messages * self.size)


def measure_payload(parameters: int, compressor: str) -> Payload:
    """Measure the payload of a compressor (`NAME[,option=value...]`, as in `--compressor`) for one flat tensor.

    Raises:
        gradsweep.errors.UsageError: there is no such compressor.
    """
    method = method_specs.parse(compressor, "--compressor")
    size = method.payload_size((parameters,))
    words = f"{parameters} parameters, compressor={method_specs.format_spec(method)}"
    return Payload(method.payload_bound((parameters,)) if size is None else size, size is not None, words)


def list_facts(options: Any, mixing: Mixing, sent: Payload | None) -> Table:
    """Return a table of facts about one topology, one in each row."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given = [
        f"topology.{name}={show(format_value(value))}" for name, value in values.items() if value not in (None, "")
    ]
    together = f"{mixing.messages * mixing.workers:.4g} of all together"
    rows = [
        ("symmetric", "yes" if mixing.symmetric else "no"),
        ("doubly stochastic", "yes" if mixing.doubly_stochastic else "no: with algorithm=sgp only"),
        ("spectral gap", _format_gap(mixing)),
        (
            f"steps to {_SHARE:g}",
            f"{_format_steps(mixing)} (of the workers' distance from their mean, by mixing alone)",
        ),
        ("degree", f"{mixing.degree}: from so many a worker receives in a step at most"),
        ("messages", f"{mixing.messages:.4g} a worker and step, {together}"),
    ]
    if sent:
        most = "" if sent.exact else "at most "
        rows.append(
            ("bytes", f"{most}{sent.count_bytes(mixing)} a worker and step: {sent.size} a message ({sent.words})")
        )
    return Table([Column(get_name(options)), Column(f"{plural(mixing.workers, 'worker')}: {', '.join(given)}")], rows)


def build_heading(found: Sequence[tuple[Any, Mixing]], sent: Payload | None) -> str:
    """Return the line above the table that `compare` returns."""
    of = f"; bytes: {sent.words}" if sent else ""
    return f"{plural(found[0][1].workers, 'worker')}; messages and bytes are a worker's in a step{of}"


def compare(found: Sequence[tuple[Any, Mixing]], sent: Payload | None) -> Table:
    """Return a table that compares topologies, with a row for each."""
    numbers = ["degree", "spectral gap", "messages", f"steps to {_SHARE:g}", "messages until then"]
    if sent:
        numbers.append("bytes" if sent.exact else "bytes at most")
    rows = []
    for options, mixing in found:
        steps = mixing.count_steps_to(_SHARE)
        until = "-" if steps is None else f"{round(steps * mixing.messages)}"
        row = [get_name(options), options.weights, str(mixing.degree), _format_gap(mixing), f"{mixing.messages:.4g}"]
        rows.append([*row, _format_steps(mixing), until, *([str(sent.count_bytes(mixing))] if sent else [])])
    columns = [Column("topology"), Column("weights"), *(Column(name, is_number=True) for name in numbers)]
    return Table(columns, rows)


def _format_gap(mixing: Mixing) -> str:
    """Return a spectral gap as text: with four decimals as in papers, or with an exponent if it is small."""
    return f"{mixing.gap:.4f}" if mixing.gap >= 0.001 or mixing.gap == 0 else f"{mixing.gap:.1e}"


def _format_steps(mixing: Mixing) -> str:
    steps = mixing.count_steps_to(_SHARE)
    return "never" if steps is None else str(steps)
