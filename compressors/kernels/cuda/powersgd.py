"""PowerSGD's products and bases in Triton: those of all units of a step in one launch.

What is computed is that of `reference.powersgd`, with sums in another order: one that only the shapes decide, so that
workers with unlike GPUs have the same bits. A matrix is found by its distance from a first tensor, wherever it lies.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import float64_bits, launch, power_of_two, wrap_to_int64
from compressors.kernels.cuda.primitives.streams import splitmix64

MOST_RANK = 8
"""The highest rank up to which these products are faster than a library's: reading the matrix limits them."""
MOST_VECTORS = 32
"""The most vectors of a basis."""
_COLS = tl.constexpr(256)
_LEFT_ROWS = 8
_CHUNK = 64
_SUMS, _SUM_COLS = 32, 32
_WHOLE, _BLOCK = 16384, 8192
"""The most elements of a basis that a program keeps in registers; those that it reads at a time of larger ones."""
_WARPS = 16
_IN_THE_SPAN = tl.constexpr(0.1)


class Matrix(NamedTuple):
    """A matrix (rows, columns) of some elements, and its factors: where they begin, in elements.

    `begin` counts from the tensor that a kernel is given, `p` and `q` from the buffers of the factors. With the rank 0,
    `add_products` finds the elements themselves at `p`. `weight` is that of the product, the bits of a float64.
    """

    begin: int
    elements: int
    rows: int
    columns: int
    rank: int
    p: int
    q: int = 0
    unit: int = 0
    weight: int = float64_bits(1.0)


class Plan(NamedTuple):
    """The matrices of a step in the memory of a GPU, and the programs (unit, part) of each kernel."""

    table: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    sums: torch.Tensor
    scratch: int
    rank: int
    longest: tuple[int, int]
    """The largest numbers of rows and of columns."""


