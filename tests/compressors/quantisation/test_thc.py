"""thc beyond the conformance suite: its tables, its rotation, sums, and what is common to the workers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors import CorruptPayload, InvalidParameter, Law
from compressors.conformance.cases import (
    compute_critical_z,
    draw_gaussian,
    find_largest_deviation,
    make_key,
    renew,
)
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.thc_tables import compute_error, find_clip, find_table
from compressors.memories import build as build_memory
from compressors.quantisation.thc import THC
from tests.compressors.quantisation.test_integers import compare, kinds

PUBLISHED = {
    (3, 16, 1 / 128): (0, 3, 5, 7, 9, 11, 13, 16),
    (3, 42, 1 / 1024): (0, 10, 15, 19, 23, 27, 32, 42),
    (4, 30, 1 / 128): (0, 4, 6, 8, 10, 12, 13, 14, 16, 17, 18, 20, 22, 24, 26, 30),
}
"""By bits, granularity and overflow: tables of the authors' code, which equal their mirror images."""


def agree(workers: list[THC], gradients: list[torch.Tensor], step: int = 0) -> None:
    """Let workers agree on their norms, as an exchange does."""
    found = [
        one.statistics(x, make_key(step, worker=i)) for i, (one, x) in enumerate(zip(workers, gradients, strict=True))
    ]
    for one in workers:
        one.join(len(workers))
        one.agree(make_key(step), torch.stack(found).amax(0))


# Tables


@pytest.mark.parametrize("case", PUBLISHED)
def test_tables_are_those_of_the_authors_or_better(case: tuple[int, int, float]) -> None:
    bits, granularity, overflow = case
    table, theirs = find_table(*case), PUBLISHED[case]
    assert len(table) == len(set(table)) == 2**bits and (table[0], table[-1]) == (0, granularity)
    mirrored = [tuple(granularity - level for level in reversed(table)), table]
    if theirs in mirrored:
        assert mirrored[0] == mirrored[1]
    else:
        assert 0.99 < compute_error(table, overflow) / compute_error(theirs, overflow) < 0.994


@pytest.mark.parametrize(("bits", "granularity", "overflow"), [(2, 12, 1 / 32), (3, 14, 0.3), (3, 10, 0.001)])
def test_no_other_table_is_better(bits: int, granularity: int, overflow: float) -> None:
    inner = itertools.combinations(range(1, granularity), 2**bits - 2)
    least = min(compute_error((0, *levels, granularity), overflow) for levels in inner)
    assert compute_error(find_table(bits, granularity, overflow), overflow) == pytest.approx(least, abs=1e-11)


def test_the_error_of_a_table_is_that_of_normal_numbers() -> None:
    table, clip = find_table(4, 30, 1 / 32), find_clip(1 / 32)
    assert clip == pytest.approx(2.153874694)  # of the authors' code
    levels = torch.tensor(table).double() * (2 * clip / 30) - clip
    z = torch.linspace(-clip, clip, 200_001, dtype=torch.float64)
    high = torch.bucketize(z, levels).clamp(1, len(levels) - 1)
    errors = (z - levels[high - 1]) * (levels[high] - z) * torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    assert compute_error(table, 1 / 32) == pytest.approx(float(torch.trapezoid(errors, z)), rel=1e-6)


@pytest.mark.parametrize(("bits", "granularity"), [(4, 30), (3, 16)])
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_errors_are_those_of_the_table_and_of_clamping(bits: int, granularity: int, tails: str) -> None:
    x = draw_gaussian((64 * 4096,), 1)
    if tails == "heavy":
        x = x.sign() * x.abs() ** 3
    compressor, clip = THC(bits=bits, granularity=granularity), find_clip(1 / 32)
    found = compressor.decompress(compressor.compress(x, make_key()), x, make_key()).double()
    beyond = (1 + clip**2) / 64 - clip * math.exp(-(clip**2) / 2) / math.sqrt(2 * math.pi)
    expected = compute_error(find_table(bits, granularity, 1 / 32), 1 / 32) + 2 * beyond
    assert float((found - x).square().sum() / x.double().square().sum()) == pytest.approx(expected, rel=0.03)


# Payloads


