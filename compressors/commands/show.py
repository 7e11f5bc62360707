"""`show`: print the description, options, sizes and kernels of one method."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from compressors.base import Compressor, count_elements
from compressors.commands import descriptions, single_worker
from compressors.commands.method_specs import format_spec, parse
from compressors.commands.sample_tensors import gaussian
from compressors.kernels import backend
from compressors.random_key import Key
from gradsweep.cli import tables
from gradsweep.cli.tables import Column, Table
from gradsweep.plugins import find_yaml
from gradsweep.source_tree import CONF

SHAPES = ((10,), (512,), (64, 3, 3, 3), (1024, 1024), (512, 512, 3, 3), (11_200_000,))


def run(name: str) -> int:
    """Print the description, options, sizes and kernels of one method."""
    compressor = parse(name)
    also = descriptions.format_other_names(type(compressor))
    tables.print_line(f"{format_spec(compressor)}{f' (also {also})' if also else ''}", style="bold")
    tables.print_line(f"{descriptions.get_family(type(compressor))}; {compressor.paper}")
    if compressor.reported:
        tables.print_line(f"reported accuracy (without compression): {compressor.reported}")
    if traits := descriptions.format_traits(compressor):
        tables.print_line(traits)
    tables.print_line("")
    tables.print_line(inspect.cleandoc(type(compressor).__doc__ or ""))
    tables.print_line("")
    tables.print_table(build_options_table(compressor))
    tables.print_line("")
    tables.print_table(build_sizes_table(compressor))
    tables.print_line("")
    tables.print_table(build_kernels_table(compressor))
    return 0


def build_options_table(compressor: Compressor) -> Table:
    """Return a table of the hyper-parameters: value, default, range and the comment in conf/."""
    default = type(compressor)()
    yaml = find_yaml("compressor", compressor.name) or CONF / "compressor" / f"{compressor.name}.yaml"
    comments = read_remarks(yaml)
    rows = [
        [
            field.name,
            descriptions.format_value(getattr(compressor, field.name)),
            descriptions.format_value(getattr(default, field.name)),
            getattr(field.metadata.get("valid"), "words", ""),
            comments.get(field.name, ""),
        ]
        for field in dataclasses.fields(compressor)
    ]
    return Table([Column(name) for name in ("option", "value", "default", "valid", "remark")], rows)


def read_remarks(path: Path) -> dict[str, str]:
    """Return the comment of every key in a YAML file, including its further lines; empty without the file."""
    found: dict[str, str] = {}
    key = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        if match := re.match(r"(\w+):(?:\s.*?)?(?:\s#\s*(.*))?$", line):
            key = match[1]
            found[key] = match[2] or ""
        elif key and (match := re.match(r"\s+#\s*(.*)$", line)):
            found[key] = f"{found[key]} {match[1]}".strip()
    return found


def build_sizes_table(compressor: Compressor) -> Table:
    """Return a table of payload size, bits per element and law, with a row for each of some shapes."""
    columns = [Column("shape"), Column("bytes", is_number=True), Column("bits per element", is_number=True)]
    rows = [
        [
            " x ".join(map(str, shape)),
            descriptions.format_payload_size(compressor, shape),
            descriptions.format_bits(compressor, shape),
            descriptions.format_law(compressor.law(shape), compressor.lossless),
        ]
        for shape in SHAPES
        if count_elements(shape)
    ]
    return Table([*columns, Column("law")], rows)


def build_kernels_table(compressor: Compressor) -> Table:
    """Return a table of the kernel modules that encoding and decoding load, and of their implementations."""
    with backend.record_used() as used, backend.use("torch"):
        for shape in ((24, 40), (3000,)):
            single_worker.quantise(compressor, gaussian(shape), Key(0, 0, 1, 0))
    written = {
        module: [kind for kind, package in backend.PACKAGES.items() if backend.has_module(package, module)]
        for module in used
    }
    rows = [[module, ", ".join(kinds)] for module, kinds in written.items() if kinds]
    return Table([Column("kernels"), Column("written for")], rows or [["-", "torch's own operations only"]])
