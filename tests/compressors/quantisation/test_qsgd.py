"""QSGD beyond the conformance suite: the kernel against the reference, its laws, its bytes."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload
from compressors.conformance.cases import compute_critical_z, draw_gaussian, make_key
from compressors.kernels import backend, elias_omega
from compressors.kernels.cpu.primitives import packing
from compressors.kernels.cpu.primitives.jit import kernel
from compressors.kernels.cpu.primitives.packing import BLOCK
from compressors.kernels.reference.primitives import packing as reference_packing
from compressors.quantisation.qsgd_terngrad_onebit import QSGD

Words = npt.NDArray[np.uint64]
LARGEST = torch.finfo(torch.float32).max

options = st.fixed_dictionaries(
    {
        "levels": st.one_of(st.integers(1, 40), st.integers(1, 32767)),
        "bucket_size": st.one_of(st.integers(1, 40), st.integers(1, 3000), st.just(2**31 - 1)),
        "norm": st.sampled_from(["max", "l2"]),
    }
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(options, st.integers(0, 3000), st.integers(0, 2**32), st.sampled_from(["normal", "wide", "sparse", "bad"]))
def test_kernel_and_reference_give_the_same_bits(values: dict[str, Any], count: int, seed: int, kind: str) -> None:
    q = QSGD(**values)
    q = q if math.ceil(count / q.bucket_size) < 300 else QSGD(**{**values, "bucket_size": 300})
    x = draw_gaussian((count,), seed)
    if kind == "wide":
        x *= torch.logspace(-44, 30, count)
    elif kind == "sparse":
        x *= draw_gaussian((count,), seed + 1) > 2
    elif kind == "bad" and count:
        x[seed % count] = (math.nan, math.inf, -math.inf)[seed % 3]
    results = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            payload, out = q.compress(x, make_key(seed)), draw_gaussian((count,), 9)
            q.decompress_add(payload, out, make_key(seed), 0.3)
            results.append((payload, out.nan_to_num(7.0)))
    for compiled, plain in zip(*results, strict=True):
        assert torch.equal(compiled, plain)


def test_the_bytes_are_the_documented_ones() -> None:
    """3 levels: codes of 3 bits, x = +-norm and 0 leave nothing to chance."""
    payload = QSGD(levels=3, bucket_size=4).compress(torch.tensor([2.0, 0.0, -2.0, 2.0, 0.0, -0.5]), make_key())
    codes = [6, 3, 0, 6, 3, 0]
    first = sum(code << 3 * place for place, code in enumerate(codes[:4]))
    second = sum(code << 3 * place for place, code in enumerate(codes[4:]))
    norms = np.array([2.0, 0.5], "<f4").tobytes()
    assert payload.numpy().tobytes() == norms + first.to_bytes(2, "little") + second.to_bytes(1, "little")


@pytest.mark.parametrize(
    ("levels", "width"),
    [
        (1, 2),
        (2, 3),
        (3, 3),
        (4, 4),
        (7, 4),
        (8, 5),
        (15, 5),
        (127, 8),
        (128, 9),
        (16383, 15),
        (16384, 16),
        (32767, 16),
    ],
)
def test_codes_take_the_fewest_bits(levels: int, width: int) -> None:
    assert QSGD(levels=levels).width == width == math.ceil(math.log2(2 * levels + 1))
    assert len(QSGD(levels=levels).compress(torch.ones(512 * 5), make_key())) == 5 * (4 + 64 * width)


@kernel("int64(uint16[::1], int64, int64, uint64[::1], uint8[::1], int64)")
def _pack(
    codes: npt.NDArray[np.uint16],
    count: int,
    width: int,
    staged: npt.NDArray[np.uint64],
    payload: npt.NDArray[np.uint8],
    position: int,
) -> int:
    return int(packing.pack(codes, count, width, staged, payload, position))


@kernel("int64(uint8[::1], int64, int64, int64, uint64[::1], uint16[::1])")
def _unpack(
    payload: npt.NDArray[np.uint8],
    position: int,
    count: int,
    width: int,
    staged: npt.NDArray[np.uint64],
    codes: npt.NDArray[np.uint16],
) -> int:
    return int(packing.unpack(payload, position, count, width, staged, codes))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(2, 16), st.lists(st.integers(0, 2**16 - 1), max_size=1024))
def test_packing_and_its_reference_agree(width: int, codes: list[int]) -> None:
    count = len(codes)
    block = np.zeros(BLOCK, np.uint16)
    block[:count] = np.array(codes, np.uint16) & np.uint16(2**width - 1)
    expected = block[:count].copy()
    payload = np.full(math.ceil(count * width / 8), 0xA5, np.uint8)
    block[count:] = 0xA5A5  # left from the block before
    assert _pack(block, count, width, np.empty(BLOCK // 4 + 1, np.uint64), payload, 0) == len(payload)
    assert payload.tolist() == reference_packing.pack(torch.from_numpy(expected.astype(np.int64)), width).tolist()
    assert _unpack(payload, 0, count, width, np.empty(BLOCK // 4 + 1, np.uint64), block) == len(payload)
    assert (block[:count] == expected).all()
    assert (reference_packing.unpack(torch.from_numpy(payload), count, width).numpy() == expected).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(options, st.integers(1, 2000), st.integers(0, 2**32))
def test_an_element_moves_by_less_than_one_level(values: dict[str, Any], count: int, seed: int) -> None:
    q = QSGD(**values)
    x = draw_gaussian((count,), seed)
    decoded = q.decompress(q.compress(x, make_key(seed)), x, make_key(seed))
    for part, sent in zip(x.split(q.bucket_size), decoded.split(q.bucket_size), strict=True):
        norm = part.abs().max() if q.norm == "max" else part.double().norm().float()
        assert ((part - sent).abs() <= norm / q.levels * (1 + 1e-6) + 1e-6 * part.abs()).all()
        assert (sent * part >= 0).all()


def test_the_variance_is_that_of_the_papers_rounding() -> None:
    """Per element p (1 - p) (norm / s)^2, where p is the fraction of a level; z-test of the mean square
    error over 400 draws, which correct rounding fails once in 10^6 runs."""
    x = draw_gaussian((512,), 3)
    for q in (QSGD(levels=4), QSGD(levels=4, norm="l2"), QSGD(levels=1)):
        norm = x.abs().max() if q.norm == "max" else x.norm()
        exact = x.abs().double() / norm * q.levels
        p = exact - exact.floor()
        expected = float((p * (1 - p)).sum() * (norm / q.levels) ** 2)
        decoded = [q.decompress(q.compress(x, make_key(n)), x, make_key(n)) for n in range(400)]
        samples = torch.stack([(one - x).square().sum() for one in decoded])
        z = (samples.double().mean() - expected) / samples.double().std() * 20
        assert abs(float(z)) < compute_critical_z(3)


@pytest.mark.parametrize("levels", [1, 3, 7, 41, 100, 32767])
def test_the_largest_element_of_a_bucket_is_sent_exactly(levels: int) -> None:
    q = QSGD(levels=levels)
    x = draw_gaussian((5 * 512 + 1,), 8)
    decoded = q.decompress(q.compress(x, make_key()), x, make_key())
    for part, sent in zip(x.split(512), decoded.split(512), strict=True):
        assert sent[part.abs().argmax()] == part[part.abs().argmax()]
    for special in (torch.full((600,), -0.3), torch.zeros(600).index_fill(0, torch.tensor(17), 1e-44)):
        assert torch.equal(q.decompress(q.compress(special, make_key()), special, make_key()), special)


def test_a_norm_beyond_float32_is_still_a_number() -> None:
    q = QSGD(norm="l2")
    x = torch.full((512,), LARGEST)
    for step in range(20):
        decoded = q.decompress(q.compress(x, make_key(step)), x, make_key(step))
        assert torch.equal(decoded, x)


def test_only_the_bucket_of_a_nan_becomes_nan() -> None:
    for norm in ("max", "l2"):
        for bad in (math.nan, math.inf, -math.inf):
            x = draw_gaussian((3 * 512,))
            x[600] = bad
            decoded = QSGD(norm=norm).decompress(QSGD(norm=norm).compress(x, make_key()), x, make_key())
            assert decoded[512:1024].isnan().all()
            assert decoded[:512].isfinite().all() and decoded[1024:].isfinite().all()


@pytest.mark.parametrize("norm", [-1.0, math.inf, -math.inf, -math.nan])
def test_a_norm_that_no_encoder_writes_raises(norm: float) -> None:
    q = QSGD()
    payload = q.compress(draw_gaussian((1024,)), make_key())
    bits = np.float32(norm).view(np.uint32) if not math.isnan(norm) else np.uint32(0xFFC00000)
    payload[4:8] = torch.from_numpy(np.array([bits]).view(np.uint8).copy())
    with pytest.raises(CorruptPayload, match="norm"):
        q.decompress(payload, torch.zeros(1024), make_key())


@pytest.mark.parametrize("levels", [1, 2, 7, 100])
def test_a_code_above_the_levels_raises(levels: int) -> None:
    q = QSGD(levels=levels)
    payload = q.compress(draw_gaussian((512,)), make_key())
    payload[-1] = 0xFF
    with pytest.raises(CorruptPayload, match="code"):
        q.decompress(payload, torch.zeros(512), make_key())


def test_more_than_two_to_the_31_elements() -> None:
    """Encoded for real: the zeros are one page that the system hands out again and again, so that only
    the payload takes memory (0.5 GB)."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if int(meminfo["MemAvailable"].split()[0]) < 2 * 2**20:
        pytest.skip("needs 2 GB of memory")
    bucket, tail = 2**20, 2**20 + 77
    count = 2**31 + tail
    x = torch.from_numpy(np.zeros(count, np.float32))
    x[-tail:] = draw_gaussian((tail,))
    q = QSGD(levels=1, bucket_size=bucket)
    payload = q.compress(x, make_key())
    assert len(payload) == q.payload_size((count,)) == 4 * (2**11 + 2) + 2**29 + math.ceil(tail / 4) + 0
    norms = payload[: 4 * (2**11 + 2)].view(torch.float32)
    assert not norms[: 2**11].any() and norms[2**11 :].all()
    sent = reference_packing.unpack(payload[-math.ceil(77 / 4) :], 77, 2) - 1
    assert (sent * x[-77:] >= 0).all() and sent.abs().sum() > 10


