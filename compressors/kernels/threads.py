"""The same bytes whatever the number of threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Run torch's linear algebra on the calling thread.

    A BLAS that splits a sum between threads rounds it differently, and eigenvectors turn with the
    last bit: without this, a payload would depend on how many cores a worker happens to own.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
