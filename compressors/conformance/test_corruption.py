"""Decode bytes that no compressor wrote: a receiver raises or decodes a tensor, and touches nothing else."""

from __future__ import annotations

import functools
import math
import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compressors import Compressor, CorruptPayload
from compressors.conformance.cases import draw_gaussian, every_compressor, every_shape, in_turn, make_key
from compressors.low_rank.svd import Spectral
from compressors.quantisation.elementwise import Elementwise

GUARD = 1 << 14
FLIPS = 120


@functools.cache
def make_guarded(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `size` floats in the middle of many others, and all of them."""
    whole = torch.full((size + 2 * GUARD,), 42.0)
    return whole[GUARD : GUARD + size], whole


def decode(compressor: Compressor, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """Decode a payload into zeros in the middle of other numbers, which must stay as they are; None if it is refused.

    Any other exception is an error.
    """
    inside, whole = make_guarded(shape.numel())
    inside.zero_()
    try:
        compressor.decompress_add(payload, inside.view(shape), make_key())
    except CorruptPayload:
        return None
    finally:
        assert (whole[:GUARD] == 42.0).all() and (whole[GUARD + shape.numel() :] == 42.0).all()
    return inside.view(shape).clone()


@every_compressor
@every_shape
def test_a_payload_of_the_wrong_length_raises(compressor: Compressor, shape: tuple[int, ...]) -> None:
    payload = compressor.compress(draw_gaussian(shape), make_key())
    longer = (torch.cat([payload, payload.new_zeros(1)]), torch.cat([payload, payload, payload[:1]]))
    for wrong in (payload[:-1], *longer):
        if len(wrong) != len(payload):
            with pytest.raises(CorruptPayload):
                compressor.decompress(wrong, torch.zeros(shape), make_key())
    for wrong in (payload.float(), payload.view(1, -1)):
        with pytest.raises(CorruptPayload):
            compressor.decompress(wrong, torch.zeros(shape), make_key())


@every_compressor
@in_turn(shape=[(6, 7)])
def test_a_truncated_payload_raises(compressor: Compressor, shape: tuple[int, ...]) -> None:
    payload = compressor.compress(draw_gaussian(shape), make_key())
    size = compressor.payload_size(shape)
    for length in range(len(payload)):
        found = decode(compressor, payload[:length].clone(), torch.Size(shape))
        # Only where the length is all that tells the number of atoms, fewer of them are a payload, too.
        assert found is None or (size is None and isinstance(compressor, Spectral)), length


@every_compressor
@in_turn(shape=[(6, 7)])
def test_a_flipped_bit_raises_or_is_decoded(compressor: Compressor, shape: tuple[int, ...]) -> None:
    payload = compressor.compress(draw_gaussian(shape), make_key())
    bits = range(8 * len(payload))
    for bit in bits if len(bits) <= FLIPS else random.Random(1).sample(bits, FLIPS):
        wrong = payload.clone()
        wrong[bit >> 3] ^= 1 << (bit & 7)
        decode(compressor, wrong, torch.Size(shape))


@every_compressor
@in_turn(shape=[(37,), (1205,), (5, 5)])
def test_flipped_padding_raises(compressor: Compressor, shape: tuple[int, ...]) -> None:
    """Flip the bits that fill up the last byte of a bucket's codes, or of the payload: a receiver refuses them."""
    x = draw_gaussian(shape)
    payload = compressor.compress(x, make_key())
    expected = compressor.decompress(payload, x, make_key())
    unused = find_padding(compressor, shape)
    for bit in range(8 if unused is None and expected.any() else 0):
        wrong = payload.clone()
        wrong[-1] ^= 1 << bit
        found = decode(compressor, wrong, x.shape)
        assert found is None or not torch.equal(found, expected), bit
    for place, bit in unused or []:
        assert not payload[place] >> bit
        wrong = payload.clone()
        wrong[place] ^= 1 << bit
        assert decode(compressor, wrong, x.shape) is None, (place, bit)


def find_padding(compressor: Compressor, shape: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """Return byte and bit of the padding behind the codes of the first and the last buckets; None without buckets."""
    layout = compressor.layout(shape) if isinstance(compressor, Elementwise) else None
    if layout is None or compressor.payload_size(shape) is None:
        return None
    count, (bucket, head, width) = math.prod(shape), layout
    sizes = [min(bucket or count, count - start) for start in range(0, count, bucket or count)]
    place, found = head * len(sizes), []
    for size in sizes:
        place += -(-size * width // 8)
        found += [(place - 1, bit) for bit in range(8) if size * width % 8 and bit >= size * width % 8]
    assert place == compressor.payload_size(shape)
    return found[:16] + found[-8:]


@every_compressor
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=700), columns=st.integers(0, 24), fit=st.booleans())
def test_nothing_is_written_outside_of_the_tensor(
    compressor: Compressor, content: bytes, columns: int, fit: bool
) -> None:
    shape = torch.Size((24, columns))
    if fit:  # the right length, the wrong content
        length = compressor.payload_size(shape)
        length = compressor.payload_bound(shape) if length is None else length
        content = (content + b"\xff" * length)[:length]
    decode(compressor, torch.tensor(list(content), dtype=torch.uint8), shape)
