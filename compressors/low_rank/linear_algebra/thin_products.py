"""The arithmetic of PowerSGD: products of a gradient with thin factors, and orthonormal bases.

A factor of rank r is kept as r rows, (r, rows) or (r, columns): the products then run along the rows of the
gradient, and a basis is made orthonormal along contiguous memory. A tensor is a matrix with `columns` columns
whose last row may be incomplete, as if padded with zeros; nothing is copied for that. On the CPU all
this has kernels (`kernels.cpu.powersgd`), elsewhere the linear algebra library of the device does it.
"""

from __future__ import annotations

import math
from typing import Any

from compressors.kernels import backend
from compressors.kernels.uniform import uniform
from compressors.lazy import np, torch

_NOISE = 1e-7
_IN_THE_SPAN = 0.1  # of a unit vector that had been made orthogonal to others: then it was made of rounding


def products(device: torch.device) -> Any:
    """Return the module or class with the products, `orthonormal` and `householder` for tensors on `device`."""
    kernels = backend.load("powersgd", device)
    if device.type == "cpu" and backend.used["powersgd"] != "triton":
        return kernels
    backend.used["powersgd"] = "torch"
    return Library


def find_grouped(device: torch.device) -> Any:
    """Return the module with kernels that take all units of a step at once; None if there is none for `device`."""
    kernels = backend.load("powersgd", device)
    return kernels if backend.used["powersgd"] == "triton" else None


def _split(x: torch.Tensor, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split `x` (n,) into its complete rows, as a matrix, and the elements of an incomplete last row."""
    whole = x.numel() // columns * columns
    return x[:whole].view(-1, columns), x[whole:]


class Library:
    """Products and orthonormal bases by torch's linear algebra."""

    @staticmethod
    def multiply_left(x: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        """Compute out (r, rows) = (M Q)^T for the matrix M in `x` (n,) and Q^T = `right` (r, columns)."""
        body, tail = _split(x, right.shape[1])
        if not tail.numel():
            torch.mm(right, body.T, out=out)
            return
        out[:, : len(body)] = right @ body.T
        out[:, len(body)] = right[:, : len(tail)] @ tail

    @staticmethod
    def multiply_right(x: torch.Tensor, left: torch.Tensor, out: torch.Tensor) -> None:
        """Compute out (r, columns) = (M^T P)^T for the matrix M in `x` (n,) and P^T = `left` (r, rows)."""
        body, tail = _split(x, out.shape[1])
        torch.mm(left[:, : len(body)], body, out=out)
        if tail.numel():
            out[:, : len(tail)] += torch.outer(left[:, len(body)], tail)

    @staticmethod
    def add_product(left: torch.Tensor, right: torch.Tensor, weight: float, out: torch.Tensor) -> None:
        """Compute out (n,) += weight * P Q^T, as elements of the matrix."""
        body, tail = _split(out, right.shape[1])
        body.addmm_(left[:, : len(body)].T, right, alpha=weight)
        if tail.numel():
            tail.add_(left[:, len(body)] @ right[:, : len(tail)], alpha=weight)

    @staticmethod
    def orthonormal(vectors: torch.Tensor) -> torch.Tensor:
        """Make the rows of matrices orthonormal like `kernels.reference.powersgd.orthonormal`, but with sums in any
        order.
        """
        lengths = vectors.new_empty(vectors.shape[:2], dtype=torch.float64)
        for row in range(vectors.shape[1]):
            one, before = vectors[:, row : row + 1], vectors[:, :row]
            lengths[:, row] = _normalise(one)
            for _ in range(2 if row else 0):
                one.baddbmm_(torch.bmm(one, before.mT), before, alpha=-1.0)
                remaining = _normalise(one)
                lengths[:, row] *= remaining
            if row:
                lost = remaining < _IN_THE_SPAN
                one.masked_fill_(lost[:, None, None], 0.0)
                lengths[:, row].masked_fill_(lost, 0.0)
        return lengths

    @staticmethod
    def householder(vectors: torch.Tensor) -> None:
        """Make the rows of matrices orthonormal like `kernels.reference.powersgd.householder`, up to signs.

        Cholesky QR, in float64 and twice, takes a few products, where reflections take a kernel for each row. Fixed
        noise, too small for float32, is added to the rows: it is what makes vectors of dependent rows and of zeros.
        """
        rows = vectors.double()
        length = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
        rows = rows / torch.where(length > 0, length, 1.0)
        number = torch.arange(1, 1 + rows[0].numel(), dtype=torch.float64, device=rows.device).view(rows.shape[1:])
        rows += _NOISE / math.sqrt(rows.shape[2]) * torch.sin(number * number)
        for shift in (10.0 * _NOISE**2, 0.0):
            products = rows @ rows.mT
            products.diagonal(dim1=1, dim2=2).add_(shift)
            factor, _ = torch.linalg.cholesky_ex(products)
            rows = torch.linalg.solve_triangular(factor, rows, upper=False)
        vectors.copy_(rows)


def _normalise(vectors: torch.Tensor) -> torch.Tensor:
    """Divide the rows (b, 1, n) by their norms and return the norms, (b,); zeros stay zeros, a NaN or Inf makes all
    NaN."""
    norm = torch.linalg.vector_norm(vectors, dim=2, keepdim=True, dtype=torch.float64)
    vectors /= (norm + (norm - norm)).masked_fill_(norm == 0, 1.0).float()  # Inf - Inf is NaN
    return norm[:, 0, 0]


def orthonormal(vectors: torch.Tensor, epsilon: float = 0.0) -> torch.Tensor:
    """Make the rows of every matrix of `vectors` (b, r, n), r <= n, orthonormal, in place, one after the other.

    A row within the span of those before it becomes zero. With `epsilon`, each row is divided by its norm + epsilon.
    Return which rows have become unit vectors, (b, r): the others are zero, or NaN if there was NaN or Inf.
    """
    lengths = products(vectors.device).orthonormal(vectors)
    if epsilon:
        vectors *= (lengths / (lengths + epsilon)).float()[:, :, None]
    return (lengths > 0) & (lengths < math.inf)


def orthonormal_by_qr(vectors: torch.Tensor) -> None:
    """Make rows orthonormal by Householder's reflections; replace dependent rows by any vectors outside their span.

    Every worker computes this itself, from the sum over all workers. So on the CPU the bits must not depend on the
    host's linear algebra library, or the workers would drift apart.
    """
    products(vectors.device).householder(vectors)


def gaussian(key: int, rank: int, size: int, device: torch.device) -> torch.Tensor:
    """Return (rank, size) standard normal float32 numbers, a function of `key` = Key.mix() (Box and Muller, 1958)."""
    pairs = (rank * size + 1) // 2
    u = uniform(key, 2 * pairs)
    radius = np.sqrt(-2.0 * np.log1p(-u[:pairs]))
    angle = (2.0 * math.pi) * u[pairs:]
    normal = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[: rank * size]
    return torch.from_numpy(normal.astype(np.float32)).view(rank, size).to(device)
