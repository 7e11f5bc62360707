"""Low rank: the gradient of a layer as a few pairs of vectors."""

from __future__ import annotations

import dataclasses
import importlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from compressors.base import EXACT, Compressor, CorruptPayload, Law, count_elements
from compressors.kernels import backend, buffers, threads
from compressors.kernels.uniform import uniform
from compressors.lazy import np, npt, torch
from compressors.low_rank.linear_algebra import gram_svd
from compressors.message import Decode, Message
from compressors.random_key import Key
from gradsweep.options.parameters import integer, number


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return the rows and columns of a tensor's matrix: its first dimension, and the product of the others."""
    return (shape[0] if shape else 1, count_elements(shape[1:]))


@dataclasses.dataclass(frozen=True)
class Spectral(Compressor):
    """The base class of methods that send some atoms sigma_i u_i v_i^T of the singular value decomposition.

    A tensor of shape (d0, d1, ...) is taken as the matrix (d0, d1 * ...). Subclasses choose the atoms to send.

    1-D tensors, and matrices whose expected factors would not be smaller than the matrix, are sent dense.
    The shape alone decides that: a decision on the sampled outcome would be a bias.

    Payload, everything little-endian float32, for r kept atoms of a (rows, columns) matrix:
        r x rows left factors, then r x columns right factors, if r * (rows + columns) < rows * columns;
        else the dense matrix, rows * columns. The length determines which, and r: there is no header.

    A matrix with NaN or Inf in it arrives as NaN in every element, a dense tensor as it is. float64 is
    rounded to float32 first.
    """

    needs_matrix: ClassVar[bool] = True

    @abstractmethod
    def mean_atoms(self, rows: int, columns: int) -> float:
        """Return the expected number of atoms sent of a matrix whose singular values are all above zero."""

    @property
    @abstractmethod
    def leading(self) -> int | None:
        """The number of largest atoms that are sent; None if the atoms are drawn among all."""

    @abstractmethod
    def choose(self, sigma: npt.NDArray[np.float64], key: Key) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the numbers of the atoms to send and their divisors; `sigma` is in descending order."""

    def is_dense(self, shape: Sequence[int]) -> bool:
        """Tell whether tensors of this shape are sent dense, without factors."""
        rows, columns = matrix_shape(shape)
        return len(shape) < 2 or self.mean_atoms(rows, columns) * (rows + columns) >= rows * columns

    def payload_bound(self, shape: Sequence[int]) -> int:
        if self.is_dense(shape) or self.leading is None:
            return 4 * count_elements(shape)
        rows, columns = matrix_shape(shape)
        return 4 * min(self.leading, rows, columns) * (rows + columns)

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return None if self.leading is None and not self.is_dense(shape) else self.payload_bound(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        buffers.check_floating(x)
        if self.is_dense(x.shape):
            payload = buffers.prepare(out, 4 * x.numel(), x.device)
            buffers.write_floats(x, payload)
            return buffers.deliver(payload, out)
        rows, columns = matrix_shape(x.shape)
        with threads.single_thread(), torch.no_grad():
            left, right = self.factors(buffers.as_float32(x).view(rows, columns), key)
            atoms = left.shape[0]
            if atoms * (rows + columns) >= rows * columns:
                payload = buffers.prepare(out, 4 * rows * columns, x.device)
                buffers.write_floats(left.T @ right, payload)
                return buffers.deliver(payload, out)
            payload = buffers.prepare(out, 4 * atoms * (rows + columns), x.device)
            buffers.write_floats(left, payload[: 4 * atoms * rows])
            buffers.write_floats(right, payload[4 * atoms * rows :])
        return buffers.deliver(payload, out)

    def factors(self, matrix: torch.Tensor, key: Key) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the left (r, rows) and right (r, columns) factors of the atoms of `matrix` that are sent.

        The factors of the shorter side have the norm 1.
        """
        is_wide = matrix.shape[0] <= matrix.shape[1]
        wide = matrix if is_wide else matrix.T.contiguous()
        found = gram_svd.decompose(wide, self.leading)
        if found is None:
            atoms = 1 if self.leading is None else min(self.leading, wide.shape[0])
            short, long = (torch.full((atoms, size), math.nan, device=wide.device) for size in wide.shape)
        else:
            kept, divisors = self.choose(found.sigma, key)
            short = torch.from_numpy(found.vectors(kept).astype(np.float32, order="C")).to(wide.device)
            long = short @ wide
            long /= torch.from_numpy(divisors[:, None].astype(np.float32)).to(wide.device)
        return (short, long) if is_wide else (long, short)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_size(out.shape))
        rows, columns = matrix_shape(out.shape)
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
        add_product(left, right, out, weight)

    def build_decoder(self, out: torch.Tensor, *, replace: bool = False) -> Decode:
        plainly = super().build_decoder(out, replace=replace)
        if out.device.type != "cpu" or not buffers.is_plain(out):
            return plainly
        rows, columns = matrix_shape(out.shape)
        out = out.detach()
        matrix, shape, strides = out.view(rows, columns), out.shape, out.stride()
        dense, atom, wanted = 4 * rows * columns, max(1, 4 * (rows + columns)), self.payload_size(out.shape)

        def decode(message: Message, start: int, size: int, key: Key, weight: float) -> None:
            place, atoms = message.place(start), size // atom
            is_whole = size == dense or (size == atoms * atom and size < dense)
            if place is None or not is_whole or wanted not in (None, size):
                plainly(message, start, size, key, weight)
                return
            if replace:
                out.zero_()
            floats = message.floats
            assert floats is not None
            if size == dense:
                out.add_(floats.as_strided(shape, strides, place), alpha=weight)
                return
            left = floats.as_strided((rows, atoms), (1, rows), place)
            right = floats.as_strided((atoms, columns), (columns, 1), place + atoms * rows)
            with threads.single_thread():
                matrix.addmm_(left, right, alpha=weight)

        return decode

    def load_modules(self) -> None:
        if backend.select_on_host() == "numba":
            importlib.import_module("compressors.low_rank.linear_algebra.tridiagonal")

    def warm_up_libraries(self, device: torch.device | str) -> None:
        gram_svd.decompose(torch.eye(8, device=device), None)


