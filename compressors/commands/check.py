"""`check`: test whether methods keep their promises on this machine."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import torch

from compressors.base import Compressor
from compressors.commands import measured_laws, single_worker
from compressors.commands.descriptions import format_number
from compressors.commands.measured_laws import Draws, Level
from compressors.commands.method_specs import format_spec, parse_all
from compressors.commands.sample_tensors import SAMPLES, gaussian
from compressors.kernels import backend
from compressors.random_key import Key
from gradsweep.cli import tables
from gradsweep.cli.tables import Column, Table

KEY = Key(0, 0, 1, 0)
SHAPES = ((), (0,), (1,), (7,), (600,), (3001,), (1, 9), (33, 47), (16, 5, 3, 3))
_HELD = 1 + 1e-5  # float32 rounding of an absolute error


@dataclasses.dataclass
class Findings:
    """The results of the checks of one method: a table cell for each check, and the problems."""

    method: str
    cells: dict[str, str] = dataclasses.field(default_factory=dict)
    wrong: list[str] = dataclasses.field(default_factory=list)


def run(names: list[str], draws: int, error_level: float) -> int:
    """Check the methods against their laws (error bounds) and print a table; return 1 if one does not hold, else 0."""
    compressors = parse_all(names)
    level = Level(error_level, measured_laws.count_comparisons(len(compressors)))
    found = [check(compressor, draws, level) for compressor in compressors]
    columns = [Column("method"), *(Column(name) for name in CHECKS), Column("verdict")]
    rows = [[one.method, *(one.cells[name] for name in CHECKS), "WRONG" if one.wrong else "ok"] for one in found]
    tables.print_table(Table(columns, rows))
    for one in found:
        for wrong in one.wrong:
            tables.print_line(f"{one.method}: {wrong}", style="bold")
    tables.print_line(
        f"{draws} draws of {len(SAMPLES)} inputs in {len(measured_laws.SHAPES)} shapes. bias: the largest |z|, at most "
        f"{level.z:.2f}. omega, delta, kappa: measured / promised, where they are closest. If all promises are "
        f"kept, chance alone shows a violation once in {1 / error_level:.0f} calls.",
        style="dim",
    )
    return int(any(one.wrong for one in found))


def check(compressor: Compressor, draws: int, level: Level) -> Findings:
    """Return all checks of one method."""
    found = Findings(format_spec(compressor))
    try:
        drawn = [
            measured_laws.draw(compressor, shape, values, draws) for shape in measured_laws.SHAPES for values in SAMPLES
        ]
    except Exception as error:
        found.wrong.append(f"{type(error).__name__} while drawing: {error}")
        drawn = []
    for name, examine in CHECKS.items():
        try:
            found.cells[name], wrong = examine(compressor, drawn, level)
        except Exception as error:
            found.cells[name], wrong = "fails", f"{name}: {type(error).__name__}: {error}"
        if wrong:
            found.wrong.append(wrong)
    return found


Check = Callable[[Compressor, list[Draws], Level], tuple[str, str]]
"""Gives the cell of the table, and what is wrong or ""."""


def check_payload(compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check that payloads have the declared length."""
    for shape in SHAPES:
        size = len(single_worker.encode(single_worker.copy_without_state(compressor), gaussian(shape), KEY))
        declared, bound = compressor.payload_size(shape), compressor.payload_bound(shape)
        if size > bound or (declared is not None and size != declared):
            return "no", f"payload of {shape}: {size} bytes, declared {declared}, at most {bound}"
    return "ok", ""


