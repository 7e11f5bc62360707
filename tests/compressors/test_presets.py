"""Presets: other systems' names give what these systems compute."""

from __future__ import annotations

import pytest
import torch

from compressors import Key, build, presets, registry
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels.reference.primitives.streams import draws

SHAPE = (64, 16, 3, 3)


def uniform(key: Key, count: int) -> torch.Tensor:
    """The numbers in [0, 1) that QSGD rounds one bucket with."""
    return (draws(key.mix(), torch.zeros(1, dtype=torch.int64), count)[0] >> 1).double() / 2**31


def test_presets_are_methods_with_options() -> None:
    for name, (method, options) in presets().items():
        assert name not in registry() and build(name) == build(method, **options) != build(method)
    assert build("random_dithering", levels=15).levels == 15  # type: ignore[attr-defined]


@pytest.mark.parametrize("step", range(5))
def test_leansgd_qsgd(step: int) -> None:
    """LeanSGD: an element of the layer is selected with p = |v| / ||v||_2, and arrives as sign(v) ||v||_2."""
    v = draw_gaussian(SHAPE, step) * 1e-3
    length = v.double().norm()
    p = v.double().abs().flatten() / length
    selected = uniform(make_key(step), v.numel()) < p
    expected = torch.where(selected, v.double().flatten().sign() * length, 0.0).view(SHAPE)
    compressor = build("leansgd_qsgd")
    payload = compressor.compress(v, make_key(step))
    q = compressor.decompress(payload, v, make_key(step))
    assert 0 < selected.sum() <= 4 * v.numel() ** 0.5  # sqrt(n) at most in expectation
    assert torch.equal(q != 0, expected != 0)
    assert torch.allclose(q.double(), expected, rtol=1e-6, atol=0)
    # A norm, the stream's length, and for a selected element some 13 bits, where LeanSGD sends 40.
    assert len(payload) < 4 + 4 + 20 / 8 * int(selected.sum())


@pytest.mark.parametrize("step", range(5))
def test_random_dithering(step: int) -> None:
    """The layer-wise paper: floor(|g| / ||g||_2 s + u) / s ||g||_2 sign(g), s = 255, for a layer or the whole model."""
    g = draw_gaussian(SHAPE, step) * 1e-3
    length = g.double().norm()
    u = 1 - 2**-31 - uniform(make_key(step), g.numel())  # as uniform, but up is where the kernel's number is small
    level = (g.double().abs().flatten() / length * 255 + u).floor()
    expected = (level / 255 * length * g.flatten().sign()).view(SHAPE)
    compressor = build("random_dithering")
    payload = compressor.compress(g, make_key(step))
    q = compressor.decompress(payload, g, make_key(step))
    assert level.max() > 1 and torch.equal(q != 0, expected != 0)
    assert torch.allclose(q.double(), expected, rtol=1e-6, atol=0)
    assert len(payload) == 4 + -(-9 * g.numel() // 8)
