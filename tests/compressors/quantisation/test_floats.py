"""fp16 and bf16 beyond the conformance suite: every number of 16 bits, rounding, overflow, NaN."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from compressors import Compressor, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.quantisation.floats import _PIECE


def words(compressor: Compressor, x: torch.Tensor) -> npt.NDArray[np.uint16]:
    """The 16-bit words of the payload."""
    return compressor.compress(x, make_key()).numpy().view(np.uint16)


def nearest_bfloat16(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Half of the last place, less a bit where the number below is even, is added before the cut."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


def test_the_bytes_are_those_of_the_standard() -> None:
    x = torch.tensor([1.0, -2.0, 65504.0, 65519.0, 65520.0, -1e30, 2.0**-24, 2.0**-25, -0.0, math.nan, -math.inf])
    half = [0x3C00, 0xC000, 0x7BFF, 0x7BFF, 0x7C00, 0xFC00, 0x0001, 0x0000, 0x8000, 0x7E00, 0xFC00]
    assert words(build("fp16"), x).tolist() == half
    x = torch.tensor([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -1e30, 3.4e38, math.nan, math.inf])
    assert words(build("bf16"), x).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xF14A, 0x7F80, 0x7FC0, 0x7F80]


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_every_number_of_16_bits_arrives_as_it_is(name: str) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = bits.view(np.float16).astype(np.float32) if name == "fp16" else (bits.astype("<u4") << 16).view("<f4")
    x = torch.from_numpy(values.copy())
    decoded = build(name).decompress(torch.from_numpy(bits.view(np.uint8)), x, make_key())
    numbers = ~x.isnan()
    assert torch.equal(decoded[numbers], x[numbers]) and decoded[~numbers].isnan().all()
    sent = words(build(name), x)
    assert (sent[numbers] == bits[numbers]).all()
    assert set(sent[~numbers].tolist()) == {0x7E00 if name == "fp16" else 0x7FC0}


def test_rounding_is_to_the_nearest_and_then_to_the_even() -> None:
    magnitudes = [draw_gaussian((20_000,)) * 10.0**exponent for exponent in (-8, -7, -5, 0, 3)]
    ties = torch.arange(1.0, 4096.0) / 2048 + 2.0**-11
    x = torch.cat([*magnitudes, ties, ties + 2.0**-8])
    with np.errstate(over="ignore"):
        assert (words(build("fp16"), x) == x.numpy().astype(np.float16).view(np.uint16)).all()
    x = torch.cat([x, draw_gaussian((20_000,)) * 1e-39, draw_gaussian((20_000,)) * 1e37])
    assert (words(build("bf16"), x) == nearest_bfloat16(x.numpy())).all()


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_no_element_moves_by_more_than_the_law_says(name: str) -> None:
    """A 256th with bfloat16, a 2048th with float16; and some do move by almost as much."""
    compressor = build(name)
    x = draw_gaussian((100_000,)) * torch.logspace(-30, 37, 100_000)
    x = x.sign() * x.abs().clamp(compressor.smallest, compressor.largest)
    moved = (
        compressor.decompress(compressor.compress(x, make_key()), x, make_key()) - x
    ).double().square() / x.double().square()
    omega = compressor.law(x.shape).omega
    assert omega is not None and 0.9 * omega < float(moved.max()) <= omega


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize("bad", [[math.nan], [math.inf], [math.inf, -math.inf]], ids=str)
def test_what_is_no_number_stays_where_it_is(name: str, bad: list[float]) -> None:
    x = draw_gaussian((_PIECE + 5,))
    x[-len(bad) :] = torch.tensor(bad)
    decoded = build(name).decompress(build(name).compress(x, make_key()), x, make_key())
    assert torch.equal(decoded[-len(bad) :].nan_to_num(7.0), torch.tensor(bad).nan_to_num(7.0))
    assert decoded[: -len(bad)].isfinite().all()


def test_an_overflow_of_the_sum_is_seen() -> None:
    """What a network that adds halves does with 40000 + 40000."""
    fp16 = build("fp16")
    x = torch.full((3,), 40000.0)
    payload = fp16.compress(x, make_key())
    total = (payload.view(torch.float16) + payload.view(torch.float16)).view(torch.uint8)
    assert fp16.decompress(total, x, make_key()).isinf().all()
