"""Spectral sparsification: the decomposition against torch.linalg.svd in float64, the probabilities
against their definition, the payload's forms."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload, build
from compressors.conformance.cases import compute_critical_z, draw_gaussian, make_key
from compressors.kernels import backend
from compressors.kernels.warm_up import warm_up
from compressors.low_rank.linear_algebra import gram_matrix, gram_svd, tridiagonal
from compressors.low_rank.svd import SVD, Spectral, TruncatedSVD
from tests.conftest import ROOT

SHAPES = [(1, 1), (3, 200), (40, 40), (64, 150), (65, 150), (100, 260), (130, 130)]


def with_spectrum(shape: tuple[int, int], sigma: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """A float32 matrix with these singular values, up to rounding."""
    rows, columns = shape
    u, _ = torch.linalg.qr(draw_gaussian((rows, len(sigma)), seed).double())
    v, _ = torch.linalg.qr(draw_gaussian((columns, len(sigma)), seed + 1).double())
    return ((u * sigma.double()) @ v.T).float()


def spectra(count: int) -> dict[str, torch.Tensor]:
    index = torch.arange(count, dtype=torch.float64)
    return {
        "power law": 1 / (1 + index),
        "ill-conditioned": 10 ** (-12 * index / max(count - 1, 1)),
        "one": (index == 0).double(),
        "low rank": (index < max(1, count // 4)).double() * (2 - index / count),
        "all equal": torch.ones(count),
        "pairs": 1 / (1 + index // 2),
        "huge": 1e30 / (1 + index),
        "tiny": 1e-36 / (1 + index),
    }


SPECTRA = list(spectra(1))


# The decomposition


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_all_atoms_together_are_the_matrix(shape: tuple[int, int], spectrum: str) -> None:
    """What makes the method unbiased, without drawing: sum_i u_i u_i^T A = A over the atoms that can be
    drawn at all, and a basis that is orthogonal."""
    a = with_spectrum(shape, spectra(shape[0])[spectrum])
    found = gram_svd.decompose(a, None)
    assert found is not None
    u, sigma = torch.from_numpy(found.vectors(np.arange(shape[0])).T.astype(np.float64)), found.sigma
    assert (u.T @ u - torch.eye(shape[0])).abs().max() < 5e-6
    wide = a.double()
    drawable = u[:, torch.from_numpy(sigma > 0)]
    assert torch.linalg.norm(drawable @ (drawable.T @ wide) - wide) < 5e-6 * torch.linalg.norm(wide)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_singular_values_are_those_of_torch(shape: tuple[int, int], spectrum: str) -> None:
    """To 0.1 % of the largest (the level of float32 rounding of a Gram matrix), where a draw does with
    that; noise takes no more than a twentieth of their sum."""
    a = with_spectrum(shape, spectra(shape[0])[spectrum])
    found = gram_svd.decompose(a, None)
    assert found is not None
    exact = torch.linalg.svdvals(a.double()).numpy()
    assert (np.diff(found.sigma) <= 0).all()
    assert np.abs(found.sigma - exact).max() < 2e-3 * exact[0]
    assert found.sigma.sum() < 1.06 * exact.sum()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("transposed", [False, True])
def test_truncation_is_the_best_of_its_rank(shape: tuple[int, int], spectrum: str, transposed: bool) -> None:
    """Eckart and Young: no matrix of that rank is nearer; the error is within 1 % of the optimum, or
    rounding."""
    for rank in (1, 3):
        a = with_spectrum(shape, spectra(shape[0])[spectrum])
        a = a.T.contiguous() if transposed else a
        compressor = TruncatedSVD(rank=rank)
        sent = compressor.decompress(compressor.compress(a, make_key()), a, make_key())
        error = float(torch.linalg.norm(a.double() - sent.double()))
        sigma = torch.linalg.svdvals(a.double())
        best = float(torch.linalg.norm(sigma[rank:])) if rank * sum(shape) < math.prod(shape) else 0.0
        assert error <= 1.01 * best + 2e-6 * float(sigma[0])


def test_float64_takes_over_where_float32_drowns(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.dtype] = []
    dense, some = torch.linalg.eigh, tridiagonal.make_tridiagonal

    def spy(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        used.append(matrix.dtype)
        return dense(matrix)

    def spy_on_some(matrix: torch.Tensor, **options: bool) -> tridiagonal.Tridiagonal | None:
        used.append(matrix.dtype)
        return some(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", spy)
    monkeypatch.setattr(tridiagonal, "make_tridiagonal", spy_on_some)
    shape = (100, 260)
    both = [torch.float32, torch.float64]
    for spectrum, truncate, expected in [
        ("power law", None, both[:1]),
        ("power law", 3, both[:1]),
        ("all equal", 3, both[:1]),
        ("one", None, both),
        ("one", 3, both),
        ("low rank", 30, both),
        ("huge", None, both[1:]),
        ("tiny", 3, both[1:]),
    ]:
        used.clear()
        gram_svd.decompose(with_spectrum(shape, spectra(100)[spectrum]), truncate)
        assert used == expected, (spectrum, truncate)


@pytest.mark.parametrize("name", ["svd", "truncated_svd", "qsvd"])
def test_kernels_torch_leaves_matrices_of_any_size_to_lapack(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so; the same matrices arrive, up to rounding."""
    a = with_spectrum((100, 260), spectra(100)["power law"])
    compressor = build(name)

    def sent(kernels: str) -> tuple[torch.Tensor, str]:
        with backend.record_used() as used, backend.use(kernels):
            warm_up(compressor)
            found = [compressor.decompress(compressor.compress(x, make_key()), x, make_key()) for x in (a, a[:8])]
        return found[0], used["spectral"]

    (fast, by_numba), (plain, by_torch) = sent("auto"), sent("torch")
    assert (by_numba, by_torch) == ("numba", "torch")
    if name != "qsvd":  # whose levels are drawn: a bit more or less may take another one
        assert torch.linalg.norm(fast - plain) < 0.01 * torch.linalg.norm(plain)  # probabilities, too, are rounded
    monkeypatch.setattr(tridiagonal, "make_tridiagonal", lambda matrix: pytest.fail("not torch"))
    sent("torch")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["svd", "truncated_svd", "qsvd"])
