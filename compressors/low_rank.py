"""Low rank: the gradient of a layer as a few pairs of vectors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from compressors.base import Compressor, CorruptPayload, Key, Law, element_count
from compressors.parameters import InvalidParameter, boolean, integer, number

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class SVD(Compressor):
    """Spectral sparsification (Wang et al., "ATOMO", NeurIPS 2018, Algorithm 1 on singular values).

    A tensor of shape (d0, d1, ...) is taken as the matrix (d0, d1 * ...). Each atom sigma_i u_i v_i^T is
    kept with the probability p_i = min(1, c * sigma_i), where c makes the expected number of atoms the
    budget (`budget`, or `rank` where that is null), and is divided by p_i: E[Q(x)] = x, with the least
    variance for that budget. With `random_sample: false` the `rank` largest atoms are sent as they are:
    the plain truncated SVD, the best approximation of that rank, but not unbiased.

    1-D tensors, and matrices whose expected factors would not be smaller than the matrix, are sent dense.
    The shape alone decides that: a decision on the sampled outcome would be a bias.

    Payload, everything little-endian float32, for r kept atoms of a (rows, columns) matrix:
        r x rows left factors, then r x columns right factors, where r * (rows + columns) < rows * columns;
        else the dense matrix, rows * columns. The length says which, and r: there is no header.
    A draw may keep more atoms than the budget; then the product is sent dense, which is the same Q(x).

    A matrix with NaN or Inf in it arrives as NaN in every element, a dense tensor as it is. float64 is
    rounded to float32 first. Unbiased up to the rounding of float32 (some 1e-6 of the largest sigma).
    """

    name: ClassVar[str] = "svd"
    aliases: ClassVar[tuple[str, ...]] = ("atomo_svd", "spectral_atomo")
    paper: ClassVar[str] = "Wang et al., ATOMO, NeurIPS 2018"
    needs_matrix: ClassVar[bool] = True

    rank: int = integer(3, low=1)
    budget: float | None = number(None, low=0, above=True, optional=True)
    random_sample: bool = boolean(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and not self.random_sample:
            raise InvalidParameter("budget", self.budget, "null with random_sample=false, which keeps `rank` atoms")

    def law(self, shape: Sequence[int]) -> Law:
        rows, columns = _matrix_shape(shape)
        if self._is_dense(shape):
            return Law(unbiased=True, omega=0.0, delta=1.0)
        if not self.random_sample:  # at least rank of min(rows, columns) equal singular values
            return Law(delta=self.rank / min(rows, columns))
        # p_i >= s sigma_i / sum(sigma), so E ||Q(x)||^2 <= sum(sigma)^2 / s <= min(rows, columns) ||x||^2 / s
        return Law(unbiased=True, omega=min(rows, columns) / self._expected_atoms(rows, columns) - 1.0)

    def _expected_atoms(self, rows: int, columns: int) -> float:
        return min(self.rank if self.budget is None else self.budget, rows, columns)

    def _is_dense(self, shape: Sequence[int]) -> bool:
        rows, columns = _matrix_shape(shape)
        return len(shape) < 2 or self._expected_atoms(rows, columns) * (rows + columns) >= rows * columns

    def payload_bound(self, shape: Sequence[int]) -> int:
        if self._is_dense(shape) or self.random_sample:
            return 4 * element_count(shape)
        return 4 * min(self.rank, *_matrix_shape(shape)) * sum(_matrix_shape(shape))

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return None if self.random_sample and not self._is_dense(shape) else self.payload_bound(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        import torch

        from compressors.kernels import buffers, threads

        buffers.check_floating(x)
        if self._is_dense(x.shape):
            payload = buffers.outgoing(out, 4 * x.numel(), x.device)
            buffers.write_floats(x, payload)
            return payload
        rows, columns = _matrix_shape(x.shape)
        with threads.single_thread(), torch.no_grad():
            left, right = self._factors(buffers.as_float32(x).view(rows, columns), key)
            atoms = left.shape[0]
            if atoms * (rows + columns) >= rows * columns:
                payload = buffers.outgoing(out, 4 * rows * columns, x.device)
                buffers.write_floats(left.T @ right, payload)
                return payload
            payload = buffers.outgoing(out, 4 * atoms * (rows + columns), x.device)
            buffers.write_floats(left, payload[: 4 * atoms * rows])
            buffers.write_floats(right, payload[4 * atoms * rows :])
        return payload

    def _factors(self, matrix: torch.Tensor, key: Key) -> tuple[torch.Tensor, torch.Tensor]:
        """Left (r, rows) and right (r, columns) factors of what is sent of `matrix`."""
        import numpy as np
        import torch

        from compressors.kernels import spectral
        from compressors.kernels.uniform import uniform

        is_wide = matrix.shape[0] <= matrix.shape[1]
        wide = matrix if is_wide else matrix.T.contiguous()
        found = spectral.left_vectors(wide, truncate=None if self.random_sample else self.rank)
        if found is None:
            atoms = 1 if self.random_sample else min(self.rank, wide.shape[0])
            short, long = (torch.full((atoms, size), math.nan) for size in wide.shape)
        else:
            vectors, sigma = found
            p = np.ones(min(self.rank, len(sigma)))
            kept = np.arange(len(p))
            if self.random_sample:
                p = spectral.keep_probabilities(sigma, self.rank if self.budget is None else self.budget)
                kept = np.flatnonzero(uniform(key.bits(), len(p)) < p)
            short = torch.from_numpy(vectors[:, kept].T.astype(np.float32, order="C"))
            long = short @ wide
            long /= torch.from_numpy(p[kept, None].astype(np.float32))
        return (short, long) if is_wide else (long, short)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        from compressors.kernels import buffers, threads

        payload = buffers.incoming(payload, self.payload_size(out.shape))
        rows, columns = _matrix_shape(out.shape)
        out = out.detach()
        values = buffers.read_floats(payload) if payload.numel() % 4 == 0 else None
        if values is not None and len(values) == rows * columns:
            out.add_(values.view(out.shape), alpha=weight)
            return
        atoms, rest = divmod(payload.numel(), 4 * (rows + columns))
        if values is None or rest or atoms * (rows + columns) >= rows * columns:
            raise CorruptPayload(f"{payload.numel()} bytes are no number of atoms of a {rows} x {columns} matrix")
        left = values[: atoms * rows].view(atoms, rows)
        right = values[atoms * rows :].view(atoms, columns)
        with threads.single_thread():
            if buffers.is_plain(out):
                out.view(rows, columns).addmm_(left.T, right, alpha=weight)
            else:
                out.add_((left.T @ right).view(out.shape), alpha=weight)

    def warm_up(self) -> None:
        import torch

        from compressors.kernels import spectral, uniform  # noqa: F401  (imported now rather than in the first step)

        spectral.left_vectors(torch.eye(8), None)


def _matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """(first dimension, product of the others)."""
    return (shape[0] if shape else 1, element_count(shape[1:]))
