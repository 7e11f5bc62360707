"""Decoders of many payloads for a tensor (`Compressor.build_decoder`) do what decoding one by one does."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch

from compressors import Compressor, CorruptPayload, Key, build
from compressors.conformance.cases import draw_gaussian, every_compressor, every_shape, in_turn, make_key
from compressors.low_rank.svd import SVD
from compressors.message import Message
from compressors.quantisation.qsgd_terngrad_onebit import QSGD

FLIPS = 24
WEIGHT = 0.3


def decode_alone(compressor: Compressor, payload: torch.Tensor, out: torch.Tensor, replace: bool) -> torch.Tensor | str:
    """Return `out` after decoding, or why it is refused."""
    try:
        (compressor.decompress_to if replace else compressor.decompress_add)(payload, out, make_key(), WEIGHT)
    except CorruptPayload as error:
        return str(error)
    return out


def decode_by_decoder(
    compressor: Compressor, payload: torch.Tensor, out: torch.Tensor, replace: bool, start: int
) -> torch.Tensor | str:
    """Return `out` after a decoder has decoded the payload in the middle of a message, or why it is refused."""
    message = torch.full((start + len(payload) + 7,), 0xA5, dtype=torch.uint8)
    message[start : start + len(payload)] = payload
    try:
        compressor.build_decoder(out, replace=replace)(Message(message), start, len(payload), make_key(), WEIGHT)
    except CorruptPayload as error:
        return str(error)
    return out


def check_equal(found: torch.Tensor | str, expected: torch.Tensor | str) -> None:
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
    else:
        assert torch.equal(found.contiguous().view(torch.int32), expected.contiguous().view(torch.int32))


@every_compressor
@every_shape
def test_a_decoder_gives_the_same_bits(compressor: Compressor, shape: tuple[int, ...]) -> None:
    x, base = draw_gaussian(shape, 1), draw_gaussian(shape, 2)
    payload = compressor.compress(x, make_key())
    for replace in (False, True):
        expected = decode_alone(compressor, payload, base.clone(), replace)
        for start in (4, 3):
            check_equal(decode_by_decoder(compressor, payload, base.clone(), replace, start), expected)
        wide, other = (torch.stack((base, base), -1)[..., 0] for _ in range(2))  # with others between its elements
        check_equal(
            decode_by_decoder(compressor, payload, wide, replace, 4), decode_alone(compressor, payload, other, replace)
        )


@every_compressor
@in_turn(shape=[(6, 7)])
def test_a_decoder_refuses_the_same(compressor: Compressor, shape: tuple[int, ...]) -> None:
    payload = compressor.compress(draw_gaussian(shape), make_key())
    longer = [torch.cat([payload, payload.new_zeros(more)]) for more in (1, 4)]
    wrong = [payload[:size].clone() for size in range(len(payload))] + longer
    bits = range(8 * len(payload))
    for bit in bits if len(bits) <= FLIPS else random.Random(1).sample(bits, FLIPS):
        wrong.append(payload.clone())
        wrong[-1][bit >> 3] ^= 1 << (bit & 7)
    for one in wrong:
        expected = decode_alone(compressor, one, torch.zeros(shape), replace=True)
        check_equal(decode_by_decoder(compressor, one, torch.zeros(shape), True, 4), expected)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_a_decoder_decodes_several_payloads(kernels: str) -> None:
    from compressors.kernels import backend

    with backend.use(kernels):
        for name in ("qsgd", "svd", "none", "topk"):
            compressor, shape = build(name), (24, 31)
            out, expected = draw_gaussian(shape, 9), draw_gaussian(shape, 9)
            decode = compressor.build_decoder(out)
            for worker in range(4):
                mine = Key(0, worker, 1, 0)
                payload = compressor.compress(draw_gaussian(shape, worker), mine)
                decode(Message(payload), 0, len(payload), mine, 0.25)
                compressor.decompress_add(payload, expected, mine, 0.25)
            check_equal(out, expected)


@pytest.mark.parametrize("base", [QSGD, SVD])
def test_a_subclass_with_another_decoding_inherits_no_decoder(base: type[Compressor]) -> None:
    @dataclasses.dataclass(frozen=True)
    class Twice(base):  # type: ignore[misc, valid-type]
        def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
            super().decompress_add(payload, out, key, 2.0 * weight)

    twice: Any = Twice()
    x = draw_gaussian((24, 31))
    payload = twice.compress(x, make_key())
    once = base().decompress(payload, x, make_key())
    found = decode_by_decoder(twice, payload, torch.zeros(24, 31), False, 0)
    assert isinstance(found, torch.Tensor) and torch.allclose(found, 2.0 * WEIGHT * once, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["qsgd", "svd", "none"])
def test_decoders_of_the_main_methods_prepare_nothing_for_each_payload(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that they do not call what decodes a payload alone."""
    compressor, x = build(name), draw_gaussian((24, 31))
    payload = compressor.compress(x, make_key())
    decoders = [compressor.build_decoder(torch.zeros(24, 31), replace=replace) for replace in (False, True)]

    def fail(*_: Any, **named: Any) -> None:
        raise AssertionError("decoded alone")

    monkeypatch.setattr(type(compressor), "decompress_add", fail)
    monkeypatch.setattr(type(compressor), "decompress_to", fail)
    monkeypatch.setattr(type(compressor), "payload_bound", fail)
    for decode in decoders:
        decode(Message(payload), 0, len(payload), make_key(), WEIGHT)
