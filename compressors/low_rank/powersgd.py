"""PowerSGD: the workers' mean gradient as a product of two thin matrices, by one step of subspace iteration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Sequence
from typing import ClassVar

from compressors.base import EXACT, Cooperative, Law, Reduction, Sum, Swap, count_elements
from compressors.kernels import buffers
from compressors.lazy import torch
from compressors.low_rank.linear_algebra import thin_products
from compressors.low_rank.linear_algebra.factors import (
    Factored,
    Factors,
    calculating,
    draw,
    find_matrix_shape,
)
from compressors.low_rank.linear_algebra.work import Work, add_together, arrange, copy_all
from compressors.random_key import Key
from compressors.unit_state import Stateful
from gradsweep.options.parameters import InvalidParameter, boolean, choice, integer, number


@dataclasses.dataclass(frozen=True)
class PowerSGD(Factored, Cooperative, Stateful):
    """Low rank by power iteration (Vogels, Karimireddy and Jaggi, "PowerSGD", NeurIPS 2019, Algorithm 1).

    A tensor of shape (d0, d1, ...) is the matrix M (d0, d1 * ...) of the worker. With Q of the last step:

        P = sum of M Q over the workers;  P = orthonormal basis of its columns
        Q = mean of M^T P over the workers;  the mean gradient is taken to be P Q^T

    which is the projection of the mean of the M onto the columns of P. `iterations` repeats both lines in a
    step. The first Q is Gaussian and the same on all workers; so is every one without `warm_start`. What is
    left of a Q that is zero or not finite is drawn anew, so that a step with NaN or with a gradient of
    zeros has no effect on the steps after it.

    With one worker Q(x) is a projection of x, so what is lost is never more than x: omega = 1. A part of x is sure
    to arrive only if Q is drawn in every step and epsilon is zero: then delta is stated, too.

    1-D tensors, matrices that would not become `min_compression_rate` times smaller, and everything in
    steps before `start_step` (the first step is 1) are summed as they are. All units of a call travel
    together: dense tensors and P in the first round, Q in the second.

    `error` says what a memory takes for sent: `mean` is P Q^T as above, so that M - P Q^T is kept, as in the
    authors' code and torch's hook; `local` is P (M^T P)^T, what this worker has contributed, as in
    the paper's Algorithm 2. Over all workers both keep the same in sum.

    Bases are found by Gram-Schmidt, repeated, or by Householder's reflections (`qr`), on every worker from the same
    sums, and with the same bits whatever processor it has. `epsilon` is added to the norm that a column of P is
    divided by, as in torch's hook; at zero nothing is lost of small gradients, and columns of zeros stay zeros.

    Payload, little-endian float32, for r = min(rank, rows, columns):
        r x rows: P, one column after the other; r x columns: Q, likewise; or all elements of a dense tensor.
    The shape and the step of the key say which: there is no header.

    A NaN or Inf in the matrix of one worker arrives as NaN in every element of the mean (also where a product
    exceeds float32: elements beyond some 1e37); a dense tensor arrives as it is. float64 is rounded to float32.
    """

    name: ClassVar[str] = "powersgd"
    paper: ClassVar[str] = "Vogels et al., PowerSGD, NeurIPS 2019"
    reported: ClassVar[str] = "ImageNet, rank 4, batch of 8K: 72.5 % (76 %); a user, issue 1 of epfml/powersgd"
    needs_matrix: ClassVar[bool] = True
    shared_draws: ClassVar[bool] = True
    remembers: ClassVar[tuple[str, ...]] = ("q",)

    rank: int = integer(2, low=1)
    warm_start: bool = boolean(True)
    iterations: int = integer(1, low=1, high=100)
    min_compression_rate: float = number(2.0, low=1)
    start_step: int = integer(0, low=0)
    orthogonalisation: str = choice("gram_schmidt", "gram_schmidt", "qr")
    epsilon: float = number(0.0, low=0, high=10**6)
    error: str = choice("mean", "mean", "local")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon and self.orthogonalisation != "gram_schmidt":
            raise InvalidParameter("epsilon", self.epsilon, "0 with orthogonalisation=qr")

    @property
    def smallest(self) -> float:  # type: ignore[override]
        """The size of elements at which a column of P loses 0.1 % of its length, by epsilon / norm."""
        return 1000.0 * self.epsilon

    def matrix_shape(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the numbers of rows and columns of the matrix to which a tensor of `shape` is reshaped."""
        return find_matrix_shape(shape)

    def law(self, shape: Sequence[int]) -> Law:
        factors = self._factors(shape)
        if factors is None:
            return EXACT
        # M - P P^T M is no longer than M, whatever P is: its columns are orthonormal or zero, with epsilon shorter.
        # With one worker this is all that happens, in every step; dense ones are exact.
        if self.warm_start or self.epsilon:  # a Q of the past may be orthogonal to the rows of M: no contraction
            return Law(omega=1.0)
        # Let B = M^T M, k = min(rows, columns) >= its rank, and G an orthonormal basis, within the row space of M, of
        # the projection of the random Q. What P P^T M has of the energy is tr((G^T B G)^-1 G^T B^2 G), and
        # G^T B^2 G >= (G^T B G)^2, so it is at least tr(G^T B G); G is isotropic: E = rank / k tr(B) at least.
        (rank, rows), (_, columns) = factors
        return Law(omega=1.0, delta=rank / min(rows, columns))

    def is_exact(self, shape: Sequence[int], key: Key) -> bool:
        return self._factors(shape, key.step) is None

    def _factors(self, shape: Sequence[int], step: int | None = None) -> Factors | None:
        """Return the shapes (r, rows) and (r, columns) of the factors; None if this step sends the tensor dense."""
        if step is not None and step < self.start_step:
            return None
        return self.get_factors(shape)

    def find_factors(self, shape: Sequence[int]) -> Factors | None:
        rows, columns = self.matrix_shape(shape)
        rank = min(self.rank, rows, columns)
        if rank * (rows + columns) * self.min_compression_rate >= count_elements(shape):
            return None
        return (rank, rows), (rank, columns)

    def _size(self, shape: Sequence[int], step: int | None = None) -> int:
        factors = self._factors(shape, step)
        if factors is None:
            return 4 * count_elements(shape)
        (rank, rows), (_, columns) = factors
        return 4 * rank * (rows + columns)

    def payload_bound(self, shape: Sequence[int]) -> int:
        return self._size(shape, -1 if self.start_step else None)

    def payload_size(self, shape: Sequence[int]) -> int | None:
        size = self._size(shape)
        return size if size == self.payload_bound(shape) else None

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        buffers.check_floating(x)
        payload = buffers.prepare(out, self._size(x.shape, key.step), x.device)
        return buffers.deliver(payload.copy_(self.reduce_alone([(x, key)])[0].own), out)

    def rounds(
        self, batch: Sequence[tuple[torch.Tensor, Key]], worker: int, workers: int
    ) -> Generator[Sum | Swap, torch.Tensor, list[Reduction]]:
        with calculating():
            units, keys = [buffers.as_float32(x) for x, _ in batch], [key for _, key in batch]
            work = arrange(units, [self._factors(x.shape, key.step) for x, key in batch], keys)
            self._start(work, keys)
        if not work.low and work.first.numel():
            yield Sum(work.first)
        for iteration in range(self.iterations if work.low else 0):
            with calculating():
                work.make_q_orthonormal(keys, 1 + iteration)
                work.compute_p()
            yield Sum(work.all_p if iteration else work.first)
            with calculating():
                if self.orthogonalisation == "qr":
                    work.make_p_orthonormal_by_qr()
                else:
                    work.make_p_orthonormal(self.epsilon)
                work.compute_q()
                local = work.copy_q() if self.error == "local" else work.q
            yield Sum(work.all_q)
            with calculating():
                if workers > 1:
                    work.all_q.div_(workers)
        with calculating():
            if self.warm_start:
                self.unit_tensors.update({keys[number].unit: {"q": q} for number, q in work.q.items()})
            means = work.join(work.q)
            own = work.join(local) if self.error == "local" and work.low else means
            dense = work.view_dense()
            return [
                Reduction(units[number].view(torch.uint8), dense[number], 1.0 / workers)
                if number in dense
                else Reduction(own[number], means[number])
                for number in range(len(batch))
            ]

    def _start(self, work: Work, keys: Sequence[Key]) -> None:
        """Set every Q to the initial one of a step: the previous step's, or random numbers that all workers share."""
        before: dict[int, torch.Tensor] = {}
        for place, q in work.q.items():
            last = self.unit_tensors.get(keys[place].unit, {}).get("q") if self.warm_start else None
            before[place] = last if last is not None and last.shape == q.shape else draw(q, keys[place])
        copy_all(list(work.q.values()), list(before.values()))

    def decompress_together(
        self, reductions: Sequence[Reduction], units: Sequence[tuple[torch.Tensor, Key]], *, replace: bool = False
    ) -> None:
        factors = [self._factors(out.shape, key.step) for out, key in units]
        for reduction, (out, key) in zip(reductions, units, strict=True):
            buffers.check_size(reduction.mean.numel(), self._size(out.shape, key.step))
        outs = [out.detach() for out, _ in units]
        if not add_together(reductions, outs, factors, replace=replace):
            super().decompress_together(reductions, units, replace=replace)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self._size(out.shape, key.step))
        values = buffers.read_floats(payload)
        factors = self._factors(out.shape, key.step)
        if factors is None:
            out.detach().add_(values.view(out.shape), alpha=weight)
            return
        (rank, rows), _ = factors
        left, right = values[: rank * rows].view(rank, rows), values[rank * rows :].view(factors[1])
        with buffers.accumulator(out) as total:
            thin_products.products(out.device).add_product(left, right, weight, total)

    def kernel_modules(self) -> tuple[str, ...]:
        return ("powersgd",)


@dataclasses.dataclass(frozen=True)
class BatchedPowerSGD(PowerSGD):
    """PowerSGD of a whole unit as one square matrix: torch's `batched_powerSGD_hook` (PyTorch 1.8, 2021).

    The elements of a unit of any shape, in their order, fill the rows of a matrix of ceil(sqrt(n)) columns; what
    the last row lacks is zero, and rows of nothing but zeros do not travel. Everything else, the payload too,
    is as in PowerSGD for that matrix. Fewer and larger products, but the rows have nothing to do
    with the layers, and so less of the gradient fits into the rank.
    """

    name: ClassVar[str] = "batched_powersgd"
    paper: ClassVar[str] = "Vogels et al., PowerSGD, NeurIPS 2019; PyTorch's batched_powerSGD_hook"
    needs_matrix: ClassVar[bool] = False

    def matrix_shape(self, shape: Sequence[int]) -> tuple[int, int]:
        count = count_elements(shape)
        columns = math.isqrt(count - 1) + 1 if count else 1
        return -(-count // columns), columns