def test_the_payload_is_that_of_the_rotation_as_a_matrix() -> None:
    """Of a block of 13 elements: each level of the table is a neighbour of the element, and the mean is the element."""
    x, norm = draw_gaussian((13,), 3), draw_gaussian((13,), 3).double().norm()
    coins = draws(make_key().share().mix(), torch.zeros(1, dtype=torch.int64), 1)[0, 0]
    signs = torch.tensor([1.0 - 2 * (int(coins) >> place & 1) for place in range(16)], dtype=torch.float64)
    hadamard = torch.tensor([[(-1.0) ** (i & j).bit_count() for j in range(16)] for i in range(16)]).double()
    z = hadamard @ (signs * torch.cat([x.double(), torch.zeros(3, dtype=torch.float64)])) / norm
    table, clip = torch.tensor(find_table(4, 30, 1 / 32)) - 15, find_clip(1 / 32)
    exact = (z.clamp(-clip, clip) * 15 / clip).clamp(-15, 15)
    above = torch.bucketize(exact, table.double()).clamp(min=1)
    places = [place % 8 * 2 + place // 8 for place in range(16)]
    compressor, samples = THC(), []
    for worker in range(600):
        payload = compressor.compress(x, make_key(worker=worker))
        levels = payload.view(torch.int8)[places].long()
        assert ((levels == table[above]) | (levels == table[above - 1])).all() and len(payload) == 16
        samples.append(levels.double())
    assert find_largest_deviation(torch.stack(samples), exact) < compute_critical_z(16)
    found = compressor.decompress(payload, x, make_key()).double()
    expected = signs * (hadamard @ levels.double()) * float(norm) * 2 * clip / 30 / 16
    torch.testing.assert_close(found, expected[:13], rtol=1e-5, atol=1e-6)


def test_codes_are_the_places_of_the_levels_in_the_table() -> None:
    x, table = draw_gaussian((5000,), 4), torch.tensor(find_table(4, 30, 1 / 32)) - 15
    levels, codes = THC().compress(x, make_key()), THC(sums=False).compress(x, make_key())
    assert len(levels) == 4096 + 1024 and len(codes) == 8 + len(levels) // 2
    places = torch.stack([codes[8:] & 15, codes[8:] >> 4], 1).flatten().long()
    assert torch.equal(table[places], levels.view(torch.int8).long())
    norms = codes[:8].view(torch.float32)
    assert norms.tolist() == pytest.approx([float(x[:4096].norm()), float(x[4096:].norm())])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.sampled_from([(1, 2), (2, 10), (3, 16), (4, 30), (5, 254), (6, 64)]),
    st.sampled_from([16, 64, 1024, 4096]),
    st.booleans(),
    st.integers(0, 9000),
    st.integers(0, 2**32),
    kinds,
)
def test_kernel_and_reference_give_the_same_bits(
    table: tuple[int, int], block: int, sums: bool, count: int, seed: int, kind: str
) -> None:
    compare(THC(bits=table[0], granularity=table[1], block_size=block, sums=sums), count, seed, kind)


# Several workers


@pytest.mark.parametrize("sums", [True, False])
def test_the_mean_over_workers_has_their_error_divided_by_their_number(sums: bool) -> None:
    """Where nothing is clamped: all workers round at random on their own."""
    x, options = draw_gaussian((4096,), 2), {"granularity": 14, "bits": 3, "overflow": 2.0**-20}
    workers = [THC(sums=sums, **options) for _ in range(16)]  # type: ignore[arg-type]
    agree(workers, [x] * 16)
    mean, errors = torch.zeros(4096), []
    for number, one in enumerate(workers):
        payload = one.compress(x, make_key(worker=number))
        errors.append(float((one.decompress(payload, x, make_key()) - x).square().sum()))
        one.decompress_add(payload, mean, make_key(), 1 / 16)
    assert float((mean - x).square().sum()) == pytest.approx(sum(errors) / 16**2, rel=0.1)


def test_sums_in_the_network_are_the_sum_of_what_is_sent() -> None:
    gradients = [(1 + worker) * draw_gaussian((7000,), worker) for worker in range(8)]
    workers, total, apart = [THC() for _ in gradients], torch.zeros(8192, dtype=torch.int8), torch.zeros(7000)
    workers[0].join(1)
    agree(workers, gradients)
    for number, (one, x) in enumerate(zip(workers, gradients, strict=True)):
        payload = one.compress(x, make_key(worker=number))
        total[: len(payload)] += payload.view(torch.int8)
        one.decompress_add(payload, apart, make_key(worker=number), 1 / 8)
    mean = workers[3].decompress(total[: len(payload)].view(torch.uint8), apart, make_key()) / 8
    torch.testing.assert_close(mean, apart, rtol=1e-5, atol=1e-5)
    exact = torch.stack(gradients).mean(0)
    # the norm of worker 8 is the scale of all: relative to it each one's error is that of the table
    assert float((mean - exact).norm() / exact.norm()) < 0.2


