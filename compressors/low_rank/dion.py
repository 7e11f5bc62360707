"""Dion: a step of orthonormal factors from the workers' momenta, by one step of subspace iteration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Sequence
from typing import ClassVar

from compressors.base import EXACT, Cooperative, Law, Reduction, Sum, Swap, count_elements
from compressors.kernels import buffers
from compressors.lazy import torch
from compressors.low_rank.linear_algebra import thin_products
from compressors.low_rank.linear_algebra.factors import Factored, Factors, calculating, draw, find_matrix_shape
from compressors.low_rank.linear_algebra.work import Work, copy_all
from compressors.random_key import Key
from compressors.unit_state import Stateful
from gradsweep.options.parameters import integer, number

EPSILON = 1e-8
"""Added to the norm of a column of R, as in the authors' code."""


@dataclasses.dataclass(frozen=True)
class Dion(Factored, Cooperative, Stateful):
    """Steps of orthonormal factors (Ahn et al., "Dion: distributed orthonormalized updates", 2025, and its code).

    M is the worker's momentum as a matrix: its gradient and what memory=residual has kept. With Q of the last step:

        P = sum of M Q over the workers;  P = orthonormal basis of its columns, by QR
        R = mean of M^T P over the workers;  Q = R, each column divided by its norm + 1e-8
        the mean is taken to be P Q^T, and the memory lets go of (1 - mu) P R^T

    optimizer=dion takes steps along P Q^T. A tensor of shape (d0, d1, ...) is the matrix (d0, d1 * ...), transposed if
    it has more columns than rows, so that P has the longer side. Its rank is `rank`, or rank_fraction times the shorter
    side, rounded up. The first Q is Gaussian and the same on all workers. Where a column of R is zero or not finite, as
    after a step with NaN or gradients of zeros, Q keeps its column.

    Where both factors together would not be smaller than the matrix, the workers sum M in one round, and each computes
    P and R from the mean: the same numbers up to rounding. (The authors' code sums the gradients there, which gives the
    same mean of M; for tall P it can take a randomised Cholesky QR.) Tensors of one dimension are summed as they are
    and arrive exactly; they, embeddings and the last layer have other optimizers, by `optimizer.groups`.

    Only directions are kept: no law holds for Q(x) = P Q^T.

    Payload, little-endian float32, for the rank r: r x longer side: P, one column after the other; r x shorter side: R,
    likewise; or all elements of a vector.

    A NaN or Inf in the matrix of one worker arrives as NaN in every element of the mean. float64 is rounded to float32.
    """

    name: ClassVar[str] = "dion"
    paper: ClassVar[str] = "Ahn et al., Dion, 2025"
    needs_matrix: ClassVar[bool] = True
    shared_draws: ClassVar[bool] = True
    scale_free: ClassVar[bool] = True
    knows_rest: ClassVar[bool] = True
    smallest: ClassVar[float] = 1000.0 * EPSILON
    remembers: ClassVar[tuple[str, ...]] = ("q",)

    rank_fraction: float = number(0.25, low=0, high=1, above=True)
    rank: int | None = integer(None, low=1, optional=True)
    mu: float = number(0.95, low=0, high=1, below=True)

    def law(self, shape: Sequence[int]) -> Law:
        return EXACT if self.get_factors(shape) is None else Law()

    def is_exact(self, shape: Sequence[int], key: Key) -> bool:
        return self.get_factors(shape) is None

    def find_factors(self, shape: Sequence[int]) -> Factors | None:
        """Return the shapes of P (r, longer side) and Q (r, shorter side); None for a tensor that is sent as it is."""
        if len(shape) < 2 or not count_elements(shape):
            return None
        short, long = sorted(find_matrix_shape(shape))
        # a fraction such as 0.07 of 100 rows is 7, not 8, whatever the rounding of the product
        share = max(1, math.ceil(round(self.rank_fraction * short, 6)))
        rank = min(short, share if self.rank is None else self.rank)
        return (rank, long), (rank, short)

    def payload_bound(self, shape: Sequence[int]) -> int:
        factors = self.get_factors(shape)
        return 4 * (count_elements(shape) if factors is None else sum(map(count_elements, factors)))

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        buffers.check_floating(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        return buffers.deliver(payload.copy_(self.reduce_alone([(x, key)])[0].own), out)

    def rounds(
        self, batch: Sequence[tuple[torch.Tensor, Key]], worker: int, workers: int
    ) -> Generator[Sum | Swap, torch.Tensor, list[Reduction]]:
        with calculating():
            units = [buffers.as_float32(x) for x, _ in batch]
            factors = [self.get_factors(x.shape) for x, _ in batch]
            wide = {unit for unit, (x, _) in enumerate(batch) if _is_wide(x.shape)}
            travelling = [one if one and _are_smaller(one) else None for one in factors]
            work = Work(units, travelling, wide)
            before = self._start(work, batch)
        if work.first.numel():
            yield Sum(work.first)
        with calculating():
            _project(work)
        if work.all_q.numel():
            yield Sum(work.all_q)
        with calculating():
            work.all_q.div_(workers)
            means = [work.dense[unit] / workers if unit in work.dense else work.first[:0] for unit in range(len(batch))]
            local = [None if one else other for one, other in zip(travelling, factors, strict=True)]
            whole = Work(means, local, wide)
            before |= self._start(whole, batch)
            _project(whole)
            payloads = {**work.join(work.q), **whole.join(whole.q)}
            self._keep(work, batch, before)
            self._keep(whole, batch, before)
            return [
                Reduction(units[unit].view(torch.uint8), means[unit].view(torch.uint8))
                if factors[unit] is None
                else Reduction(payloads[unit], payloads[unit])
                for unit in range(len(batch))
            ]

    def _start(self, work: Work, batch: Sequence[tuple[torch.Tensor, Key]]) -> dict[int, torch.Tensor]:
        """Compute this worker's part of P from the Q of the last step; return every Q, by number."""
        before = {unit: self._get_q(q, batch[unit][1]) for unit, q in work.q.items()}
        copy_all(list(work.q.values()), list(before.values()))
        work.compute_p()
        return before

    def _get_q(self, like: torch.Tensor, key: Key) -> torch.Tensor:
        """Return the Q of the last step, or else random numbers that all workers share."""
        before = self.unit_tensors.get(key.unit, {}).get("q")
        return draw(like, key) if before is None or before.shape != like.shape else before.to(like.device)

    def _keep(self, work: Work, batch: Sequence[tuple[torch.Tensor, Key]], before: dict[int, torch.Tensor]) -> None:
        """Keep the Q of the next step: R with columns of the length 1, or the Q before where they have no length."""
        for stack, members in work.q_stacks:
            found, live = _normalise(stack)
            for unit, q, alive in zip(members, found, live, strict=True):
                self.unit_tensors[batch[unit][1].unit] = {"q": torch.where(alive, q, before[unit])}

    def _read(self, payload: torch.Tensor, out: torch.Tensor, factors: Factors) -> tuple[torch.Tensor, torch.Tensor]:
        """Return P and R of a payload for a tensor like `out`."""
        values = buffers.read_floats(buffers.receive(payload, out.device, self.payload_bound(out.shape)))
        p, r = values.split([count_elements(shape) for shape in factors])
        return p.view(factors[0]), r.view(factors[1])

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        factors = self.get_factors(out.shape)
        if factors is None:
            values = buffers.read_floats(buffers.receive(payload, out.device, self.payload_bound(out.shape)))
            out.detach().add_(values.view(out.shape), alpha=weight)
            return
        p, r = self._read(payload, out, factors)
        q, _ = _normalise(r)
        _add_product(p, q, weight, out)

    def decompress_together(
        self, reductions: Sequence[Reduction], units: Sequence[tuple[torch.Tensor, Key]], *, replace: bool = False
    ) -> None:
        by_shape: dict[Factors | None, list[int]] = {}
        for place, (out, _) in enumerate(units):
            by_shape.setdefault(self.get_factors(out.shape), []).append(place)
        for factors, places in by_shape.items():
            if factors is None:
                some = [reductions[place] for place in places], [units[place] for place in places]
                super().decompress_together(*some, replace=replace)
                continue
            read = [self._read(reductions[place].mean, units[place][0], factors) for place in places]
            found, _ = _normalise(torch.stack([r for _, r in read]))
            for place, (p, _), q in zip(places, read, found, strict=True):
                if replace:
                    units[place][0].detach().zero_()
                _add_product(p, q, reductions[place].weight, units[place][0])

    def remove_sent(self, payload: torch.Tensor, out: torch.Tensor, key: Key) -> None:
        """Take (1 - mu) P R^T from `out`, in place."""
        factors = self.get_factors(out.shape)
        if factors is None:
            self.decompress_add(payload, out, key, -1.0)
            return
        p, r = self._read(payload, out, factors)
        _add_product(p, r, self.mu - 1.0, out)

    def kernel_modules(self) -> tuple[str, ...]:
        return ("powersgd",)


def _is_wide(shape: Sequence[int]) -> bool:
    """Tell whether the matrix of a tensor has more columns than rows."""
    rows, columns = find_matrix_shape(shape)
    return rows < columns


def _are_smaller(factors: Factors) -> bool:
    """Tell whether both factors of a matrix have fewer elements than the matrix."""
    (rank, long), (_, short) = factors
    return rank * (long + short) < long * short


def _project(work: Work) -> None:
    """Make P of all units orthonormal, and compute R = M^T P."""
    work.make_p_orthonormal_by_qr()
    work.compute_q()


def _normalise(r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return R^T (..., r, n) with each row divided by its norm + EPSILON, and which rows are not zero or NaN, (..., r,
    1).
    """
    q = r.clone()
    live = thin_products.orthonormal(q.view(-1, 1, q.shape[-1]), EPSILON)
    return q, live.view(*q.shape[:-1], 1)


def _add_product(p: torch.Tensor, q: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    """Compute out += weight * P Q^T, or weight * Q P^T for a tensor with more columns than rows."""
    left, right = (q, p) if _is_wide(out.shape) else (p, q)
    with buffers.accumulator(out) as total:
        thin_products.products(out.device).add_product(left, right, weight, total)
