"""The products and bases of all units of a step: by a kernel for all of them, by shape, or one after the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from compressors.base import Reduction
from compressors.kernels import backend, buffers
from compressors.lazy import torch
from compressors.low_rank.linear_algebra import thin_products
from compressors.low_rank.linear_algebra.factors import Factors, are_of_one_step, make_orthonormal
from compressors.random_key import Key

Shape = tuple[int, int]


class Work:
    """The units of one call as flat float32 in the order of their transfer: dense units, factors P, factors Q.

    `shapes` are those of P (r, rows) and Q (r, columns) of each unit, None for a dense unit. Units in `transposed` are
    taken as the transposed matrix: P is (r, columns) and Q (r, rows).
    """

    def __init__(
        self,
        units: Sequence[torch.Tensor],
        shapes: Sequence[Factors | None],
        transposed: Collection[int] = (),
    ) -> None:
        factors = {number: shape for number, shape in enumerate(shapes) if shape is not None}
        dense = {number: unit for number, unit in enumerate(units) if number not in factors}
        device = units[0].device if units else torch.device("cpu")
        self.products = thin_products.products(device)
        self.transposed = transposed
        count = sum(map(len, dense.values()))
        size = [sum(math.prod(shape[side]) for shape in factors.values()) for side in (0, 1)]
        self.first, self.all_q = (
            torch.empty(n, dtype=torch.float32, device=device) for n in (count + size[0], size[1])
        )
        self.all_p = self.first[count:]
        self.low = {number: units[number] for number in factors}
        self.p, self.p_stacks = _stacks(self.all_p, {number: shape[0] for number, shape in factors.items()})
        self.q, self.q_stacks = _stacks(self.all_q, {number: shape[1] for number, shape in factors.items()})
        self.dense = dict(zip(dense, self.first[:count].split([len(unit) for unit in dense.values()]), strict=True))
        copy_all(list(self.dense.values()), list(dense.values()))

    def compute_p(self) -> None:
        """Compute P = M Q for all units."""
        for number, unit in self.low.items():
            self._multiply(unit, self.q[number], self.p[number], from_right=number not in self.transposed)

    def compute_q(self) -> None:
        """Compute Q = M^T P for all units."""
        for number, unit in self.low.items():
            self._multiply(unit, self.p[number], self.q[number], from_right=number in self.transposed)

    def _multiply(self, unit: torch.Tensor, factor: torch.Tensor, out: torch.Tensor, *, from_right: bool) -> None:
        """Compute the product of a unit's matrix and a factor of its columns (`from_right`), or of its rows."""
        (self.products.multiply_left if from_right else self.products.multiply_right)(unit, factor, out)

    def make_p_orthonormal(self, epsilon: float) -> None:
        """Make every P orthonormal by Gram-Schmidt."""
        for stack, _ in self.p_stacks:
            thin_products.orthonormal(stack, epsilon)

    def make_p_orthonormal_by_qr(self) -> None:
        """Make every P orthonormal by Householder's reflections."""
        for stack, _ in self.p_stacks:
            thin_products.orthonormal_by_qr(stack)

    def make_q_orthonormal(self, keys: Sequence[Key], number: int) -> None:
        """Make every Q orthonormal, and draw what is lost of it anew, as `make_orthonormal` does."""
        for stack, members in self.q_stacks:
            make_orthonormal(stack, [keys[member] for member in members], number)

    def view_dense(self) -> dict[int, torch.Tensor]:
        """Return the elements of each dense unit, as bytes."""
        sizes = [4 * len(unit) for unit in self.dense.values()]
        return dict(zip(self.dense, self.first[: sum(sizes) // 4].view(torch.uint8).split(sizes), strict=True))

    def copy_q(self) -> dict[int, torch.Tensor]:
        """Return a copy of every Q, by number."""
        copies = [(stack.clone(), members) for stack, members in self.q_stacks]
        return {member: q for stack, members in copies for member, q in zip(members, stack, strict=True)}

    def join(self, q: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Return P and `q` of each unit, one behind the other, as bytes."""
        if not q:
            return {}
        pieces = [factor.view(-1) for number in q for factor in (self.p[number], q[number])]
        sizes = [4 * (self.p[number].numel() + q[number].numel()) for number in q]
        return dict(zip(q, torch.cat(pieces).view(torch.uint8).split(sizes), strict=True))


class GroupedWork(Work):
    """Work whose units are processed by one launch for all of them, by Triton's kernels on a GPU."""

    def __init__(self, units: Sequence[torch.Tensor], shapes: Sequence[Factors | None], keys: Sequence[Key]) -> None:
        super().__init__(units, shapes)
        self.kernels = backend.load("powersgd", units[0].device)
        self.x = next(iter(self.low.values()))
        matrices = []
        for number, x in self.low.items():
            p, q = self.p[number], self.q[number]
            sizes = x.numel(), p.shape[1], q.shape[1], p.shape[0]
            where = _distance(p, self.all_p), _distance(q, self.all_q)
            matrices.append(self.kernels.Matrix(_distance(x, self.x), *sizes, *where, keys[number].unit))
        self.plan = self.kernels.plan(tuple(matrices), self.x.device)

    def compute_p(self) -> None:
        self.kernels.multiply_left(self.x, self.plan, self.all_q, self.all_p)

    def compute_q(self) -> None:
        self.kernels.multiply_right(self.x, self.plan, self.all_p, self.all_q)

    def make_p_orthonormal(self, epsilon: float) -> None:
        self.kernels.orthonormal(self.all_p, self.plan, 0, epsilon)

    def make_q_orthonormal(self, keys: Sequence[Key], number: int) -> None:
        seed, step = keys[0].seed, keys[0].step
        self.kernels.orthonormal(self.all_q, self.plan, 1, draw=(seed, step, number))


def arrange(units: Sequence[torch.Tensor], shapes: Sequence[Factors | None], keys: Sequence[Key]) -> Work:
    """Return the work of a step, grouped where there are kernels for all units at once."""
    ranks = [shape[0][0] for shape in shapes if shape is not None]
    kernels = thin_products.find_grouped(units[0].device) if ranks and are_of_one_step(keys) else None
    if kernels is None or max(ranks) > kernels.MOST_RANK:
        return Work(units, shapes)
    return GroupedWork(units, shapes, keys)


def _distance(tensor: torch.Tensor, base: torch.Tensor) -> int:
    """Return the number of float32 elements between the beginnings of two tensors, wherever they lie."""
    return (tensor.data_ptr() - base.data_ptr()) // 4


def add_together(
    reductions: Sequence[Reduction], outs: Sequence[torch.Tensor], shapes: Sequence[Factors | None], *, replace: bool
) -> bool:
    """Add to every tensor what its reduction has, P and Q or all elements, or overwrite it, by one launch.

    Return whether there is a kernel for that: if not, nothing is done.
    """
    ranks = [shape[0][0] for shape in shapes if shape is not None]
    kernels = thin_products.find_grouped(outs[0].device) if ranks else None
    if kernels is None or max(ranks) > kernels.MOST_RANK:
        return False
    device, payload, base = outs[0].device, reductions[0].mean, outs[0]
    matrices = []
    for reduction, out, shape in zip(reductions, outs, shapes, strict=True):
        mean = reduction.mean
        if not (buffers.is_plain(out) and out.device == device == mean.device and buffers.is_aligned(mean)):
            return False
        begin, p = _distance(out, base), _distance(mean, payload)
        if shape is None:
            matrices.append(kernels.cut_dense(begin, out.numel(), p, reduction.weight))
        elif reduction.weight == 1.0:
            (rank, rows), (_, columns) = shape
            matrices.append(kernels.Matrix(begin, out.numel(), rows, columns, rank, p, p + rank * rows))
        else:
            return False
    kernels.add_products(payload.view(torch.float32), base, kernels.plan(tuple(matrices), device), replace)
    return True


def copy_all(outs: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    """Copy each of `tensors` to its tensor of `outs`: on a GPU in a few launches."""
    if outs:
        torch._foreach_copy_(outs, tensors)


def _stacks(
    buffer: torch.Tensor, shapes: dict[int, Shape]
) -> tuple[dict[int, torch.Tensor], list[tuple[torch.Tensor, list[int]]]]:
    """Divide `buffer` (1-D) into a factor (r, n) for each of `shapes`; factors of one shape are adjacent.

    Return the factors by number, and for each shape all its factors as (b, r, n) with their numbers: all are views.
    """
    members: dict[Shape, list[int]] = {}
    for number, shape in shapes.items():
        members.setdefault(shape, []).append(number)
    factors: dict[int, torch.Tensor] = {}
    stacked = []
    offset = 0
    for (rank, size), numbers in members.items():
        stop = offset + len(numbers) * rank * size
        stack = buffer[offset:stop].view(len(numbers), rank, size)
        stacked.append((stack, numbers))
        factors.update(zip(numbers, stack, strict=True))
        offset = stop
    return factors, stacked