def test_two_to_the_31_elements_in_one_bucket_count_in_64_bits() -> None:
    q = QSGD(levels=32767, bucket_size=2**31 - 1)
    assert q.payload_size((2**31 - 1,)) == 4 + 2 * (2**31 - 1)
    assert q.payload_size((2**20, 2**20)) == 512 * (4 + 2 * (2**31 - 1)) + 4 + 2 * 512


# Elias coding


ELIAS = [QSGD(coding="elias"), QSGD(coding="elias", levels=1, norm="l2"), QSGD(coding="elias", levels=300)]


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1, "0"), (2, "100"), (3, "110"), (4, "101000"), (7, "101110"), (8, "1110000"), (16, "10100100000")],
)
def test_omega_codes_are_those_of_elias(value: int, bits: str) -> None:
    assert elias_omega.code(value) == bits and elias_omega.length(value) == len(bits)


def test_a_gap_takes_less_than_the_elements_that_it_skips_could() -> None:
    """What the bound of the payload rests on."""
    lengths = [elias_omega.length(value) for value in range(1, 5000)]
    assert all(length <= 2 * gap - 1 for gap, length in enumerate(lengths, 1))
    assert lengths == sorted(lengths)


def stream(steps: list[int]) -> bytes:
    """The documented stream of signed levels, written bit by bit."""
    bits, before = "", -1
    for place, step in enumerate(steps):
        if step:
            bits += elias_omega.code(place - before) + str(int(step < 0)) + elias_omega.code(abs(step))
            before = place
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))


