"""`bench`: what methods cost on this machine, and the network for which they pay."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from compressors.base import Compressor
from compressors.commands import bench_timing
from compressors.commands.bench_plot import Row, draw
from compressors.commands.descriptions import format_number
from compressors.commands.method_specs import format_spec, parse_all
from compressors.kernels import backend
from gradsweep.cli import markdown_sections, spreadsheets, tables
from gradsweep.cli.tables import Column, Table
from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter

PART = "bench"


def run(
    names: list[str],
    model: str,
    elements: int,
    threads: int,
    repeats: int,
    device: str,
    kernels: str,
    output: Path | None,
    into: Path | None,
) -> int:
    """Measure the methods and print a table; write bench.csv and bench.png, or insert the table into a page."""
    compressors = parse_all(names)
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch finds no CUDA device")
    folder = output or Path("output", "bench", datetime.datetime.now().strftime("%Y-%m-%d-%H-%M-%S"))
    if into is not None:
        markdown_sections.read(into, PART)  # raises an error if the part is missing, before minutes of measuring
    else:
        _make_folder(folder)
    with _set_up(threads, kernels, elements):
        where = bench_timing.describe_machine(threads, device)
        rows = measure(compressors, model, elements, repeats, device)
    if kernels != "auto":
        where += f", kernels {kernels}"
    heading = (
        f"{where}; {repeats} interleaved repetitions, medians; normal noise of the standard deviation 0.001; "
        f"memory copy of {4 * rows[0].elements / 1e6:.0f} MB: {1e3 * rows[0].encode_s:.2f} ms"
    )
    table = build_table(rows)
    tables.print_table(table)
    tables.print_line(heading, style="dim")
    if into is not None:
        markdown_sections.fill(into, PART, f"{heading}.\n\n{tables.format_markdown(table)}")
        return 0
    _write(folder, rows, where, heading)
    return 0


@contextlib.contextmanager
def _set_up(threads: int, kernels: str, elements: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with backend.use(kernels):
            yield
    except InvalidParameter as error:
        raise UsageError(str(error)) from error
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):  # torch has no class of its own for the CPU
            raise
        raise UsageError(f"--elements {elements}: more than the memory holds") from error
    finally:
        torch.set_num_threads(before)


def measure(compressors: Sequence[Compressor], model: str, elements: int, repeats: int, device: str) -> list[Row]:
    """Measure a memory copy and then each method; return a row for each."""
    shapes: dict[str, list[tuple[int, ...]]] = {"layers": bench_timing.resnet18_shapes(), "flat": [(elements,)]}
    wanted = ["layers" if model == "resnet18" or one.needs_matrix else "flat" for one in compressors]
    rooms = {kind: bench_timing.Gradients(units, device) for kind, units in shapes.items() if kind in wanted}
    workers = [bench_timing.Worker(one, rooms[kind]) for one, kind in zip(compressors, wanted, strict=True)]
    times: dict[str, bench_timing.Times] = {}
    for kind, room in rooms.items():  # each kind of units beside a copy of its own size
        operations: dict[str, bench_timing.Operation] = {}
        for number_, worker in enumerate(workers):
            if worker.gradients is room:
                operations |= {f"{number_}/encode": worker.encode, f"{number_}/decode": worker.decode_and_finish}
        taken = bench_timing.time_interleaved(operations, room.copy, repeats, device)
        times |= {name if name != "copy" else f"{kind}/copy": one for name, one in taken.items()}
    main = "flat" if "flat" in rooms else "layers"
    rows = [_build_copy_row(times[f"{main}/copy"], main, rooms[main])]
    for number_, (worker, kind) in enumerate(zip(workers, wanted, strict=True)):
        rows.append(_build_row(worker, kind, times[f"{number_}/encode"], times[f"{number_}/decode"]))
    return rows


def _build_copy_row(times: bench_timing.Times, kind: str, room: bench_timing.Gradients) -> Row:
    seconds = times.median
    rate = room.bytes / seconds / 1e9
    return Row(
        "memory copy", kind, room.elements, room.bytes, 32.0, 0.0, seconds, 0.0, 1.0, 0.0, 1.0, rate, None, "torch"
    )


def _build_row(worker: bench_timing.Worker, kind: str, encode: bench_timing.Times, decode: bench_timing.Times) -> Row:
    room, size, both = worker.gradients, worker.payload_bytes, encode + decode
    return Row(
        method=format_spec(worker.compressor),
        units=kind,
        elements=room.elements,
        payload_bytes=size,
        bits_per_element=8 * size / room.elements,
        error=None if worker.compressor.scale_free else worker.error,
        encode_s=encode.median,
        decode_s=decode.median,
        encode_per_copy=encode.ratio,
        decode_per_copy=decode.ratio,
        per_copy=both.ratio,
        gigabytes_per_s=room.bytes / both.median / 1e9,
        pays_below_bit_per_s=find_break_even(room.bytes, size, both.median),
        kernels="+".join(worker.kernels),
    )


def find_break_even(dense: int, payload: int, seconds: float) -> float | None:
    """Return the bandwidth in bit/s below which compression pays for one message: seconds + 8 payload / B = 8 dense /
    B.

    `dense` and `payload` are the bytes of the message without and with compression; encoding and decoding take
    `seconds`.
    """
    return 8 * (dense - payload) / seconds if payload < dense else None


def build_table(rows: Sequence[Row]) -> Table:
    """Return the table that `bench` prints."""
    headings = (
        *("bits per element", "error", "encode, ms", "x copy", "decode, ms", "x copy", "both, x copy", "GB/s"),
        "pays below, Gbit/s",
    )
    columns = [Column(name, is_number=True) for name in headings]
    return Table([Column("method"), Column("units"), *columns, Column("kernels")], [_format_cells(row) for row in rows])


def _format_cells(row: Row) -> list[str]:
    return [
        row.method,
        row.units,
        format_number(row.bits_per_element),
        "-" if row.error is None else format_number(row.error),
        f"{1e3 * row.encode_s:.2f}",
        f"{row.encode_per_copy:.2f}",
        f"{1e3 * row.decode_s:.2f}",
        f"{row.decode_per_copy:.2f}",
        f"{row.per_copy:.2f}",
        f"{row.gigabytes_per_s:.2f}",
        "-" if row.pays_below_bit_per_s is None else format_number(row.pays_below_bit_per_s / 1e9),
        row.kernels,
    ]


def _make_folder(folder: Path) -> None:
    """Make the folder; raise UsageError if no files can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error


def _write(folder: Path, rows: Sequence[Row], where: str, heading: str) -> None:
    try:
        names = [field.name for field in dataclasses.fields(Row)]
        lines = ([*(getattr(row, name) for name in names), where] for row in rows)
        Path(folder, "bench.csv").write_text(spreadsheets.to_csv([*names, "machine"], lines), encoding="utf-8")
        draw(rows, heading, Path(folder, "bench.png"))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    tables.print_line(str(folder / "bench.csv"))
    tables.print_line(str(folder / "bench.png"))