def test_without_numba_matrices_of_any_size_are_decomposed(name: str) -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import torch, compressors\n"
        "from compressors.kernels import backend\n"
        "from compressors.kernels.warm_up import warm_up\n"
        f"compressor, key = compressors.build({name!r}), compressors.Key(0, 0, 1, 0)\n"
        "x = torch.linspace(-1, 1, 100)[:, None] * torch.ones(200)\n"
        "warm_up(compressor)\n"
        "sent = compressor.decompress(compressor.compress(x, key), x, key)\n"
        "print(float((sent - x).norm() / x.norm()), set(backend.used.values()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    error, used = done.stdout.split()
    assert float(error) < (0.5 if name == "qsvd" else 1e-5) and used == "{'torch'}"


@pytest.mark.parametrize("failing", ["raises", "gives nan"])
@pytest.mark.parametrize("rows", [50, 80])
def test_a_failing_eigensolver_is_replaced(monkeypatch: pytest.MonkeyPatch, failing: str, rows: int) -> None:
    def eigh(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if failing == "raises":
            raise torch.linalg.LinAlgError("did not converge")
        return torch.full(matrix.shape[:1], math.nan), matrix

    a = draw_gaussian((rows, 120))
    for compressor in (TruncatedSVD(), SVD(budget=20.0)):
        expected = compressor.decompress(compressor.compress(a, make_key()), a, make_key())
        with monkeypatch.context() as patch:
            patch.setattr(torch.linalg, "eigh", eigh)
            patch.setattr(tridiagonal, "make_tridiagonal", lambda matrix, **options: None)
            assert torch.allclose(
                compressor.decompress(compressor.compress(a, make_key()), a, make_key()), expected, atol=1e-3
            )


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 100, 129])
def test_half_a_gram_matrix_is_enough(rows: int) -> None:
    a = draw_gaussian((rows, 150)).double()
    assert torch.allclose(gram_matrix.gram(a).tril(), (a @ a.T).tril())


# The vectors one by one


