"""Bitmaps and packed positions are read on a GPU as by the reference, and random subsets are drawn in several steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from compressors import flags
from compressors.conformance.cases import make_key
from tests.compressors.kernels.test_cuda import DEVICE, MODULES, both, interpreter, on_device

FOUND, EXPECTED = both("sparse")


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    with interpreter():
        yield


def judge_alike(expected: torch.Tensor | None, found: torch.Tensor | None) -> None:
    assert (expected is None) == (found is None)
    assert expected is None or found is None or torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("n", [1, 7, 8, 4096, 9001])
def test_bitmaps_are_read_or_refused_as_by_the_reference(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    payload = torch.randint(0, 256, (-(-n // 8),), generator=generator).to(torch.uint8)
    for last in (payload[-1] & ((1 << (n - 1) % 8 + 1) - 1), 1 << 7, 255):
        payload[-1] = last
        kept = int(EXPECTED._unpack_bits(payload).sum())
        for count in (kept, kept - 1, kept + 1):
            if 0 <= count <= n:
                judge_alike(EXPECTED.read_bitmap(payload, n, count), FOUND.read_bitmap(on_device(payload), n, count))


@pytest.mark.parametrize(("elements", "kept", "number"), [(5, 2, 7), (64, 3, 300), (1000, 999, 1), (4096, 1, 600)])
def test_packed_positions_are_read_or_refused_as_by_the_reference(elements: int, kept: int, number: int) -> None:
    generator = torch.Generator().manual_seed(elements)
    inside = torch.rand(number, elements, generator=generator).topk(kept).indices.sort(dim=1).values
    indices = (inside + elements * torch.arange(number)[:, None]).flatten()
    width = (elements - 1).bit_length()
    payload = torch.zeros((number * kept * width + 7) // 8, dtype=torch.uint8)
    EXPECTED.write_packed(indices, elements, width, payload)
    written = on_device(torch.ones_like(payload))
    FOUND.write_packed(on_device(indices), elements, width, written)
    assert torch.equal(written.cpu(), payload)
    blocks = number, elements, kept, width
    judge_alike(indices, FOUND.read_packed(written, *blocks))
    for at in (0, len(payload) // 2, len(payload) - 1):
        for bit in (0, 7):
            wrong = payload.clone()
            wrong[at] ^= 1 << bit
            judge_alike(EXPECTED.read_packed(wrong, *blocks), FOUND.read_packed(on_device(wrong), *blocks))


def test_positions_that_are_refused_later_lie_in_the_tensor() -> None:
    ones = on_device(torch.full((40,), 255, dtype=torch.uint8))
    with flags.unread():
        found = FOUND.read_int32(ones, 17), FOUND.read_bitmap(ones, 317, 300), FOUND.read_packed(ones, 5, 9, 3, 4)
    for indices, n in zip(found, (17, 317, 45), strict=True):
        assert indices.min() >= 0 and indices.max() < n


@pytest.mark.parametrize(("n", "k"), [(3000, 60), (3000, 1400), (3000, 1500), (3000, 2999), (70_001, 700)])
def test_subsets_are_drawn_in_several_steps(monkeypatch: pytest.MonkeyPatch, n: int, k: int) -> None:
    found, expected = both("randomk")
    monkeypatch.setattr(found, "_FEW", 20)
    monkeypatch.setattr(found, "_TILE", 64)
    for seed in (1, 2):
        key = make_key(seed).mix()
        subset = found.subset(key, n, k, torch.device(DEVICE))
        assert torch.equal(subset.cpu(), expected.subset(key, n, k, torch.device("cpu")))


def test_a_wrong_guess_of_what_is_missing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = both("randomk")
    monkeypatch.setattr(found, "_TILE", 64)
    key = make_key(3).mix()
    for guesses in ([1], [5000, 2, 9, 9, 9]):
        monkeypatch.setattr(found, "_guess_missing", lambda n, wanted, guesses=guesses: guesses)
        subset = found.subset(key, 2000, 500, torch.device(DEVICE))
        assert torch.equal(subset.cpu(), expected.subset(key, 2000, 500, torch.device("cpu")))


@pytest.mark.parametrize("largest", [1, 300, 2**16, 2**40])
def test_the_best_parameter_is_found_from_counts_of_bits(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    monkeypatch.setattr(FOUND, "_BLOCK", 64)
    monkeypatch.setattr(FOUND, "_PROGRAMS", 2)
    for count in (1, 64, 3000):
        gaps = torch.randint(0, largest, (count,), generator=torch.Generator().manual_seed(count))
        indices = (gaps + 1).cumsum(0) - 1
        assert FOUND.rice(on_device(indices)) == EXPECTED.rice(indices)
    assert MODULES["sparse"].rice(on_device(torch.empty(0, dtype=torch.int64))) == (0, 0)
