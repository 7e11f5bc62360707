"""Make results independent of the number of threads."""

from __future__ import annotations

from compressors.lazy import torch


class single_thread:  # noqa: N801 - as contextlib's; a generator takes longer to enter than a small product to form
    """A context in which torch's linear algebra runs on the calling thread alone.

    A BLAS that splits a sum between threads rounds it differently, and eigenvectors change with the last bit. Without
    this, a payload would depend on the number of cores of a worker.
    """

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        if self._threads != 1:
            torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        if self._threads != 1:
            torch.set_num_threads(self._threads)
