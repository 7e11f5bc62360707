"""Random subsets: uniform, the same everywhere, and only values on the wire."""

from __future__ import annotations

import itertools
import math
import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
import torch

from compressors import CorruptPayload, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.random_key import splitmix64
from compressors.sparsification.randomk import BlockRandomK, RandomK

CPU = torch.device("cpu")
M32 = 2**32 - 1


def randomk(kernel: str = "auto") -> ModuleType:
    with backend.use(kernel):
        return backend.load("randomk", "cpu")


def by_definition(state: int, n: int, k: int) -> list[int]:
    """The subset in plain Python integers, as the reference's docstring has it."""

    def draw(stream: int, counter: int) -> int:
        mixed = splitmix64(state ^ splitmix64(stream))
        h = (counter + mixed) & M32
        h = ((h ^ h >> 16) * 0x7FEB352D) & M32
        h ^= mixed >> 32
        h = ((h ^ h >> 15) * 0x846CA68B) & M32
        return h ^ h >> 16

    wanted, chosen = min(k, n - k), set()
    for number in itertools.count():
        if len(chosen) == wanted:
            break
        chunk, place = divmod(number, 1024)
        chosen.add(((draw(2 * chunk, place) << 32) + draw(2 * chunk + 1, place)) * n >> 64)
    return sorted(chosen) if wanted == k else sorted(set(range(n)) - chosen)


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (2, 1), (5, 2), (64, 31), (64, 33), (65, 64), (1000, 10), (1000, 990), (5000, 2500)]
)
def test_the_subset_is_the_documented_one(kernel: str, n: int, k: int) -> None:
    for step in range(3):
        bits = make_key(step).mix()
        assert randomk(kernel).subset(bits, n, k, CPU).tolist() == by_definition(bits, n, k)


@pytest.mark.parametrize("n", [100_000, 100_003])
@pytest.mark.parametrize("part", [1e-5, 0.01, 0.5, 0.75, 1.0])
def test_kernels_agree_on_large_subsets(n: int, part: float) -> None:
    k = int(n * part)
    found = randomk().subset(make_key().mix(), n, k, CPU)
    assert torch.equal(found, randomk("torch").subset(make_key().mix(), n, k, CPU))
    assert len(found) == k and bool((found.diff() > 0).all()) and found[0] >= 0 and found[-1] < n


def test_a_subset_does_not_depend_on_those_before_it_nor_on_other_threads() -> None:
    """The room for the map is used again by the same thread."""
    sizes = [(100_000, 1000), (50, 20), (100_000, 99_000), (64, 1), (150_000, 1500), (100_000, 1000)]
    expected = [randomk("torch").subset(make_key().mix(), n, k, CPU) for n, k in sizes]
    kernels = randomk()

    def draw(_: int) -> list[torch.Tensor]:
        return [kernels.subset(make_key().mix(), n, k, CPU) for _ in range(20) for n, k in sizes]

    with ThreadPoolExecutor(4) as threads:
        for found in [draw(0), *threads.map(draw, range(8))]:
            assert all(torch.equal(one, other) for one, other in zip(found, 20 * expected, strict=True))


