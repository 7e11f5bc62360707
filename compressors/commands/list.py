"""`list`: all methods in one table."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from compressors.base import Compressor
from compressors.commands import descriptions, single_worker
from compressors.commands.method_specs import parse_all
from compressors.commands.sample_tensors import GRADIENT
from compressors.lazy import torch
from compressors.low_rank.linear_algebra.thin_products import gaussian
from compressors.random_key import Key
from gradsweep import plugins
from gradsweep.cli import markdown_sections, tables
from gradsweep.cli.tables import Column, Table

SHAPE = (1024, 1024)
STEPS = 5
PART, REPORTED = "methods", "reported"
"""The parts of a page: the table of all methods, and the accuracies that are reported for some."""
COLUMNS = (
    Column("method"),
    Column("also called"),
    Column("family"),
    Column("law"),
    Column("bits", is_number=True),
    Column("traits"),
    Column("paper"),
)
NOTE = (
    "With the default options. Constants of the laws and bits per element: a tensor of 1024 x 1024, n = 1,048,576. "
    "~: the payload's size depends on the values; the mean of 5 steps on normal noise of the standard deviation 0.001."
)


def run(names: list[str], into: Path | None) -> int:
    """Print the table of methods, or insert it into a page."""
    compressors = parse_all(names)
    for line in plugins.list_broken():
        print(f"left out: {line}", file=sys.stderr)
    if into is not None:
        for part in (PART, REPORTED):
            markdown_sections.read(into, part)  # raises an error if it is missing, before anything is measured
    table = build_table(compressors)
    if into is None:
        tables.print_table(table)
        tables.print_line(NOTE, style="dim")
    else:
        for part, shown in {PART: table, REPORTED: build_reported_table(compressors)}.items():
            quoted = Table(shown.columns, [[f"`{name}`", *rest] for name, *rest in shown.rows])
            markdown_sections.fill(into, part, tables.format_markdown(quoted))
    return 0


def build_table(compressors: list[Compressor]) -> Table:
    """Return the table of the methods, with a row for each."""
    return Table(COLUMNS, [_build_row(compressor) for compressor in compressors])


def build_reported_table(compressors: list[Compressor]) -> Table:
    """Return the table of the accuracies that others report, with a row for each method that has some."""
    columns = [Column("method"), Column("reported accuracy (without compression)")]
    return Table(columns, [[one.name, one.reported] for one in compressors if one.reported])


def _build_row(compressor: Compressor) -> list[str]:
    size = compressor.payload_size(SHAPE)
    return [
        compressor.name,
        descriptions.format_other_names(type(compressor)),
        descriptions.get_family(type(compressor)),
        descriptions.format_law(compressor.law(SHAPE), compressor.lossless),
        descriptions.format_bits(compressor, SHAPE, _measure_payload(compressor) if size is None else None),
        descriptions.format_traits(compressor),
        compressor.paper,
    ]


def _measure_payload(compressor: Compressor) -> float:
    """Return the mean number of bytes of a method's payload over a few steps."""
    one = single_worker.copy_without_state(compressor)
    sizes = [
        len(single_worker.encode(one, _draw_noise(step) * GRADIENT, Key(0, 0, step, 0))) for step in range(1, STEPS + 1)
    ]
    return sum(sizes) / STEPS


@functools.lru_cache(STEPS)
def _draw_noise(step: int) -> torch.Tensor:
    """Return standard normal numbers from our own generator, since torch's may change between versions."""
    return gaussian(Key(1, 0, step, 0).mix(), *SHAPE, torch.device("cpu"))
