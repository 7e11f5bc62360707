"""The thin factors of a gradient's matrix: their shapes, random first factors, and orthonormal ones."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from compressors.base import count_elements
from compressors.kernels import threads
from compressors.lazy import torch
from compressors.low_rank.linear_algebra import thin_products
from compressors.random_key import Key, splitmix64

Factors = tuple[tuple[int, int], tuple[int, int]]
"""The shapes of both factors of a matrix, (r, rows) and (r, columns)."""


class Factored:
    """A method that sends thin factors of matrices, whose shapes depend on the shape of the tensor only."""

    @abstractmethod
    def find_factors(self, shape: Sequence[int]) -> Factors | None:
        """Return the shapes of the factors of a tensor of `shape`; None if it is sent dense."""

    def get_factors(self, shape: Sequence[int]) -> Factors | None:
        """Return what `find_factors` has found for the shape; every step needs it many times."""
        key = tuple(shape)
        if key not in self._factors_by_shape:
            self._factors_by_shape[key] = self.find_factors(key)
        return self._factors_by_shape[key]

    @functools.cached_property
    def _factors_by_shape(self) -> dict[tuple[int, ...], Factors | None]:
        return {}


def find_matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return the numbers of rows and columns of a tensor (d0, d1, ...) as a matrix (d0, d1 * ...)."""
    return (shape[0] if shape else 1, count_elements(shape[1:]))


def draw(factor: torch.Tensor, key: Key, number: int = 0) -> torch.Tensor:
    """Return Gaussian numbers for `factor` (r, n), the same on all workers; `number` distinguishes draws of a step."""
    rank, size = factor.shape
    return thin_products.gaussian(splitmix64(key.share().mix() ^ number), rank, size, factor.device)


def make_orthonormal(stack: torch.Tensor, keys: Sequence[Key], number: int) -> None:
    """Make the rows of every factor in `stack` (b, r, n) orthonormal; draw dependent, zero and NaN rows anew.

    Args:
        keys: the key of each factor.
        number: distinguishes the draws of a step, as in `draw`.
    """
    kernels = thin_products.find_grouped(stack.device)
    if kernels is not None and stack.shape[1] <= kernels.MOST_VECTORS and are_of_one_step(keys):
        vectors = kernels.list_vectors(*stack.shape, [key.unit for key in keys])
        seed, step = keys[0].seed, keys[0].step
        kernels.orthonormal(stack, kernels.plan(vectors, stack.device), 0, draw=(seed, step, number))
        return
    live = thin_products.orthonormal(stack)
    if live.all():
        return
    for factor, alive, key in zip(stack, live, keys, strict=True):
        if not alive.all():
            factor.copy_(torch.where(alive[:, None], factor, draw(factor, key, number)))
            thin_products.orthonormal(factor[None])


def are_of_one_step(keys: Sequence[Key]) -> bool:
    """Tell whether keys differ only in their units and workers."""
    return len({(key.seed, key.step) for key in keys}) == 1


@contextlib.contextmanager
def calculating() -> Iterator[None]:
    """Compute within the block with one thread and without gradients; close the block before each communication."""
    with threads.single_thread(), torch.no_grad():
        yield