@functools.lru_cache(maxsize=64)
def plan(matrices: tuple[Matrix, ...], device: torch.device) -> Plan:
    """Return the programs for these matrices; the same ones are found again in later steps.

    A unit has an even number of fields, so that all lists are aligned.
    """
    table = np.array(matrices, np.int64)
    _, _, rows, columns, ranks = table.T[:5]
    across, chunks = -(-columns // _COLS.value), -(-rows // _CHUNK)
    partial = np.where(chunks > 0, chunks * ranks * columns, 0)
    starts = np.cumsum(partial) - partial
    table = np.column_stack([table, starts])
    lists = (_list(-(-rows // _LEFT_ROWS)), _list(across * chunks), _list(-(-columns // _SUM_COLS)))
    sizes = [table.size, *(part.size for part in lists)]
    host = torch.from_numpy(np.concatenate([table.ravel(), *(part.ravel() for part in lists)]))
    if device.type == "cuda":
        host = host.pin_memory()
    fields, left, right, sums = host.to(device, non_blocking=True).split(sizes)
    longest = int(rows.max()), int(columns.max())
    return Plan(fields, left, right, sums, int(partial.sum()), power_of_two(max(1, int(ranks.max()))), longest)


def _list(parts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return (unit, part) of each program, for so many parts of each unit."""
    units = np.repeat(np.arange(len(parts)), parts)
    return np.column_stack([units, np.arange(len(units)) - np.repeat(np.cumsum(parts) - parts, parts)])


_FIELDS = tl.constexpr(10)


@triton.jit
def _find(programs, table) -> tl.tensor:
    """Return where the fields of this program's unit are, and the number of its part."""
    here = programs + 2 * tl.program_id(0).to(tl.int64)
    return table + tl.load(here) * _FIELDS, tl.load(here + 1)


@triton.jit
def _multiply_left(x, q, p, table, programs, RANK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr) -> None:
    """Compute P = M Q for ROWS rows of a matrix."""
    unit, part = _find(programs, table)
    x += tl.load(unit)
    count = tl.load(unit + 1)
    rows = tl.load(unit + 2)
    columns = tl.load(unit + 3)
    p += tl.load(unit + 5)
    q += tl.load(unit + 6)
    k = tl.arange(0, RANK)
    used = k < tl.load(unit + 4)
    row = part * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((RANK, ROWS, COLS), tl.float32)
    for first in range(0, columns, COLS):
        column = first + tl.arange(0, COLS)
        inside = column < columns
        place = row[:, None] * columns + column[None, :]
        m = tl.load(x + place, mask=inside[None, :] & (place < count), other=0.0)
        factor = tl.load(q + k[:, None] * columns + column[None, :], mask=used[:, None] & inside[None, :], other=0.0)
        total += m[None, :, :] * factor[:, None, :]
    at = k[:, None] * rows + row[None, :]
    tl.store(p + at, tl.sum(total, axis=2), mask=used[:, None] & (row < rows)[None, :])


@triton.jit
def _multiply_right(
    x, p, sums, table, programs, RANK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, CHUNK: tl.constexpr
) -> None:
    """Write the sums of P M over CHUNK rows, for COLS columns of a matrix."""
    unit, part = _find(programs, table)
    x += tl.load(unit)
    count = tl.load(unit + 1)
    rows = tl.load(unit + 2)
    columns = tl.load(unit + 3)
    rank = tl.load(unit + 4)
    p += tl.load(unit + 5)
    sums += tl.load(unit + 9)
    k = tl.arange(0, RANK)
    used = k < rank
    across = (columns + COLS - 1) // COLS
    chunk = part // across
    column = (part - chunk * across) * COLS + tl.arange(0, COLS)
    inside = column < columns
    total = tl.zeros((RANK, ROWS, COLS), tl.float32)
    for first in range(chunk * CHUNK, tl.minimum(rows, chunk * CHUNK + CHUNK), ROWS):
        row = first + tl.arange(0, ROWS)
        place = row[:, None] * columns + column[None, :]
        m = tl.load(x + place, mask=inside[None, :] & (place < count), other=0.0)
        factor = tl.load(p + k[:, None] * rows + row[None, :], mask=used[:, None] & (row < rows)[None, :], other=0.0)
        total += m[None, :, :] * factor[:, :, None]
    at = (chunk * rank + k[:, None]) * columns + column[None, :]
    tl.store(sums + at, tl.sum(total, axis=1), mask=used[:, None] & inside[None, :])


@triton.jit
def _add_chunks(
    sums, q, table, programs, RANK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, CHUNK: tl.constexpr
) -> None:
    """Add up what `_multiply_right` has written for the chunks of rows."""
    unit, part = _find(programs, table)
    rows = tl.load(unit + 2)
    columns = tl.load(unit + 3)
    rank = tl.load(unit + 4)
    q += tl.load(unit + 6)
    sums += tl.load(unit + 9)
    chunks = (rows + CHUNK - 1) // CHUNK
    k = tl.arange(0, RANK)
    column = part * COLS + tl.arange(0, COLS)
    real = (k < rank)[:, None] & (column < columns)[None, :]
    total = tl.zeros((RANK, ROWS, COLS), tl.float32)
    for first in range(0, chunks, ROWS):
        chunk = first + tl.arange(0, ROWS)
        at = (chunk[None, :, None] * rank + k[:, None, None]) * columns + column[None, None, :]
        total += tl.load(sums + at, mask=real[:, None, :] & (chunk < chunks)[None, :, None], other=0.0)
    tl.store(q + k[:, None] * columns + column[None, :], tl.sum(total, axis=1), mask=real)


@triton.jit
def _add_product(
    payload,
    out,
    table,
    programs,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    CHUNK: tl.constexpr,
    REPLACE: tl.constexpr,
) -> None:
    """Add weight * P Q^T to CHUNK rows and COLS columns of a matrix, or with REPLACE overwrite them.

    A matrix of the rank 0 gets weight * P, all its elements.
    """
    unit, part = _find(programs, table)
    out += tl.load(unit)
    count = tl.load(unit + 1)
    rows = tl.load(unit + 2)
    columns = tl.load(unit + 3)
    rank = tl.load(unit + 4)
    p = payload + tl.load(unit + 5)
    q = payload + tl.load(unit + 6)
    weight = tl.load(unit + 8).to(tl.float64, bitcast=True)
    across = (columns + COLS - 1) // COLS
    chunk = part // across
    column = (part - chunk * across) * COLS + tl.arange(0, COLS)
    inside = column < columns
    for first in range(chunk * CHUNK, tl.minimum(rows, chunk * CHUNK + CHUNK), ROWS):
        row = first + tl.arange(0, ROWS)
        place = row[:, None] * columns + column[None, :]
        exists = inside[None, :] & (place < count)
        total = tl.load(p + place, mask=exists & (rank == 0), other=0.0) * weight.to(tl.float32)
        for k in tl.static_range(RANK):
            one = tl.load(p + k * rows + row, mask=(row < rows) & (k < rank), other=0.0)
            other = tl.load(q + k * columns + column, mask=inside & (k < rank), other=0.0)
            total += (one.to(tl.float64) * weight).to(tl.float32)[:, None] * other[None, :]
        if not REPLACE:
            total += tl.load(out + place, mask=exists, other=0.0)
        tl.store(out + place, total, mask=exists)


@triton.jit
def _make_orthonormal_at_once(vectors, rank, size, epsilon, RANK: tl.constexpr, BLOCK: tl.constexpr) -> tl.tensor:
    """Do what `_make_orthonormal` does for vectors of at most BLOCK elements, which never leave the registers."""
    k = tl.arange(0, RANK)[:, None]
    index = tl.arange(0, BLOCK)[None, :]
    real = (k < rank) & (index < size)
    place = k * size.to(tl.int32) + index
    every = tl.load(vectors + place, mask=real, other=0.0)
    dead = tl.full((), 0, tl.int64)
    for row in range(0, rank):
        one = tl.sum(tl.where(k == row, every, 0.0), axis=0)
        one, length = _normalise_at_once(one)
        remaining = tl.full((), 1.0, tl.float64)
        for _ in range(0, tl.where(row > 0, 2, 0)):
            before = tl.where(k < row, every, 0.0)
            shares = tl.sum(before * one[None, :], axis=1)
            one, remaining = _normalise_at_once(one - tl.sum(shares[:, None] * before, axis=0))
            length *= remaining
        length = tl.where(remaining < _IN_THE_SPAN, 0.0, length)
        alive = (length > 0.0) & (length < float("inf"))
        dead = dead | tl.where(alive, 0, 1 << row).to(tl.int64)
        if (length == 0.0) | (epsilon != 0.0):
            factor = tl.where(length == 0.0, 0.0, length / (length + epsilon)).to(tl.float32)
            one = tl.where(factor == 0.0, 0.0, one * factor)
        every = tl.where(k == row, one[None, :], every)
    tl.store(vectors + place, every, mask=real)
    tl.debug_barrier()
    return dead


@triton.jit
def _normalise_at_once(one) -> tl.tensor:
    """Return a vector divided by its norm, and the norm, as `_normalise` finds them."""
    wide = one.to(tl.float64)
    norm = tl.sqrt(tl.sum(wide * wide, axis=0))
    divisor = _find_divisor(norm)
    return tl.div_rn(one, tl.broadcast_to(divisor, one.shape)), norm


@triton.jit
def _find_divisor(norm) -> tl.tensor:
    return tl.where(norm == 0.0, 1.0, tl.where(norm < float("inf"), norm, float("nan"))).to(tl.float32)


@triton.jit
def _draw(key, index, count) -> tl.tensor:
    """Return elements `index` of the `count` numbers that `thin_products.gaussian` draws from a key (uint64)."""
    pairs = (count + 1) // 2
    is_cosine = index < pairs
    pair = tl.where(is_cosine, index, index - pairs)
    u = _uniform(key, pair)
    angle = 6.283185307179586 * _uniform(key, pair + pairs)
    turned = tl.where(is_cosine, tl.cos(angle), tl.sin(angle))
    return (tl.sqrt(-2.0 * tl.log(1.0 - u)) * turned).to(tl.float32)


@triton.jit
def _uniform(key, index) -> tl.tensor:
    bits = splitmix64(key + 0x9E3779B97F4A7C15 * index.to(tl.uint64))
    return (bits >> 11).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _find_key(seed, step, unit, number) -> tl.tensor:
    """Return splitmix64(Key(seed, -1, step, unit).mix() ^ number)."""
    state = splitmix64(seed.to(tl.int64).to(tl.uint64))
    state = splitmix64(state ^ tl.full((), 0xFFFFFFFFFFFFFFFF, tl.uint64))
    state = splitmix64(state ^ step.to(tl.int64).to(tl.uint64))
    state = splitmix64(state ^ unit.to(tl.uint64))
    return splitmix64(state ^ number.to(tl.int64).to(tl.uint64))


@triton.jit
def _normalise(one, size, BLOCK: tl.constexpr) -> tl.tensor:
    """Divide a vector by its norm, and return the norm; zeros stay zeros, a NaN or Inf makes all elements NaN."""
    squares = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, size, BLOCK):
        index = first + tl.arange(0, BLOCK)
        value = tl.load(one + index, mask=index < size, other=0.0).to(tl.float64)
        squares += value * value
    norm = tl.sqrt(tl.sum(squares, axis=0))
    divisor = _find_divisor(norm)
    for first in range(0, size, BLOCK):
        index = first + tl.arange(0, BLOCK)
        value = tl.load(one + index, mask=index < size, other=0.0)
        tl.store(one + index, tl.div_rn(value, tl.broadcast_to(divisor, (BLOCK,))), mask=index < size)
    tl.debug_barrier()
    return norm


@triton.jit
def remove_span(vectors, one, row, size, RANK: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Take from a vector its components along the first `row` vectors."""
    k = tl.arange(0, RANK)
    products = tl.zeros((RANK, BLOCK), tl.float32)
    for first in range(0, size, BLOCK):
        index = first + tl.arange(0, BLOCK)
        inside = index < size
        value = tl.load(one + index, mask=inside, other=0.0)
        real = (k < row)[:, None] & inside[None, :]
        products += tl.load(vectors + k[:, None] * size + index[None, :], mask=real, other=0.0) * value[None, :]
    shares = tl.sum(products, axis=1)
    for first in range(0, size, BLOCK):
        index = first + tl.arange(0, BLOCK)
        inside = index < size
        real = (k < row)[:, None] & inside[None, :]
        before = tl.load(vectors + k[:, None] * size + index[None, :], mask=real, other=0.0)
        value = tl.load(one + index, mask=inside, other=0.0) - tl.sum(shares[:, None] * before, axis=0)
        tl.debug_barrier()
        tl.store(one + index, value, mask=inside)
    tl.debug_barrier()


@triton.jit
def scale(one, factor, size, BLOCK: tl.constexpr) -> None:
    for first in range(0, size, BLOCK):
        index = first + tl.arange(0, BLOCK)
        value = tl.load(one + index, mask=index < size, other=0.0)
        tl.store(one + index, tl.where(factor == 0.0, 0.0, value * factor), mask=index < size)
    tl.debug_barrier()


@triton.jit
def _make_orthonormal(
    vectors, rank, size, epsilon, RANK: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr
) -> tl.tensor:
    """Make vectors orthonormal, and return which have not become unit vectors, as bits."""
    dead = tl.full((), 0, tl.int64)
    if size <= WHOLE:
        dead = _make_orthonormal_at_once(vectors, rank, size, epsilon, RANK, WHOLE)
    else:
        dead = _make_orthonormal_by_blocks(vectors, rank, size, epsilon, RANK, BLOCK)
    return dead


@triton.jit
def _make_orthonormal_by_blocks(vectors, rank, size, epsilon, RANK: tl.constexpr, BLOCK: tl.constexpr) -> tl.tensor:
    """Do what `_make_orthonormal` does for vectors of any length."""
    dead = tl.full((), 0, tl.int64)
    for row in range(0, rank):
        one = vectors + row * size
        length = _normalise(one, size, BLOCK)
        remaining = tl.full((), 1.0, tl.float64)
        for _ in range(0, tl.where(row > 0, 2, 0)):
            remove_span(vectors, one, row, size, RANK, BLOCK)
            remaining = _normalise(one, size, BLOCK)
            length *= remaining
        length = tl.where(remaining < _IN_THE_SPAN, 0.0, length)
        alive = (length > 0.0) & (length < float("inf"))
        dead = dead | tl.where(alive, 0, 1 << row).to(tl.int64)
        factor = tl.where(length == 0.0, 0.0, length / (length + epsilon)).to(tl.float32)
        if (length == 0.0) | (epsilon != 0.0):
            scale(one, factor, size, BLOCK)
    return dead


@triton.jit
def draw_row(one, key, begin, size, count) -> None:
    """Overwrite a vector with those of `count` numbers of a key that start at `begin`."""
    for first in range(0, size, _COLS):
        index = first + tl.arange(0, _COLS)
        tl.store(one + index, _draw(key, begin + index, count), mask=index < size)


@triton.jit(do_not_specialize=["seed", "step", "number", "epsilon"])
def _orthonormal(
    factors,
    table,
    seed,
    step,
    number,
    epsilon,
    SIDE: tl.constexpr,
    REDRAW: tl.constexpr,
    RANK: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Make one of the factors of a unit orthonormal; with REDRAW, draw vectors that are zero or not finite anew."""
    unit = table + tl.program_id(0).to(tl.int64) * _FIELDS
    size = tl.load(unit + 2 + SIDE)
    rank = tl.load(unit + 4)
    vectors = factors + tl.load(unit + 5 + SIDE)
    added = epsilon.to(tl.int64).to(tl.float64, bitcast=True)
    dead = _make_orthonormal(vectors, rank, size, added, RANK, WHOLE, BLOCK)
    if (dead != 0) & REDRAW:
        key = _find_key(seed, step, tl.load(unit + 7), number)
        for row in range(0, rank):
            if (dead >> row) & 1 != 0:
                draw_row(vectors + row * size, key, row * size, size, rank * size)
        tl.debug_barrier()
        _make_orthonormal(vectors, rank, size, added, RANK, WHOLE, BLOCK)


def _launch(kernel: Any, plan: Plan, programs: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    launch(kernel, len(programs) // 2, *arguments, RANK=plan.rank, **constants)


def multiply_left(x: torch.Tensor, plan: Plan, q: torch.Tensor, p: torch.Tensor) -> None:
    """Compute P = M Q of all units; matrices begin at their distances from `x`, factors in `q` and `p`."""
    _launch(_multiply_left, plan, plan.left, x, q, p, plan.table, plan.left, ROWS=_LEFT_ROWS, COLS=_COLS.value)


def multiply_right(x: torch.Tensor, plan: Plan, p: torch.Tensor, q: torch.Tensor) -> None:
    """Compute Q = M^T P of all units."""
    sums = torch.empty(plan.scratch, dtype=torch.float32, device=x.device)
    sizes = {"ROWS": _LEFT_ROWS, "COLS": _COLS.value, "CHUNK": _CHUNK}
    _launch(_multiply_right, plan, plan.right, x, p, sums, plan.table, plan.right, **sizes)
    sizes = {"ROWS": _SUMS, "COLS": _SUM_COLS, "CHUNK": _CHUNK}
    _launch(_add_chunks, plan, plan.sums, sums, q, plan.table, plan.sums, **sizes)


def add_products(payload: torch.Tensor, out: torch.Tensor, plan: Plan, replace: bool) -> None:
    """Add weight * P Q^T to all matrices, or overwrite them; they begin at their distances from `out`, their factors at
    those from `payload`.
    """
    tensors, sizes = (payload, out, plan.table, plan.right), {"ROWS": _LEFT_ROWS, "COLS": _COLS.value, "CHUNK": _CHUNK}
    _launch(_add_product, plan, plan.right, *tensors, REPLACE=replace, **sizes)


def cut_dense(begin: int, elements: int, p: int, weight: float) -> Matrix:
    """Return a matrix of the rank 0, for `elements` that are added as they are."""
    columns = _COLS.value
    return Matrix(begin, elements, -(-elements // columns), columns, 0, p, weight=float64_bits(weight))


def list_vectors(count: int, rank: int, size: int, units: Sequence[int]) -> tuple[Matrix, ...]:
    """Return `count` factors P (rank, size) that lie one behind the other, for `orthonormal`."""
    return tuple(Matrix(0, 0, size, 1, rank, rank * size * number, 0, units[number]) for number in range(count))


def orthonormal(
    factors: torch.Tensor, plan: Plan, side: int, epsilon: float = 0.0, draw: tuple[int, int, int] | None = None
) -> None:
    """Make the factors P (`side` 0) or Q (1) of all units orthonormal, as `reference.powersgd.orthonormal` does.

    Args:
        epsilon: added to the norm that a vector is divided by.
        draw: seed, step and number of the draws that replace vectors that are zero or not finite.
    """
    numbers = [wrap_to_int64(number) for number in draw or (0, 0, 0)]
    longest = power_of_two(plan.longest[side])
    whole, block = (min(values // plan.rank, longest) for values in (_WHOLE, _BLOCK))
    sizes = {"SIDE": side, "REDRAW": draw is not None, "RANK": plan.rank, "WHOLE": whole, "BLOCK": block}
    units = len(plan.table) // _FIELDS.value
    launch(_orthonormal, units, factors, plan.table, *numbers, float64_bits(epsilon), **sizes, num_warps=_WARPS)