def add_product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, weight: float) -> None:
    """Compute out += weight * left^T right, for the factors (r, rows) and (r, columns) of a tensor with the shape of
    `out`.
    """
    with threads.single_thread():
        if buffers.is_plain(out):
            out.view(left.shape[1], right.shape[1]).addmm_(left.T, right, alpha=weight)
        else:
            out.add_((left.T @ right).view(out.shape), alpha=weight)


@dataclasses.dataclass(frozen=True)
class SampledSpectral(Spectral):
    """Atoms kept at random, independently of each other, with probabilities in proportion to their size."""

    rank: int = integer(3, low=1)
    budget: float | None = number(None, low=0, above=True, optional=True)

    def mean_atoms(self, rows: int, columns: int) -> float:
        return min(self.rank if self.budget is None else self.budget, rows, columns)

    @property
    def leading(self) -> None:
        return None

    def choose(self, sigma: npt.NDArray[np.float64], key: Key) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        p = gram_svd.keep_probabilities(sigma, self.rank if self.budget is None else self.budget)
        kept = np.flatnonzero(uniform(key.mix(), len(p)) < p)
        return kept, p[kept]

    def sampling_omega(self, rows: int, columns: int) -> float:
        """Return omega in E ||Q(x) - x||^2 <= omega ||x||^2 for atoms that are sent exactly."""
        # p_i >= s sigma_i / sum(sigma), so E ||Q(x)||^2 <= sum(sigma)^2 / s <= min(rows, columns) ||x||^2 / s
        return min(rows, columns) / self.mean_atoms(rows, columns) - 1.0


@dataclasses.dataclass(frozen=True)
class SVD(SampledSpectral):
    """Spectral sparsification (Wang et al., "ATOMO", NeurIPS 2018, Algorithm 1 on singular values).

    Each atom sigma_i u_i v_i^T is kept with the probability p_i = min(1, c * sigma_i), where c makes the
    expected number of atoms the budget (`budget`, or `rank` where that is null), and is divided by p_i:
    E[Q(x)] = x, with the least variance for that budget.

    Payload: see `Spectral`. A draw may keep more atoms than are worth it; then their product is sent dense,
    which is the same Q(x). Unbiased up to the rounding of float32 (some 1e-6 of the largest sigma).
    """

    name: ClassVar[str] = "svd"
    aliases: ClassVar[tuple[str, ...]] = ("atomo_svd", "spectral_atomo")
    paper: ClassVar[str] = "Wang et al., ATOMO, NeurIPS 2018"

    def law(self, shape: Sequence[int]) -> Law:
        if self.is_dense(shape):
            return EXACT
        return Law(unbiased=True, omega=self.sampling_omega(*matrix_shape(shape)))


@dataclasses.dataclass(frozen=True)
class TruncatedSVD(Spectral):
    """The `rank` largest atoms of the singular value decomposition, as they are: the best approximation of that
    rank (Eckart and Young, Psychometrika 1936), but not unbiased. Without a memory it never sends the rest.

    Payload: see `Spectral`, with min(rank, rows, columns) atoms for every matrix.
    """

    name: ClassVar[str] = "truncated_svd"
    paper: ClassVar[str] = "Eckart and Young, Psychometrika 1936"

    rank: int = integer(3, low=1)

    def mean_atoms(self, rows: int, columns: int) -> int:
        return min(self.rank, rows, columns)

    @property
    def leading(self) -> int:
        return self.rank

    def choose(self, sigma: npt.NDArray[np.float64], key: Key) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        count = min(self.rank, len(sigma))
        return np.arange(count), np.ones(count)

    def law(self, shape: Sequence[int]) -> Law:
        if self.is_dense(shape):
            return EXACT
        # at least rank of min(rows, columns) equal squares of singular values
        return Law(delta=self.rank / min(matrix_shape(shape)))