@pytest.mark.parametrize("n", [1, 3, 65_535, 65_536, 65_539, 200_003])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_everything_is_gathered_and_searched(n: int, dtype: torch.dtype) -> None:
    """The compiled kernel works on four parts at once, in blocks of 16384, and on a rest."""
    x, kernels, selection = draw_gaussian((n,), n), randomk(), backend.load("selection", "cpu")
    part = n // 65_536 * 16_384
    edges = sorted({place + by for place in (0, part, 2 * part, 3 * part, 4 * part, 16_384, n) for by in (-1, 0)})
    edges = [place for place in edges if 0 <= place < n]
    for indices in (torch.arange(n), torch.arange(n)[::7], torch.tensor(edges), torch.arange(n)[n // 2 :]):
        values = torch.empty(len(indices))
        assert kernels.take(x, indices.to(dtype).contiguous(), values)
        assert torch.equal(values, x[indices])
    for place in edges:
        for bad in (math.nan, -math.nan, math.inf, -math.inf):
            y = x.clone()
            y[place] = bad
            values = torch.empty(1)
            assert not kernels.take(y, torch.tensor([n // 2]).to(dtype), values)
            assert not selection.is_finite(y)
        y = x.clone()
        y[place] = -1e30
        assert kernels.take(y, torch.tensor([place]).to(dtype), values) and float(values) == float(y[place])
        assert selection.largest(y) == selection.largest(y, -1) == selection.largest(y[place : place + 1])


def test_numbers_beyond_31_bits_are_drawn_too() -> None:
    """Of the reference alone: a map of so many bits is not for a test."""
    from compressors.kernels.reference.randomk import _numbers

    for n in (2**31 - 1, 2**31, 2**35 + 7):
        numbers = _numbers(make_key().mix(), n, 20, CPU)
        assert int(numbers.min()) >= 0 and int(numbers.max()) < n
        mean = float(numbers.double().mean()) / n
        assert abs(mean - 0.5) < 6 / math.sqrt(12 * len(numbers))


@pytest.mark.parametrize(("n", "k"), [(5, 2), (6, 3), (5, 4), (4, 1)])
def test_all_subsets_are_equally_likely(n: int, k: int) -> None:
    trials = 6000
    found = Counter(tuple(randomk().subset(make_key(step).mix(), n, k, CPU).tolist()) for step in range(trials))
    subsets = list(itertools.combinations(range(n), k))
    expected = trials / len(subsets)
    assert set(found) <= set(subsets)
    # chi-square with len(subsets) - 1 degrees of freedom, as a normal number by Wilson and Hilferty
    freedom = len(subsets) - 1
    chi = sum((found[subset] - expected) ** 2 / expected for subset in subsets)
    z = ((chi / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert -5 < z < 5


def test_places_of_large_subsets_are_even() -> None:
    n, k, trials = 3000, 300, 400
    times = torch.zeros(n)
    for step in range(trials):
        times[randomk().subset(make_key(step).mix(), n, k, CPU)] += 1
    p = k / n
    z = (times - trials * p) / math.sqrt(trials * p * (1 - p))
    assert z.abs().max() < 6 and abs(float(z.square().mean()) - 1) < 0.2


# What travels


@pytest.mark.parametrize("name", ["randomk", "block_randomk"])
def test_only_values_travel(name: str) -> None:
    x = torch.arange(1.0, 41.0)
    for unbiased in (False, True):
        compressor = build(name, ratio=0.25, unbiased=unbiased)
        payload = compressor.compress(x, make_key(5))
        sent = struct.unpack("<10f", bytes(payload.tolist()))
        decoded = compressor.decompress(payload, x, make_key(5))
        kept = decoded.nonzero().flatten()
        assert len(kept) == 10 and sorted(sent) == x[kept].tolist()
        assert torch.equal(decoded[kept], x[kept] * (4.0 if unbiased else 1.0))
        assert compressor.sum_dtype == "float32"


def test_half_floats_are_not_scaled() -> None:
    """n / k is multiplied by the receiver, so 60000 fits although 100 times as much would not."""
    x = torch.full((200,), 60000.0)
    compressor = build("randomk", values="fp16", unbiased=True)
    payload = compressor.compress(x, make_key())
    assert bytes(payload.tolist()) == 2 * struct.pack("<e", 60000.0)
    assert compressor.sum_dtype == "float16"
    assert compressor.decompress(payload, x, make_key()).max() == 6e6
    assert compressor.law((200,)) == type(compressor.law((200,)))()
    assert compressor.decompress(compressor.compress(x * 2, make_key()), x, make_key()).isinf().sum() == 2


@pytest.mark.parametrize("name", ["randomk", "block_randomk"])
@pytest.mark.parametrize("values", ["fp32", "fp16"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_reach_everyone_wherever_they_are(name: str, values: str, bad: float) -> None:
    compressor = build(name, values=values)
    dtype = getattr(torch, compressor.sum_dtype or "")
    x = draw_gaussian((300,))
    good = compressor.compress(x, make_key(worker=1))
    for place in (0, 150, 299):
        y = x.clone()
        y[place] = bad
        payload = compressor.compress(y, make_key())
        assert payload.view(dtype).isnan().all()
        total = (payload.view(dtype) + good.view(dtype)).view(torch.uint8)
        for one in (payload, total):
            assert compressor.decompress(one, x, make_key()).isnan().all()


@pytest.mark.parametrize("name", ["randomk", "block_randomk"])
def test_workers_keep_the_same_elements(name: str) -> None:
    compressor = build(name, ratio=0.1)
    x = draw_gaussian((500,))
    first, second = (compressor.compress(x, make_key(worker=worker)) for worker in (0, 3))
    assert torch.equal(first, second)
    assert not torch.equal(first, compressor.compress(x, make_key(2)))  # of few elements, two steps may keep the same


def test_a_run_wraps_around_and_starts_anywhere() -> None:
    compressor = build("block_randomk", ratio=0.3)
    assert isinstance(compressor, BlockRandomK)
    x = torch.arange(1.0, 11.0)
    starts = Counter()
    for step in range(3000):
        start = compressor.start(10, make_key(step).share())
        starts[start] += 1
        run = {(start + offset) % 10 for offset in range(3)}
        decoded = compressor.decompress(compressor.compress(x, make_key(step)), x, make_key(step))
        assert set(decoded.nonzero().flatten().tolist()) == run
        assert all(decoded[at] == x[at] for at in run)
    assert all(abs(starts[place] - 300) < 6 * math.sqrt(300 * 0.9) for place in range(10))


def test_positions_can_be_asked_for() -> None:
    compressor = build("randomk", ratio=0.5)
    assert isinstance(compressor, RandomK)
    x = draw_gaussian((50,))
    kept = compressor.positions(50, make_key().share(), CPU)
    assert torch.equal(compressor.decompress(compressor.compress(x, make_key()), x, make_key())[kept], x[kept])


@pytest.mark.parametrize("name", ["randomk", "block_randomk"])
def test_the_length_is_known_to_the_byte(name: str) -> None:
    compressor = build(name)
    payload = compressor.compress(draw_gaussian((1000,)), make_key())
    assert len(payload) == 40 == compressor.payload_size((1000,))
    with pytest.raises(CorruptPayload, match="36 bytes"):
        compressor.decompress(payload[:-4], torch.zeros(1000), make_key())
