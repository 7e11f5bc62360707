"""Sums: the same bits from every implementation, and right."""

from __future__ import annotations

import math

import pytest

from compressors.conformance.cases import draw_gaussian
from compressors.kernels import backend


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 4095, 4096, 4097, 70_001])
def test_kernel_and_reference_give_the_same_sums(count: int) -> None:
    x = draw_gaussian((count,))
    found = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            found.append(backend.load("sums", "cpu").moments(x))
    assert found[0] == found[1]
    exact = [math.fsum(values.tolist()) for values in (x.double(), x.double().abs(), x.double().square())]
    assert found[0] == pytest.approx(exact, rel=1e-12, abs=1e-9)


def test_totals_of_many_chunks_are_summed_by_the_same_rule() -> None:
    x = draw_gaussian((4096 * 4096 + 5,))
    with backend.use("torch"):
        plain = backend.load("sums", "cpu").moments(x)
    assert backend.load("sums", "cpu").moments(x) == plain


def test_a_nan_is_seen() -> None:
    x = draw_gaussian((5000,))
    x[4097] = math.nan
    assert all(math.isnan(value) for value in backend.load("sums", "cpu").moments(x))
