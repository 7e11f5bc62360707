"""Laws of methods that round numbers or send means, at the ends of float32."""

from __future__ import annotations

import pytest
import torch

from compressors import build
from compressors.conformance.cases import draw_gaussian, make_key

LARGEST = torch.finfo(torch.float32).max
SMALLEST = torch.finfo(torch.float32).tiny  # that is normal
DENORMAL = 2.0**-149

INPUTS = {
    "all the largest": lambda top: torch.full((1000,), top),
    "both signs": lambda top: torch.tensor([top, -top] * 500),
    "one of many": lambda top: torch.tensor([-top] + 999 * [0.0]),
    "many sizes": lambda top: (draw_gaussian((1000,)) * torch.logspace(0, -5, 1000)).clamp(-1, 1) * top,
    "the smallest": lambda top: draw_gaussian((1000,)).sign() * SMALLEST,
    "small": lambda top: draw_gaussian((1000,)).clamp(-4, 4) * 1e3 * SMALLEST + SMALLEST,
}


@pytest.mark.parametrize("values", INPUTS)
@pytest.mark.parametrize("name", ["bf16", "fp16", "sign_norm", "onebit"])
def test_the_law_holds_up_to_the_ends(name: str, values: str) -> None:
    """Sums of float32 would overflow, and so would squares."""
    compressor = build(name)
    x = INPUTS[values](min(LARGEST, compressor.largest))
    x = torch.where(x == 0, x, x.sign() * x.abs().clamp(min=compressor.smallest))
    error = compressor.decompress(compressor.compress(x, make_key()), x, make_key()).double() - x.double()
    law = compressor.law(x.shape)
    assert law.delta is not None
    assert error.square().sum() <= (1 - law.delta) * (1 + 1e-6) * x.double().square().sum()


@pytest.mark.parametrize("name", ["sign_norm", "onebit"])
@pytest.mark.parametrize("scale", [1.0, 1.4, 30.0, 1e4])
def test_means_of_denormals_are_rounded_once(name: str, scale: float) -> None:
    """The error is that of the exact mean and half the distance of denormals for every element."""
    x = (draw_gaussian((1000,)).double() * scale * DENORMAL).float()
    compressor = build(name)
    q = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    positive = ~x.signbit()
    for side in (positive, ~positive) if name == "onebit" else (x == x,):
        mean = x[side].double().abs().sum() / side.sum()
        assert (q[side].double().abs() - mean).abs().max() <= DENORMAL / 2


def test_bf16_is_infinite_beyond_its_largest_number_only() -> None:
    compressor = build("bf16")
    top = torch.finfo(torch.bfloat16).max
    assert compressor.largest == top
    x = torch.tensor([top, -top, 3.396e38, 3.3962e38, -LARGEST, DENORMAL, 5e-41, 1e-38])
    q = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    assert q[:3].tolist() == [top, -top, top] and q[3:5].isinf().all()
    assert ((q - x)[5:].abs() <= torch.minimum(x[5:], torch.tensor(4.6e-41))).all()