def symmetric(kind: str, count: int) -> torch.Tensor:
    """Positive semi-definite matrices with many, few or no equal eigenvalues."""
    index = torch.arange(count, dtype=torch.float64)
    basis, _ = torch.linalg.qr(draw_gaussian((count, count)).double())
    values = {
        "identity": torch.ones(count),
        "diagonal": 1 + index,
        "blocks": torch.ones(count),
        "pairs": 1 + index // 2,
        "dozens": 1 + index // 12,
        "half zero": (index >= count // 2) * (1 + index),
        "wide": 10.0 ** (-index / 8),
    }[kind].double()
    if kind in ("identity", "diagonal"):
        return torch.diag(values).float()
    if kind == "blocks":
        return torch.block_diag(*[torch.tensor([[2.0, 1.0], [1.0, 2.0]])] * (count // 2))
    return ((basis * values) @ basis.T).float()


@pytest.mark.parametrize("count", [2, 3, 4, 66, 131])
@pytest.mark.parametrize("kind", ["identity", "diagonal", "blocks", "pairs", "dozens", "half zero", "wide"])
def test_eigenvectors_found_one_by_one_are_one_basis(kind: str, count: int) -> None:
    count += count % 2 if kind == "blocks" else 0
    matrix = symmetric(kind, count)
    found = tridiagonal.make_tridiagonal(matrix)
    assert found is not None
    exact = torch.linalg.eigvalsh(matrix.double()).numpy()
    assert np.abs(found.values - exact).max() < 1e-6 * exact[-1]
    assert (found.low <= found.high).all()
    alone = np.concatenate([found.vectors(np.array([number])) for number in range(count)])
    assert np.abs(alone @ alone.T - np.eye(count)).max() < 2e-6
    assert np.abs(matrix.double().numpy() @ alone.T - alone.T * exact).max() < 2e-6 * exact[-1]
    some = np.array([count - 1, 0, count // 2, 0])
    assert np.abs(found.vectors(some) - alone[some]).max() < 1e-6, "in any order and company"
    assert found.vectors(np.array([], np.int64)).shape == (0, count)


def test_a_matrix_that_is_not_finite_has_no_eigenvectors() -> None:
    matrix = torch.eye(70)
    matrix[69, 3] = math.nan
    assert tridiagonal.make_tridiagonal(matrix) is None


# The probabilities

sigmas = st.lists(st.floats(1e-12, 1e6) | st.just(0.0), min_size=1, max_size=40).map(
    lambda values: np.array(sorted(values, reverse=True))
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(sigmas, st.floats(0.01, 50))
def test_probabilities_solve_the_water_filling(sigma: np.ndarray, budget: float) -> None:
    p = gram_svd.keep_probabilities(sigma, budget)
    count = np.count_nonzero(sigma)
    assert (p[count:] == 0).all() and (p[:count] > 0).all() and (p <= 1).all()
    assert p.sum() == pytest.approx(min(budget, count), rel=1e-9)
    free = (p < 1) & (sigma > 0)
    if free.any():  # p = c * sigma below the cap, and those at the cap would be above it
        c = (p[free] / sigma[free]).max()
        assert p[free] == pytest.approx(c * sigma[free], rel=1e-9)
        assert (c * sigma[: np.count_nonzero(p == 1)] >= 1 - 1e-9).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sigmas, st.floats(0.1, 10), st.integers(0, 2**32 - 1))
def test_no_other_probabilities_have_less_variance(sigma: np.ndarray, budget: float, seed: int) -> None:
    """The variance of Q is sum_i sigma_i^2 (1 / p_i - 1); moving budget between two atoms never lowers it."""
    sigma = sigma[sigma > 0]
    p = gram_svd.keep_probabilities(sigma, budget)
    if len(sigma) < 2:
        return
    i, j = np.random.default_rng(seed).choice(len(sigma), 2, replace=False)
    moved = 0.01 * min(1 - p[i], p[j])
    other = p.copy()
    other[i] += moved
    other[j] -= moved
    assert (sigma**2 / other).sum() >= (sigma**2 / p).sum() * (1 - 1e-12)


@pytest.mark.parametrize("budget", [0.5, 3, 7.25])
def test_the_number_of_atoms_is_the_budget(budget: float) -> None:
    """z-test over 600 draws; correct draws fail once in 10^6 runs."""
    p = gram_svd.keep_probabilities(1 / (1.0 + np.arange(50)), budget)
    shape = (50, 60)
    x = with_spectrum(shape, torch.from_numpy(1 / (1.0 + np.arange(50))))
    compressor = SVD(budget=budget)
    atoms = np.array([len(compressor.compress(x, make_key(step))) / 4 / sum(shape) for step in range(600)])
    assert abs(atoms.mean() - budget) < compute_critical_z(3) * math.sqrt((p * (1 - p)).sum() / 600)


# Payloads


def test_a_draw_that_is_larger_than_the_matrix_is_sent_dense() -> None:
    """Same product, other form; here about half of the draws keep more atoms than are worth it."""
    shape = (12, 12)
    x = with_spectrum(shape, torch.ones(12))
    compressor = SVD(budget=5.9)
    dense = 0
    for step in range(60):
        payload = compressor.compress(x, make_key(step))
        assert len(payload) <= compressor.payload_bound(shape) == 4 * 144
        sent = compressor.decompress(payload, x, make_key())
        # All sigma are 1 and all p are 5.9 / 12: what arrives is a projection, times 12 / 5.9.
        values = torch.linalg.svdvals(sent.double()) * 5.9 / 12
        atoms = int((values > 0.5).sum())
        assert torch.allclose(values[:atoms], torch.ones(atoms).double(), atol=1e-4) and (values[atoms:] < 1e-4).all()
        assert len(payload) == (4 * 24 * atoms if 24 * atoms < 144 else 4 * 144)
        dense += 24 * atoms >= 144
    assert 10 < dense < 50


@pytest.mark.parametrize(
    ("shape", "options"),
    [((50,), {}), ((1, 50), {}), ((50, 1), {}), ((6, 6), {}), ((10, 4, 1), {"rank": 5}), ((8, 8), {"budget": 4.0})],
    ids=str,
)
def test_what_factors_would_not_shrink_is_sent_dense(shape: tuple[int, ...], options: dict[str, float]) -> None:
    for method in (SVD, TruncatedSVD):
        if "budget" in options and method is TruncatedSVD:
            continue
        compressor: Spectral = method(**options)  # type: ignore[arg-type]
        x = draw_gaussian(shape)
        assert compressor.payload_size(shape) == 4 * x.numel()
        assert torch.equal(compressor.decompress(compressor.compress(x, make_key()), x, make_key()), x)


def test_the_first_dimension_is_the_rows() -> None:
    compressor = TruncatedSVD(rank=2)
    x = draw_gaussian((30, 4, 3, 3))
    assert len(compressor.compress(x, make_key())) == 4 * 2 * (30 + 36)
    sent = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    assert torch.linalg.matrix_rank(sent.view(30, 36)) == 2


@pytest.mark.parametrize("compressor", [SVD(), TruncatedSVD()], ids=["svd", "truncated_svd"])
def test_nan_reaches_every_element(compressor: Spectral) -> None:
    for bad in (math.nan, math.inf):
        x = draw_gaussian((100, 80))
        x[3, 4] = bad
        payload = compressor.compress(x, make_key())
        assert compressor.decompress(payload, x, make_key()).isnan().all()
        assert compressor.payload_size(x.shape) in (None, len(payload))


def test_lengths_that_are_no_number_of_atoms_raise() -> None:
    compressor = SVD()
    like = torch.zeros(20, 30)
    for size in (1, 4, 199, 201, 196, 4 * 600 + 4, 200 * 12, 200 * 13):
        valid = size in (200 * 12,)  # 12 atoms are exactly the dense size, and read as dense
        if valid:
            compressor.decompress(torch.zeros(size, dtype=torch.uint8), like, make_key())
        else:
            with pytest.raises(CorruptPayload):
                compressor.decompress(torch.zeros(size, dtype=torch.uint8), like, make_key())
    for atoms in range(12):
        compressor.decompress(torch.zeros(200 * atoms, dtype=torch.uint8), like, make_key())


def test_only_the_draw_is_unbiased() -> None:
    assert SVD().unbiased and not TruncatedSVD().unbiased
