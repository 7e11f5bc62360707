"""The random numbers: fixed for ever, uniform, and independent between everything that has a name."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from compressors import Key
from compressors.kernels.cpu.primitives import streams
from compressors.kernels.cpu.primitives.jit import kernel
from compressors.kernels.reference.primitives import streams as reference
from compressors.kernels.uniform import uniform
from compressors.random_key import splitmix64

COUNT = 512  # draws taken from one stream: a bucket of qsgd
ERROR = 1e-6  # of every single test below: how often right numbers fail it


@kernel("void(uint64, uint64, uint32[:, ::1])")
def _fill(key: np.uint64, first: np.uint64, out: npt.NDArray[np.uint32]) -> None:
    for row in range(out.shape[0]):
        bits = streams.stream_bits(key, np.uint64(first + np.uint64(row)))
        for counter in range(out.shape[1]):
            out[row, counter] = streams.draw(np.uint32(bits), np.uint32(bits >> np.uint64(32)), np.uint32(counter))


def table(key: Key, first: int = 0, rows: int = 1, columns: int = COUNT) -> npt.NDArray[np.uint32]:
    """(rows, columns): the beginnings of `rows` successive streams of `key`."""
    out = np.empty((rows, columns), np.uint32)
    _fill(np.uint64(key.mix()), np.uint64(first), out)
    return out


def normal_tail(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def chi_square_tail(statistic: float, degrees: int) -> float:
    """P(chi-square with `degrees` > statistic) or of being smaller, whichever is less, doubled."""
    upper = float(
        torch.special.gammaincc(torch.tensor(degrees / 2.0), torch.tensor(statistic / 2, dtype=torch.float64))
    )
    return 2 * min(upper, 1 - upper)


def uniformity(values: npt.NDArray[np.uint32], shift: int) -> float:
    """p-value of chi-square for 256 equal cells of the bits [shift, shift + 8)."""
    counts = np.bincount((values.reshape(-1) >> np.uint32(shift)) & np.uint32(255), minlength=256)
    expected = values.size / 256
    return chi_square_tail(float(((counts - expected) ** 2).sum() / expected), 255)


def dependence(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> float:
    """p-value of two tests of a pair of equally long samples: correlation, and chi-square of 16 x 16 cells."""
    x, y = (v.reshape(-1) / 2.0**32 - 0.5 for v in (a, b))
    correlation = normal_tail(12 * float((x * y).sum()) / math.sqrt(len(x)))
    cells = (a.reshape(-1) >> np.uint32(28)) * np.uint32(16) + (b.reshape(-1) >> np.uint32(28))
    counts = np.bincount(cells, minlength=256)
    expected = len(x) / 256
    return min(correlation, chi_square_tail(float(((counts - expected) ** 2).sum() / expected), 255)) * 2


START = Key(seed=1, worker=2, step=3, unit=4)
NEIGHBOURS = [dataclasses.replace(START, **{f: getattr(START, f) + 1}) for f in ("seed", "worker", "step", "unit")]


def test_the_numbers_never_change() -> None:
    """A run resumed by a later version must draw what the earlier one would have drawn."""
    assert START.mix() == 0xD55CCD4AEB3CCAFB
    assert table(START, 5)[0, :3].tolist() == [3221052567, 2864500116, 3282020190]
    assert uniform(7, 2).tolist() == [0.3898297483912715, 0.01678829452815611]
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the first number of the published generator


@pytest.mark.parametrize("key", [0, 1, 2**64 - 1, 0x9E3779B97F4A7C15])
@pytest.mark.parametrize("number", [0, 1, 2**33])
def test_kernel_and_reference_draw_the_same(key: int, number: int) -> None:
    out = np.empty((1, 2000), np.uint32)
    _fill(np.uint64(key), np.uint64(number), out)
    assert out[0].tolist() == reference.draws(key, torch.tensor([number]), 2000)[0].tolist()


def test_every_part_of_a_key_counts() -> None:
    keys = [Key(*(index // 6**place % 6 - 1 for place in range(4))) for index in range(6**4)]
    assert len({key.mix() for key in keys}) == len(keys)
    assert Key(2**70, -1, 2**63, 0).mix() < 2**64


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_draws_are_uniform(shift: int) -> None:
    assert uniformity(table(START, rows=4000), shift) > ERROR
    assert uniformity(table(START, columns=2_000_000), shift) > ERROR
    # The same place in successive streams, and the first streams of successive steps.
    assert uniformity(table(START, rows=1_000_000, columns=1), shift) > ERROR
    steps = [table(dataclasses.replace(START, step=step), columns=64) for step in range(4000)]
    assert uniformity(np.stack(steps), shift) > ERROR


def test_draws_reach_everywhere() -> None:
    draws = table(START, rows=4000)
    bits = ((draws.reshape(-1)[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).mean(0)
    assert (np.abs(bits - 0.5) * 2 * math.sqrt(draws.size) < 6).all()
    assert draws.min() < 2**14 and draws.max() > 2**32 - 2**14


@pytest.mark.parametrize("other", NEIGHBOURS, ids=["seed", "worker", "step", "unit"])
def test_keys_that_differ_in_one_part_are_independent(other: Key) -> None:
    a, b = table(START, rows=2000), table(other, rows=2000)
    assert dependence(a, b) > ERROR
    assert dependence(a[1:], b[:-1]) > ERROR


@pytest.mark.parametrize("lag", [1, 2, 7, 256])
def test_neighbouring_streams_and_elements_are_independent(lag: int) -> None:
    draws = table(START, rows=4000)
    assert dependence(draws[lag:], draws[:-lag]) > ERROR
    assert dependence(draws[:, lag:], draws[:, :-lag]) > ERROR


def test_streams_that_start_at_the_same_point_are_independent() -> None:
    """Streams whose low halves are equal differ by their high halves alone; and where the low halves are
    a few elements apart, one stream must not be the other one moved."""
    low, rows = np.uint32(0x12345678), 3000
    rng = np.random.default_rng(5)
    first, second = (rng.integers(0, 2**32, rows, dtype=np.uint32) for _ in range(2))
    same, moved, other = (np.empty((rows, COUNT), np.uint32) for _ in range(3))
    for row in range(rows):
        same[row] = stream_of_halves(int(low), int(first[row]))
        moved[row] = stream_of_halves(int(low) + 3, int(second[row]))
        other[row] = stream_of_halves(int(low), int(second[row]))
    assert dependence(same, other) > ERROR
    assert dependence(same[:, 3:], moved[:, :-3]) > ERROR


def stream_of_halves(low: int, high: int) -> npt.NDArray[np.uint32]:
    out = np.empty(COUNT, np.uint32)
    _row(np.uint32(low & 0xFFFFFFFF), np.uint32(high), out)
    return out


@kernel("void(uint32, uint32, uint32[::1])")
def _row(low: np.uint32, high: np.uint32, out: npt.NDArray[np.uint32]) -> None:
    for counter in range(out.size):
        out[counter] = streams.draw(low, high, np.uint32(counter))


def test_the_tests_find_bad_numbers() -> None:
    draws = table(START, rows=4000)
    assert uniformity(draws & np.uint32(0xFEFFFFFF), 24) < 1e-12
    assert dependence(draws, draws) < 1e-12
    assert dependence(draws, ~draws) < 1e-12


def test_uniform_is_uniform() -> None:
    values = np.concatenate([uniform(Key(0, worker, 1, 2).mix(), 500) for worker in range(2000)])
    assert values.min() >= 0.0 and values.max() < 1.0
    assert uniformity((values * 2.0**32).astype(np.uint32), 24) > ERROR
    assert uniformity((values * 2.0**53).astype(np.uint64).astype(np.uint32), 0) > ERROR
    drawn = (values * 2.0**32).astype(np.uint32)
    assert dependence(drawn[1:], drawn[:-1]) > ERROR
    assert dependence(drawn[500:], drawn[:-500]) > ERROR
    assert len(uniform(3, 0)) == 0
