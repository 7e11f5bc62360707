"""Golomb-Rice codes are read on a GPU as by the reference and by numba, whatever the chunks and groups are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from compressors import flags
from compressors.base import CorruptPayload
from compressors.kernels.cpu import sparse as numba
from tests.compressors.kernels.test_cuda import MODULES, both, interpreter, on_device

FOUND, EXPECTED = both("sparse")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take several groups for short streams, and several blocks of chunks."""
    monkeypatch.setattr(MODULES["rice_codes"], "_LANES", 64)
    monkeypatch.setattr(MODULES["rice_codes"], "_BLOCK", 16)
    with interpreter():
        yield


def write_codes(parameter: int, quotients: torch.Tensor, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return positions whose gaps have these quotients and random low bits, and their codes."""
    low = torch.randint(0, 1 << parameter, quotients.shape, generator=torch.Generator().manual_seed(seed))
    indices = ((quotients << parameter) + low + 1).cumsum(0) - 1
    payload = torch.zeros(int(quotients.sum() + len(quotients) * (1 + parameter) + 7) // 8, dtype=torch.uint8)
    EXPECTED.write_delta(indices, parameter, payload)
    return indices, payload


def read_alike(payload: torch.Tensor, n: int, count: int, parameter: int) -> torch.Tensor | None:
    """Return what all implementations read, from an address that no word has."""
    held = on_device(torch.cat([payload.new_full((3,), 255), payload, payload.new_full((9,), 255)]))
    for is_whole in (True, False):
        results = [
            FOUND.read_delta(held[3 : 3 + len(payload)], n, count, parameter, is_whole),
            EXPECTED.read_delta(payload, n, count, parameter, is_whole),
            numba.read_delta(payload, n, count, parameter, is_whole),
        ]
        first, length = results[0]
        for other, as_long in results[1:]:
            assert (first is None) == (other is None)
            assert first is None or (torch.equal(first.cpu(), other) and length == as_long)
        assert first is None or not is_whole or length == len(payload)
    return first


def read_unchecked(payload: torch.Tensor, n: int, count: int, parameter: int) -> tuple[torch.Tensor, bool]:
    """Return what is read as positions while flags are read together, and whether that is refused in the end."""
    found = None
    try:
        with flags.read_together():
            found, _ = FOUND.read_delta(on_device(payload), n, count, parameter, True)
    except CorruptPayload:
        return found, True
    return found, False


@pytest.mark.parametrize("parameter", range(32))
def test_codes_of_every_parameter_are_read(parameter: int) -> None:
    quotients = (torch.rand(90, generator=torch.Generator().manual_seed(parameter)) * 2.5).long()
    quotients[70] = 2 * 32 * (parameter + 1) + 5  # zeros in several chunks
    indices, payload = write_codes(parameter, quotients, parameter)
    found = read_alike(torch.cat([payload, payload[:9]]), int(indices[-1]) + 1, len(indices), parameter)
    assert found is not None and torch.equal(found.cpu(), indices)


@pytest.mark.parametrize("parameter", [0, 9])
def test_streams_that_are_too_short_or_positions_too_large_are_refused(parameter: int) -> None:
    indices, payload = write_codes(parameter, torch.tensor([3, 0, 50, 1, 0, 0]))
    n = int(indices[-1]) + 1
    assert read_alike(payload, n, 6, parameter) is not None
    assert read_alike(payload, n - 1, 6, parameter) is None
    assert read_alike(payload, n, 7, parameter) is None
    assert read_alike(payload[:-1], n, 6, parameter) is None


@pytest.mark.parametrize("parameter", [0, 6])
def test_codes_that_end_beside_the_ends_of_chunks_and_groups_are_read(parameter: int) -> None:
    chunk = 32 * (parameter + 1)
    for ends in (chunk, (64 - 1) // (parameter + 1) * chunk):
        for shift in (-parameter - 1, -parameter, -1, 0, 1):
            quotients = torch.tensor([max(0, ends + shift - parameter - 1), 0, 1])
            indices, payload = write_codes(parameter, quotients, shift)
            found = read_alike(payload, int(indices[-1]) + 1, 3, parameter)
            assert found is not None and torch.equal(found.cpu(), indices)


@pytest.mark.parametrize("parameter", [0, 2, 7])
def test_runs_of_equal_bits_are_read(parameter: int) -> None:
    """A chunk of ones means different codes for every state; in zeros no code ends."""
    n = 2**47
    for size in (1, 50):
        most = 8 * size // (parameter + 1)
        for count in (0, 1, most, most + 1):
            read_alike(torch.full((size,), 255, dtype=torch.uint8), n, count, parameter)
            read_alike(torch.zeros(size, dtype=torch.uint8), n, count, parameter)
    assert read_alike(torch.zeros(0, dtype=torch.uint8), 5, 0, parameter) is not None
    assert read_alike(torch.zeros(0, dtype=torch.uint8), 5, 1, parameter) is None


@pytest.mark.parametrize("parameter", [0, 3, 11])
def test_payloads_that_no_encoder_writes_are_judged_alike(parameter: int) -> None:
    generator = torch.Generator().manual_seed(parameter)
    indices, good = write_codes(parameter, torch.randint(0, 3, (40,), generator=generator))
    n = int(indices[-1]) + 1
    judged = []
    for _ in range(6):
        payload = good.clone()
        at = int(torch.randint(0, len(good), (1,), generator=generator))
        payload[at] ^= 1 << int(torch.randint(0, 8, (1,), generator=generator))
        judged.append(read_alike(payload, n, len(indices), parameter) is None)
        noise = torch.randint(0, 256, (at + 1,), generator=generator).to(torch.uint8)
        some_codes = min(n, 4 * (at + 1) // (parameter + 1))
        for some, count in ((good, len(indices)), (payload, len(indices)), (noise, some_codes)):
            read_alike(some, n, count, parameter)
            expected = EXPECTED.read_delta(some, n, count, parameter, True)[0]
            if count:
                found, refused = read_unchecked(some, n, count, parameter)
                assert refused == (expected is None) and bool(((found >= 0) & (found < n)).all())
    assert any(judged)