def check_repeatable(compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check that the same key gives the same bytes, with any number of threads."""
    before = torch.get_num_threads()
    try:
        for shape in (*SHAPES, (200, 700)):
            payloads = []
            for threads in (1, 1, 3):
                torch.set_num_threads(threads)
                payloads.append(
                    single_worker.encode(single_worker.copy_without_state(compressor), gaussian(shape), KEY)
                )
            if not all(torch.equal(one, payloads[0]) for one in payloads):
                return "no", f"payload of {shape}: the same key does not give the same bytes"
    finally:
        torch.set_num_threads(before)
    return "ok", ""


def check_kernels(compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check that the machine's kernels and plain torch give the same bits, two steps in a row."""
    for shape in SHAPES:
        for values, sample in SAMPLES.items():
            if not math.prod(shape):
                continue
            one, other = (_run_two_steps(compressor, sample(shape), kind) for kind in ("auto", "torch"))
            if not all(torch.equal(a, b) for a, b in zip(one, other, strict=True)):
                return "differ", f"kernels: {values} of {shape} gives other bits than plain torch"
    return "same", ""


def _run_two_steps(compressor: Compressor, x: torch.Tensor, kind: str) -> list[torch.Tensor]:
    found = []
    with backend.use(kind):
        one = single_worker.copy_without_state(compressor)
        for step in (1, 2):
            key = Key(0, 0, step, 0)
            payload = single_worker.encode(one, x, key)
            found += [payload.clone(), one.decompress(payload, x, key)]
    return found


def check_special_values(compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check that zeros stay zeros, and that NaN and Inf do not become numbers."""
    for shape in SHAPES:
        if single_worker.quantise(compressor, torch.zeros(shape), KEY).any():
            return "no", f"zeros of {shape} do not stay zeros"
        for bad in (math.nan, math.inf):
            x = gaussian(shape)
            if not x.numel():
                continue
            x.view(-1)[-1] = bad
            try:
                last = float(single_worker.quantise(compressor, x, KEY).view(-1)[-1])
            except (ValueError, FloatingPointError):
                continue  # raising is the other permitted answer
            if math.isfinite(last):
                return "no", f"{bad} in {shape} becomes {last}"
    return "ok", ""


def check_bias(compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check that E[Q(x)] = x."""
    found = [(measured_laws.measure_bias(one, level), one.name) for one in drawn if one.law.unbiased]
    if not found:
        return "-", ""
    wrong = [f"biased: {name}, |z| = {z:.1f}, or off in all draws alike" for (z, broken), name in found if broken]
    return format_number(max(z for (z, _), _ in found)), "; ".join(wrong[:2])


def check_constant(name: str, compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check the promised omega or delta: compare the mean squared error with the bound."""
    found = []
    is_random = any(bool((one.q != one.q[0]).any()) for one in drawn)
    for one in drawn:
        promised = getattr(one.law, name)
        if promised is not None:
            limit = promised if name == "omega" else 1 - promised
            mean, broken = measured_laws.measure_excess(one, limit, level, is_random)
            used = mean / limit if limit else 0.0  # a limit of 0 says nothing of how good the others are
            found.append((used, mean if name == "omega" else 1 - mean, promised, broken, one.name))
    if not found:
        return "-", ""
    _, measured, promised, _, _ = max(found)
    wrong = [
        f"{name}: {where}: {format_number(is_)}, promised {format_number(by)}"
        for _, is_, by, broken, where in found
        if broken
    ]
    return f"{format_number(measured)} / {format_number(promised)}", "; ".join(wrong[:2])


def check_kappa(compressor: Compressor, drawn: list[Draws], level: Level) -> tuple[str, str]:
    """Check that no draw exceeds the promised absolute error."""
    found = []
    for one in drawn:
        if one.law.kappa is not None:
            largest = math.sqrt(float(one.compute_errors().max()) * one.energy)
            found.append((largest / max(one.law.kappa, 1e-30), largest, one.law.kappa, one.name))
    if not found:
        return "-", ""
    ratio, largest, promised, where = max(found)
    wrong = f"kappa: {where}: {format_number(largest)}, promised {format_number(promised)}" if ratio > _HELD else ""
    return f"{format_number(largest)} / {format_number(promised)}", wrong


CHECKS: dict[str, Check] = {
    "payload": check_payload,
    "repeatable": check_repeatable,
    "kernels": check_kernels,
    "zeros, NaN": check_special_values,
    "bias": check_bias,
    "omega": functools.partial(check_constant, "omega"),
    "delta": functools.partial(check_constant, "delta"),
    "kappa": check_kappa,
}
"""By column."""