def test_the_largest_sum_of_all_workers_fits() -> None:
    x = torch.zeros(4096)
    x[0] = 1.0  # each element of its transform is +1 or -1 in units of the norm, here beyond the levels
    workers = [THC(overflow=0.5) for _ in range(8)]
    agree(workers, [x] * 8)
    sent = torch.stack([one.compress(x, make_key(worker=i)).view(torch.int8) for i, one in enumerate(workers)])
    assert sent.abs().min() == 15 and torch.equal(sent.sum(0).abs(), torch.full((4096,), 120))


@pytest.mark.parametrize(
    ("options", "workers", "valid"),
    [
        (
            {},
            9,
            "adds bytes for 1 to 8 workers; valid is compressor.granularity of at most 28, or compressor.sums=false",
        ),
        (
            {"bits": 3, "granularity": 16},
            16,
            "granularity=16 adds bytes for 1 to 15 workers; valid is compressor.granularity of at",
        ),
        ({}, 16, "granularity=30 adds bytes for 1 to 8 workers; valid is compressor.sums=false"),
    ],
)
def test_too_many_workers_are_refused(options: dict[str, int], workers: int, valid: str) -> None:
    with pytest.raises(ValueError, match=valid):
        THC(**options).join(workers)  # type: ignore[arg-type]
    THC(**options, sums=False).join(workers)  # type: ignore[arg-type]
    assert THC(**options, sums=False).sum_dtype is None and THC(**options).sum_dtype == "int8"  # type: ignore[arg-type]


def test_nothing_is_sent_without_an_agreement_or_decoded_without_norms() -> None:
    one, x = THC(), draw_gaussian((100,))
    one.join(2)
    with pytest.raises(ValueError, match="the workers have not agreed on the norms of unit 0"):
        one.compress(x, make_key())
    with pytest.raises(CorruptPayload, match="the norms of unit 0 are not known"):
        one.decompress(torch.zeros(128, dtype=torch.uint8), x, make_key())
    agree([one, THC()], [x, x])
    assert one.law((100,)) == Law() != THC().law((100,))
    one.compress(x, make_key())
    with pytest.raises(ValueError, match="have not agreed"):
        one.compress(x, make_key(1))  # another step


def test_a_nan_of_another_worker_arrives() -> None:
    x, bad = draw_gaussian((64,)), draw_gaussian((64,), 1)
    bad[20] = math.inf
    for sums in (True, False):
        one, other = THC(block_size=16, sums=sums), THC(block_size=16, sums=sums)
        agree([one, other], [x, bad])
        found = other.decompress(one.compress(x, make_key()), x, make_key())
        assert found[16:32].isnan().all() and found.isnan().sum() == 16


def test_error_feedback_recovers_what_is_clamped() -> None:
    """A constant gradient with a dominant element, whose transform is clamped in each step, arrives in the long run."""
    x = draw_gaussian((512,), 5)
    x[7] = 100.0
    compressor, sent = THC(overflow=0.3), {}
    for name in ("none", "residual"):
        memory, total = build_memory(name), torch.zeros(512)
        memory.begin(1.0, 1, lambda: 0.0)
        for step in range(40):
            given = memory.compensate(0, x, False)
            payload = compressor.compress(given, make_key(step))
            compressor.decompress_add(payload, total, make_key(step), 1 / 40)
            memory.update(make_key(step), given, payload, compressor)
        sent[name] = float((total - x).norm() / x.norm())
    assert sent["residual"] < 0.1 * sent["none"] and sent["none"] > 0.1


def test_options_that_make_no_table_are_refused() -> None:
    for granularity in (31, 14, 12):
        with pytest.raises(
            InvalidParameter, match=rf"granularity={granularity}: valid is an even number from 16 to 254"
        ):
            THC(granularity=granularity)
    with pytest.raises(InvalidParameter, match="block_size=1000: valid is a power of two"):
        THC(block_size=1000)
    assert renew(THC(bits=4, granularity=16)) == THC(granularity=16)