def test_the_bytes_of_elias_coding_are_the_documented_ones() -> None:
    x = torch.tensor([2.0, 0.0, -2.0, 2.0, 0.0, -0.5])
    payload = QSGD(levels=3, bucket_size=4, coding="elias").compress(x, make_key())
    #       gap 1, +, 3   gap 2, -, 3    gap 1, +, 3   padding
    first = "001101001110001101111111"
    second = "10011101"
    norms = np.array([2.0, 0.5], "<f4").tobytes()
    streams = [int(bits[::-1], 2).to_bytes(len(bits) // 8, "little") for bits in (first, second)]
    assert streams == [stream([3, 0, -3, 3]), stream([0, -3])]
    assert payload.numpy().tobytes() == norms + bytes([3, 1]) + streams[0] + streams[1]


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, derandomize=True)
@given(options, st.integers(1, 3000), st.integers(0, 2**32), st.sampled_from(["normal", "wide", "sparse", "one"]))
def test_elias_coding_says_what_fixed_coding_says(values: dict[str, Any], count: int, seed: int, kind: str) -> None:
    fixed = QSGD(**{**values, "bucket_size": min(3000, max(values["bucket_size"], count // 100 + 1))})
    elias = dataclasses.replace(fixed, coding="elias")
    x = draw_gaussian((count,), seed)
    if kind == "wide":
        x *= torch.logspace(-44, 30, count)
    elif kind == "sparse":
        x *= draw_gaussian((count,), seed + 1) > 2
    elif kind == "one":
        x[1:] = 0
    expected = fixed.compress(x, make_key(seed))
    buckets = math.ceil(count / fixed.bucket_size)
    length = min(count, fixed.bucket_size)
    position, streams = 4 * buckets, []
    for number in range(buckets):
        elements = min(length, count - number * length)
        size = math.ceil(elements * fixed.width / 8)
        codes = reference_packing.unpack(expected[position : position + size], elements, fixed.width)
        streams.append(stream((codes - fixed.levels).tolist()))
        position += size
    field = elias.length_bytes(x.shape)
    lengths = b"".join(len(one).to_bytes(field, "little") for one in streams)
    whole = expected[: 4 * buckets].numpy().tobytes() + lengths + b"".join(streams)
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            payload = elias.compress(x, make_key(seed))
            assert payload.numpy().tobytes() == whole
            assert torch.equal(
                elias.decompress(payload, x, make_key(seed)), fixed.decompress(expected, x, make_key(seed))
            )


def test_a_gap_of_many_elements_is_read() -> None:
    x = torch.zeros(300_000)
    x[[0, 5000, 299_999]] = torch.tensor([1.0, -1.0, 1.0])
    for levels in (1, 32767):
        q = QSGD(levels=levels, bucket_size=2**31 - 1, coding="elias")
        results = []
        for kernels in ("numba", "torch"):
            with backend.use(kernels):
                payload = q.compress(x, make_key())
                results.append(payload)
                assert torch.equal(q.decompress(payload, x, make_key()), x)
        assert torch.equal(*results) and len(payload) < 30


@pytest.mark.parametrize("levels", [1, 7, 32767])
@pytest.mark.parametrize("count", [1, 512, 5 * 512, 5 * 512 + 3])
def test_the_bound_of_elias_coding_is_reached(levels: int, count: int) -> None:
    q = QSGD(levels=levels, coding="elias")
    assert len(q.compress(torch.full((count,), -0.7), make_key())) == q.payload_bound((count,))
    assert q.payload_size((count,)) is None


def test_the_stream_of_few_levels_is_as_short_as_the_paper_says() -> None:
    """Theorem 3.2 with s = 1, the lower-order term left out: expected bits for n elements and their norm."""
    n = 2**13
    q = QSGD(levels=1, norm="l2", bucket_size=n, coding="elias")
    x = draw_gaussian((50 * n,))
    dense = 1 + math.sqrt(n)
    bits = (3 + 1.5 * math.log2(2 * (1 + n) / dense)) * dense + 32
    assert 8 * len(q.compress(x, make_key())) / 50 < bits
    assert len(q.compress(x, make_key())) < len(dataclasses.replace(q, coding="fixed").compress(x, make_key())) / 10


def verdict(q: QSGD, payload: torch.Tensor, count: int) -> tuple[bool, torch.Tensor]:
    guarded = torch.full((count + 20,), 42.0)
    inside = guarded[10:-10]
    inside.zero_()
    try:
        q.decompress_add(payload, inside, make_key())
        accepted = True
    except CorruptPayload:
        accepted = False
    assert (guarded[:10] == 42.0).all() and (guarded[-10:] == 42.0).all()
    return accepted, inside.nan_to_num(7.0)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(ELIAS), st.data())
def test_kernel_and_reference_refuse_the_same_streams(q: QSGD, data: st.DataObject) -> None:
    count = 700
    payload = q.compress(draw_gaussian((count,), 3), make_key())
    for _ in range(data.draw(st.integers(0, 3))):
        bit = data.draw(st.integers(0, 8 * len(payload) - 1))
        payload[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 40]))
    payload = payload[: len(payload) - cut]
    found = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            found.append(verdict(q, payload, count))
    assert found[0][0] == found[1][0]
    if found[0][0]:
        assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("kernels", ["numba", "torch"])
@pytest.mark.parametrize(
    ("steps", "tail"),
    [
        ([4], b""),  # a level above 3
        ([0, 0, 0, 0, 1], b""),  # behind the bucket
        ([1], b"\xff"),  # a byte of padding too many
        ([], b"\x00\x00"),  # a third and later symbols that nobody wrote: gap 1, plus, level 1, but no room for them
        ([], b"\xff" * 9),  # a code without an end
        ([], bytes([0b00000101, 0x70, 0xFF])),  # cut off
    ],
)
def test_a_stream_that_no_encoder_writes_raises(kernels: str, steps: list[int], tail: bytes) -> None:
    q = QSGD(levels=3, bucket_size=4, coding="elias")
    content = stream(steps) + tail
    head = np.array([2.0], "<f4").tobytes() + bytes([len(content)])
    payload = torch.frombuffer(bytearray(head + content), dtype=torch.uint8)
    good = torch.frombuffer(bytearray(head[:4] + bytes([1]) + stream([0, -3])), dtype=torch.uint8)
    with backend.use(kernels):
        assert torch.equal(q.decompress(good, torch.zeros(4), make_key()), torch.tensor([0.0, -2.0, 0.0, 0.0]))
        with pytest.raises(CorruptPayload):
            q.decompress(payload, torch.zeros(4), make_key())


@pytest.mark.parametrize("kernels", ["numba", "torch"])
def test_a_bucket_of_nan_has_an_empty_stream(kernels: str) -> None:
    q = QSGD(coding="elias")
    x = draw_gaussian((3 * 512,))
    x[600] = math.nan
    with backend.use(kernels):
        payload = q.compress(x, make_key())
        decoded = q.decompress(payload, x, make_key())
        assert decoded[512:1024].isnan().all() and decoded[:512].isfinite().all() and decoded[1024:].isfinite().all()
        assert payload[3 * 4 + 2 : 3 * 4 + 4].tolist() == [0, 0]
        payload[3:4] = 0x7F  # the first norm is NaN now, but its stream is not empty
        payload[:3] = torch.tensor([0, 0, 0xC0], dtype=torch.uint8)
        with pytest.raises(CorruptPayload):
            q.decompress(payload, x, make_key())


@pytest.mark.parametrize("coding", ["fixed", "elias"])
@pytest.mark.parametrize(("bits", "count"), [(1, 400), (2, 3), (4, 5000)])
def test_the_biased_variant_is_that_of_choco_sgd(coding: str, bits: int, count: int) -> None:
    """Divided by 1 + min(d / s^2, sqrt(d) / s), s = 2^bits - 1; with error feedback on top it forgets nothing."""
    s = 2**bits - 1
    x = draw_gaussian((count,))
    options = {"levels": s, "norm": "l2", "bucket_size": None, "coding": coding}
    plain, scaled = QSGD(**options), QSGD(**options, unbiased=False)
    payload = plain.compress(x, make_key())
    assert torch.equal(scaled.compress(x, make_key()), payload)
    tau = 1 + min(count / s**2, math.sqrt(count) / s)
    expected = plain.decompress(payload, x, make_key()).double() / tau
    assert torch.allclose(scaled.decompress(payload, x, make_key()).double(), expected, rtol=1e-6, atol=0)
    assert not scaled.unbiased and scaled.law((count,)).delta >= (1 - 1e-12) / tau  # type: ignore[operator]
    residual = torch.zeros(count)
    for step in range(200):
        residual += x
        scaled.decompress_add(scaled.compress(residual, make_key(step)), residual, make_key(step), -1.0)
    assert residual.norm() <= 3 * tau * x.norm()
