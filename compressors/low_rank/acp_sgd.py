"""ACP-SGD: one factor of PowerSGD a step, in turn, which the network adds like any payload."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from compressors.base import EXACT, Compressor, Law, count_elements
from compressors.kernels import buffers
from compressors.lazy import torch
from compressors.low_rank.linear_algebra import thin_products
from compressors.low_rank.linear_algebra.factors import (
    Factored,
    Factors,
    calculating,
    draw,
    find_matrix_shape,
    make_orthonormal,
)
from compressors.random_key import Key
from compressors.unit_state import Stateful
from gradsweep.options.parameters import integer, number


@dataclasses.dataclass(frozen=True)
class ACPSGD(Factored, Compressor, Stateful):
    """Low rank by alternate power iteration (Zhang et al., "Evaluation and optimization of gradient compression for
    distributed deep learning", ICDCS 2023).

    A tensor of shape (d0, d1, ...) is the matrix M (d0, d1 * ...) of the worker. The steps take turns:

        Q = orthonormal basis of Q;  P = M Q, which is sent;    the mean gradient is (mean of P) Q^T
        P = orthonormal basis of P;  Q = M^T P, which is sent;  the mean gradient is P (mean of Q)^T

    with the mean P, or Q, of the step before, which all workers know. So one round carries half of the bytes of
    PowerSGD, and a sum that the network forms: it can leave during backward. A memory takes for sent what this worker
    has added to the mean, M Q Q^T or P P^T M.

    The first Q is Gaussian, of random numbers that all workers share, and so is what replaces columns of a basis that
    are zero, dependent or not finite. (In the authors' code each worker draws its own first factors, unless the script
    seeds them.)

    Q(x) of one worker is a projection of x: omega = 1. A basis of the past may be orthogonal to x: there is no delta.

    1-D tensors and matrices that would not become `min_compression_rate` times smaller, in the mean of two steps, are
    summed as they are. (The authors' code compresses all matrices.)

    Payload: r x rows or r x columns little-endian float32, for r = min(rank, rows, columns): P or Q, one column after
    the other; or all elements of a dense tensor. It is decoded with the basis that this compressor has for the unit.

    A NaN or Inf makes its row (where P is sent) or its column of the mean NaN or Inf. float64 is rounded to float32.
    """

    name: ClassVar[str] = "acp_sgd"
    paper: ClassVar[str] = "Zhang et al., ACP-SGD, ICDCS 2023"
    needs_matrix: ClassVar[bool] = True
    shared_draws: ClassVar[bool] = True
    follows_mean: ClassVar[bool] = True
    sum_dtype: ClassVar[str] = "float32"
    remembers: ClassVar[tuple[str, ...]] = ("q", "p")
    optional: ClassVar[tuple[str, ...]] = remembers

    rank: int = integer(4, low=1)
    min_compression_rate: float = number(2.0, low=1)

    def law(self, shape: Sequence[int]) -> Law:
        return EXACT if self.get_factors(shape) is None else Law(omega=1.0)

    def is_exact(self, shape: Sequence[int], key: Key) -> bool:
        return self.get_factors(shape) is None

    def find_factors(self, shape: Sequence[int]) -> Factors | None:
        """Return the shapes (r, rows) and (r, columns) of the factors; None if the tensor is sent dense."""
        rows, columns = find_matrix_shape(shape)
        rank = min(self.rank, rows, columns)
        if rank * (rows + columns) / 2 * self.min_compression_rate >= count_elements(shape):
            return None
        return (rank, rows), (rank, columns)

    def payload_bound(self, shape: Sequence[int]) -> int:
        factors = self.get_factors(shape)
        return 4 * (count_elements(shape) if factors is None else max(map(count_elements, factors)))

    def payload_size(self, shape: Sequence[int]) -> int | None:
        factors = self.get_factors(shape)
        return self.payload_bound(shape) if factors is None or factors[0] == factors[1] else None

    def _get_basis(self, factors: Factors, key: Key, device: torch.device) -> tuple[str, torch.Tensor]:
        """Return the unit's basis and its name: `q` (r, columns) where P is sent, `p` (r, rows) where Q is sent.

        It is what the last mean has left, or else the first one, a random Q.
        """
        left, right = factors
        for name, basis in self.unit_tensors.get(key.unit, {}).items():
            if basis.shape == (right if name == "q" else left):
                return name, basis.to(device)
        basis = draw(torch.empty(right, device=device), key)
        make_orthonormal(basis[None], [key], 1)
        return "q", basis

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        values, factors = buffers.as_float32(x), self.get_factors(x.shape)
        if factors is not None:
            with calculating():
                name, basis = self._get_basis(factors, key, values.device)
                self.unit_tensors[key.unit] = {name: basis}
                values = _multiply(values, name, basis, factors).view(-1)
        payload = buffers.prepare(out, 4 * len(values), x.device)
        buffers.write_floats(values, payload)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        factors = self.get_factors(out.shape)
        if factors is None:
            payload = buffers.receive(payload, out.device, 4 * out.numel())
            out.detach().add_(buffers.read_floats(payload).view(out.shape), alpha=weight)
            return
        name, basis = self._get_basis(factors, key, out.device)
        sent = factors[0 if name == "q" else 1]
        payload = buffers.receive(payload, out.device, 4 * count_elements(sent))
        factor = buffers.read_floats(payload).view(sent)
        left, right = (factor, basis) if name == "q" else (basis, factor)
        with buffers.accumulator(out) as total:
            thin_products.products(out.device).add_product(left, right, weight, total)

    def finish(self, mean: torch.Tensor, key: Key, workers: int) -> None:
        """Make the mean of the factor that was sent, which is `mean` times the basis, the basis of the next step."""
        factors = self.get_factors(mean.shape)
        if factors is None:
            return
        with calculating():
            name, basis = self._get_basis(factors, key, mean.device)
            factor = _multiply(buffers.as_float32(mean), name, basis, factors)
            make_orthonormal(factor[None], [key], 2)
            self.unit_tensors[key.unit] = {"p" if name == "q" else "q": factor}

    def kernel_modules(self) -> tuple[str, ...]:
        return ("powersgd",)


def _multiply(values: torch.Tensor, name: str, basis: torch.Tensor, factors: Factors) -> torch.Tensor:
    """Return the other factor of a matrix, given by its elements (n,): M Q for the basis Q, M^T P for P."""
    products = thin_products.products(values.device)
    factor = torch.empty(factors[0 if name == "q" else 1], device=values.device)
    (products.multiply_left if name == "q" else products.multiply_right)(values, basis, factor)
    return factor
