"""Quantised singular triples: the payload taken apart by hand, the independence of the roundings, the law."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from compressors import CorruptPayload, build
from compressors.conformance.cases import compute_critical_z, draw_gaussian, make_key
from compressors.low_rank.qsvd import QSVD
from compressors.low_rank.svd import SVD

SCHEMES = {"qsgd": {"levels": 1}, "terngrad": {"bucket_size": 40}}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


@every_scheme
def test_the_payload_is_made_of_those_of_the_scheme(scheme: str) -> None:
    compressor = QSVD(budget=2.0, scheme=scheme, **SCHEMES[scheme])
    coder = build("terngrad", clip=0, bucket_size=40) if scheme == "terngrad" else build("qsgd", levels=1)
    assert compressor.coder == coder
    rows, columns = 60, 90
    x = draw_gaussian((rows, columns))
    of_left, of_right = coder.payload_bound((rows,)), coder.payload_bound((columns,))
    seen = set()
    for step in range(20):
        payload = compressor.compress(x, make_key(step))
        exact = SVD(budget=2.0).compress(x, make_key(step))
        atoms = len(exact) // (4 * (rows + columns))
        seen.add(atoms)
        assert len(payload) == atoms * (4 + of_left + of_right), "as many atoms as svd draws"
        left = exact.view(torch.float32)[: atoms * rows].view(atoms, rows)
        right = exact.view(torch.float32)[atoms * rows :].view(atoms, columns)
        expected = torch.zeros(rows, columns)
        for atom, part in enumerate(payload.view(atoms, -1) if atoms else []):
            size = float(part[:4].clone().view(torch.float32))
            assert size == pytest.approx(float(right[atom].norm()), rel=1e-5)
            u = coder.decompress(part[4 : 4 + of_left], torch.zeros(rows), make_key())
            v = coder.decompress(part[4 + of_left :], torch.zeros(columns), make_key())
            # every element is rounded to one of the two levels around it
            step_u = u.abs().max() if scheme == "qsgd" else 1.0
            assert (u - left[atom]).abs().max() <= step_u * 1.00001
            assert ((u == 0) | (u.sign() == left[atom].sign())).all()
            assert ((v == 0) | (v.sign() == right[atom].sign())).all()
            expected += size * torch.outer(u, v)
        assert torch.allclose(compressor.decompress(payload, x, make_key(step)), expected, atol=1e-4)
    assert len(seen) > 2


@every_scheme
def test_both_sides_are_rounded_independently(scheme: str) -> None:
    """A symmetric matrix of rank 1 has the same vector on both sides; rounded by the same draws, the mean of
    its trace would be too large by the variance. z-test over 1500 draws."""
    u = torch.nn.functional.normalize(draw_gaussian((50,)), dim=0)
    x = torch.outer(u, u)
    compressor = QSVD(rank=1, scheme=scheme, **SCHEMES[scheme])
    traces = torch.stack(
        [
            compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step)).trace()
            for step in range(1500)
        ]
    ).double()
    z = (traces.mean() - x.trace()) / traces.std() * math.sqrt(1500)
    assert abs(z) < compute_critical_z(2)
    alike = compressor.coder
    squares = torch.stack(
        [alike.decompress(alike.compress(u, make_key(step)), u, make_key(step)).square().sum() for step in range(100)]
    )
    assert squares.mean() - 1 > 5 * traces.std() / math.sqrt(1500), "the test sees a dependence"


@every_scheme
@pytest.mark.parametrize("shape", [(500,), (1, 500), (4, 5), (7, 2, 2)], ids=str)
def test_what_atoms_would_not_shrink_is_quantised_as_it_is(scheme: str, shape: tuple[int, ...]) -> None:
    compressor = QSVD(scheme=scheme)
    x = draw_gaussian(shape)
    coder = compressor.coder
    assert torch.equal(compressor.compress(x, make_key(3)), coder.compress(x, make_key(3)))
    assert compressor.payload_size(shape) == coder.payload_size(shape)
    assert compressor.law(shape) == coder.law(shape)


def test_a_draw_of_too_many_atoms_has_its_product_quantised() -> None:
    """All singular values are equal: about half of the draws are not worth it."""
    x, _ = torch.linalg.qr(draw_gaussian((60, 60)))
    compressor = QSVD(budget=23.0, levels=127)
    each = 4 + 2 * compressor.coder.payload_bound((60,))
    whole = compressor.coder.payload_bound(x.shape)
    lengths = {len(compressor.compress(x, make_key(step))) for step in range(40)}
    assert whole in lengths and max(lengths) == whole
    assert all(size % each == 0 for size in lengths - {whole}) and len(lengths) > 2
    step = next(step for step in range(40) if len(compressor.compress(x, make_key(step))) == whole)
    sent = compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))
    # a projection times 60 / 23, in steps of a 127th of the largest element
    values = torch.linalg.svdvals(sent.double()) * 23 / 60
    atoms = int((values > 0.5).sum())
    assert atoms * each >= whole
    assert (values[:atoms] - 1).abs().max() < 0.1 and (values[atoms:] < 0.1).all()


def test_the_law_multiplies_the_three_variances() -> None:
    compressor = QSVD(rank=2, levels=3)
    coder, svd = compressor.coder, SVD(rank=2)
    left, right, whole, draw = (
        one.law(shape).omega for one, shape in ((coder, (64,)), (coder, (200,)), (coder, (64, 200)), (svd, (64, 200)))
    )
    assert left is not None and right is not None and whole is not None and draw is not None
    assert compressor.law((64, 200)).omega == pytest.approx((1 + draw) * max(1 + whole, (1 + left) * (1 + right)) - 1)
    assert compressor.unbiased and QSVD(scheme="terngrad").unbiased


@every_scheme
def test_nan_reaches_every_element(scheme: str) -> None:
    for shape in ((60, 90), (90, 6, 3, 3)):
        x = draw_gaussian(shape)
        x.view(-1)[5] = math.inf
        compressor = QSVD(scheme=scheme)
        assert compressor.decompress(compressor.compress(x, make_key()), x, make_key()).isnan().all()


def test_corrupt_payloads_are_refused() -> None:
    compressor = QSVD(budget=2.0)
    x = draw_gaussian((60, 90))
    step = next(step for step in range(20) if len(compressor.compress(x, make_key(step))))
    payload = compressor.compress(x, make_key(step))
    for wrong_size in (-1.0, math.inf, -math.inf):
        wrong = payload.clone()
        wrong[:4] = torch.tensor([wrong_size]).view(torch.uint8)
        with pytest.raises(CorruptPayload, match="size"):
            compressor.decompress(wrong, x, make_key())
    wrong = payload.clone()
    wrong[8] = 0xFF  # a code of 15 where 14 is the largest
    with pytest.raises(CorruptPayload):
        compressor.decompress(wrong, x, make_key())
    with pytest.raises(CorruptPayload, match="no number of atoms"):
        compressor.decompress(payload[:-1], x, make_key())


def test_options_that_only_concern_the_draw_are_those_of_svd() -> None:
    own = {field.name: field.default for field in dataclasses.fields(QSVD)}
    for field in dataclasses.fields(SVD):
        assert own[field.name] == field.default
