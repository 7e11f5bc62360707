"""The Triton kernels: the bits of the reference, on a GPU or, where there is none, in Triton's interpreter.

test_compiled_kernels.py compiles them as well.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from compressors import Compressor, CorruptPayload, build
from compressors.conformance.cases import CASES, draw_gaussian, format_case, make_key, renew
from compressors.kernels import backend
from compressors.kernels import elias_omega as codes
from tests.compressors.arithmetic import LIBRARY, LINEAR_ALGEBRA, Arithmetic

DEVICE = "cuda" if torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET") else "cpu"
if "triton" in sys.modules and DEVICE == "cpu" and not os.environ.get("TRITON_INTERPRET"):
    pytest.skip("triton was imported before its interpreter could be chosen", allow_module_level=True)


@contextlib.contextmanager
def interpreter() -> Iterator[None]:
    """What is imported here runs in the interpreter, where there is no GPU."""
    before = os.environ.get("TRITON_INTERPRET")
    if DEVICE == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("TRITON_INTERPRET", None)


with interpreter():
    triton = pytest.importorskip("triton", reason="needs Triton")
    from compressors.kernels import cuda

    MODULES: dict[str, ModuleType] = {
        module.name.rpartition(".")[2]: importlib.import_module(module.name)
        for module in pkgutil.walk_packages(cuda.__path__, f"{cuda.__name__}.")
    }
    import triton.language as tl

    from compressors.kernels.cuda.primitives.elias_codes import omega, or_bits, read_omega

    @triton.jit
    def write_omegas(value: tl.tensor, begin: tl.tensor, words: tl.tensor) -> None:
        place = tl.arange(0, 64)
        code, length = omega(tl.load(value + place))
        or_bits(words, tl.load(begin + place), code, length > 0)

    @triton.jit
    def read_omegas(words: tl.tensor, begin: tl.tensor, value: tl.tensor, end: tl.tensor) -> None:
        place = tl.arange(0, 64)
        number, behind = read_omega(words, tl.load(begin + place))
        tl.store(value + place, number)
        tl.store(end + place, behind)


@pytest.fixture(autouse=True)
def triton_for_every_tensor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`backend` chooses Triton for the tensors of these tests, and what is imported late is interpreted too."""
    monkeypatch.setattr(backend, "_DEVICES", {"triton": DEVICE})
    if DEVICE == "cpu":  # a symbol takes the interpreter half a tenth of a second
        monkeypatch.setattr(MODULES["elias"], "_LONGEST", 100)
    with interpreter():
        yield


def on_device(x: torch.Tensor) -> torch.Tensor:
    return x.to(DEVICE)


def both(method: str) -> tuple[ModuleType, ModuleType]:
    """The kernels of a method in Triton and the reference."""
    folder = "reference.primitives" if "primitives" in MODULES[method].__name__ else "reference"
    return MODULES[method], importlib.import_module(f"compressors.kernels.{folder}.{method}")


INPUTS = {
    "normal": draw_gaussian,
    "wide": lambda shape: draw_gaussian(shape) * torch.logspace(-44, 30, math.prod(shape)).view(shape),
    "sparse": lambda shape: draw_gaussian(shape) * (draw_gaussian(shape, 1) > 1.5),
    "zeros": torch.zeros,
    "equal": lambda shape: torch.full(shape, -0.3),
    "nan": lambda shape: spoilt(shape, math.nan),
    "inf": lambda shape: spoilt(shape, -math.inf),
}


def spoilt(shape: tuple[int, ...], value: float) -> torch.Tensor:
    x = draw_gaussian(shape)
    x.view(-1)[x.numel() // 2 : x.numel() // 2 + 1] = value
    return x


def outcome(compressor: Compressor, x: torch.Tensor, kernels: str) -> tuple[torch.Tensor, torch.Tensor] | str:
    """Payload, and what decoding adds to a tensor that is not zero, with all NaN made the same; or the error."""
    backend.choose(kernels)
    try:
        out = draw_gaussian(tuple(x.shape), 9).to(x.device)
        with Arithmetic() as arithmetic:
            payload = compressor.compress(x, make_key(3))
            compressor.decompress_add(payload, out, make_key(3), 0.3)
        assert not arithmetic.found or compressor.name in LINEAR_ALGEBRA
    except FloatingPointError as error:
        return str(error)
    finally:
        backend.choose("auto")
    return payload.cpu(), torch.where(out.isnan(), math.nan, out).view(torch.int32).cpu()


def uses_triton(case: tuple[str, dict[str, Any]]) -> bool:
    """Whether a module that the method loads exists for Triton."""
    loaded = []
    original = backend.load
    with pytest.MonkeyPatch.context() as patch, backend.use("torch"):
        patch.setattr(backend, "load", lambda name, device: loaded.append(name) or original(name, device))
        x = draw_gaussian((24, 40))
        compressor = build(case[0], **case[1])
        compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    return any(name in MODULES for name in loaded)


TRITON_CASES = [case for case in CASES if uses_triton(case)]
LONG_BUCKETS: list[tuple[str, dict[str, Any]]] = [
    ("qsgd", {"bucket_size": 8192, "norm": "l2", "levels": 500}),
    ("int8", {"bucket_size": 8192}),
    ("int8", {"bucket_size": 4500, "scheme": "symmetric", "stochastic": True}),
    ("dynamic8", {"bucket_size": 8192}),
    ("fp8", {"bucket_size": 8192}),
    ("fp8", {"bucket_size": 4500, "format": "e5m2", "stochastic": True}),
    ("onebit", {"bucket_size": 8192}),
    ("nuqsgd", {"bucket_size": 8192}),
    ("qsgd", {"bucket_size": 8192, "coding": "elias"}),
    ("qsgd", {"bucket_size": 8192, "coding": "elias", "levels": 1, "norm": "l2"}),
]
ELIAS: list[tuple[str, dict[str, Any]]] = [
    ("qsgd", {"bucket_size": 32, "coding": "elias"}),
    ("qsgd", {"bucket_size": 8, "coding": "elias", "levels": 32767, "norm": "l2"}),
]
BITWISE = [case for case in TRITON_CASES if case[0] not in (LIBRARY if DEVICE == "cpu" else LIBRARY | LINEAR_ALGEBRA)]
every_case = pytest.mark.parametrize("compressor", BITWISE, ids=format_case, indirect=True)


def test_methods_have_triton_kernels() -> None:
    assert {"qsgd", "terngrad", "onebit", "natural", "nuqsgd", "topk", "randomk"} <= {name for name, _ in TRITON_CASES}
    for method in ("qsgd", "selection"):
        assert backend.select(method, DEVICE) == "triton"


@every_case
def test_triton_gives_the_bits_of_the_reference(compressor: Compressor) -> None:
    for shape in [(0,), (1,), (7,), (513,), (33, 47)]:
        agree(compressor, on_device(draw_gaussian(shape)))


@every_case
def test_triton_gives_the_bits_of_the_reference_for_special_values(compressor: Compressor) -> None:
    for values in ("wide", "sparse", "zeros", "equal", "nan", "inf"):
        agree(compressor, on_device(INPUTS[values]((700,))))


@pytest.mark.parametrize("compressor", LONG_BUCKETS, ids=format_case, indirect=True)
def test_buckets_that_take_several_programs_give_the_bits_of_the_reference(compressor: Compressor) -> None:
    for values in ("normal", "nan"):
        agree(compressor, on_device(INPUTS[values]((9001,))))


def agree(compressor: Compressor, x: torch.Tensor) -> None:
    found, expected = (
        outcome(renew(compressor), x, "auto"),
        outcome(renew(compressor), x.cpu(), "torch"),
    )
    if isinstance(expected, str):
        assert found == expected
        return
    assert torch.equal(found[0], expected[0]), "payload"
    assert torch.equal(found[1], expected[1]), "decoded"


@pytest.mark.parametrize("compressor", ELIAS, ids=format_case, indirect=True)
def test_streams_of_elias_codes_are_those_of_the_reference(compressor: Compressor) -> None:
    for values in ("normal", "sparse", "nan"):
        agree(compressor, on_device(INPUTS[values]((333,))))


@pytest.mark.parametrize("compressor", [*TRITON_CASES, *ELIAS], ids=format_case, indirect=True)
def test_payloads_that_no_encoder_writes_are_judged_alike(compressor: Compressor) -> None:
    """Random bytes and flipped bits: refused by both or decoded alike, and nothing is written beside `out`."""
    x = on_device(draw_gaussian((700,)))
    good = compressor.compress(x, make_key())
    generator = torch.Generator().manual_seed(0)
    for trial in range(12):
        payload = good.clone()
        if trial % 3 == 0:
            payload = on_device(torch.randint(0, 256, good.shape, generator=generator).to(torch.uint8))
        else:
            place = int(torch.randint(0, len(good), (1,), generator=generator))
            payload[place] ^= 1 << (trial % 8) if trial % 3 == 1 else 255
        results = []
        for kernels in ("auto", "torch"):
            around = on_device(torch.zeros(900))
            backend.choose(kernels)
            try:
                renew(compressor).decompress_add(payload, around[100:800], make_key())
                results.append(torch.where(around.isnan(), math.nan, around).view(torch.int32))
            except CorruptPayload:
                results.append(None)
            finally:
                backend.choose("auto")
            assert not around[:100].any() and not around[800:].any()
        found, expected = results
        assert (found is None) == (expected is None)
        if expected is not None and compressor.name in LIBRARY:  # its products are rounded otherwise
            pair = found.view(torch.float32), expected.view(torch.float32)
            finite = (
                pair[0].isfinite() & pair[1].isfinite()
            )  # random bytes are huge numbers: which overflow differs too
            torch.testing.assert_close(pair[0][finite], pair[1][finite])
        else:
            assert expected is None or torch.equal(found, expected)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 4095, 4096, 4097, 70_001])
def test_sums_are_those_of_the_reference(count: int) -> None:
    found, expected = both("sums")
    x = on_device(draw_gaussian((count,)))
    assert found.moments(x) == expected.moments(x)


def test_totals_of_many_chunks_are_summed_by_the_same_rule() -> None:
    found, expected = MODULES["sums"], both("sums")[1]
    totals = on_device(draw_gaussian((2, 5000)).double())
    assert found.combine(totals).tolist() == [float(expected.total(row)) for row in totals]


@pytest.mark.parametrize("values", ["normal", "equal", "sparse", "nan"])
@pytest.mark.parametrize("side", [0, 1, -1])
def test_selections_are_those_of_the_reference(monkeypatch: pytest.MonkeyPatch, values: str, side: int) -> None:
    found, expected = both("selection")
    monkeypatch.setattr(found, "_SMALL", 0)
    for count in (1, 4100, 33_000):  # the last one with candidates that suffice, if few are wanted
        x = on_device(INPUTS[values]((count,)))
        assert found.largest(x, side) == expected.largest(x, side)
        for k in (0, count // 100, count // 2, count + 1):
            assert torch.equal(found.topk(x, k, side), expected.topk(x, k, side))
        for threshold in (1, 0x3F800000, 0x7F800000):
            assert found.count_above(x, threshold, side) == expected.count_above(x, threshold, side)
            for capacity in (0, count // 5, count):
                pair = [kernels.collect_above(x, threshold, capacity, side) for kernels in (found, expected)]
                assert (pair[0] is None) == (pair[1] is None)
                assert pair[0] is None or torch.equal(*pair)


def test_nothing_is_selected_from_nothing() -> None:
    found = MODULES["selection"]
    empty = on_device(torch.empty(0))
    assert found.largest(empty) == 0 and found.is_finite(empty) and found.count_above(empty, 1) == 0
    assert len(found.topk(empty, 3)) == len(found.collect_above(empty, 1, 0)) == 0


@pytest.mark.parametrize(("n", "kept"), [(1, 1), (50, 1), (3000, 700), (100_000, 1500), (2**31 + 5, 40), (2**40, 3)])
def test_positions_are_written_and_read_as_by_the_reference(n: int, kept: int) -> None:
    found, expected = both("sparse")
    generator = torch.Generator().manual_seed(n)
    indices = on_device(torch.randint(0, n, (kept,), generator=generator).unique())
    count = len(indices)
    parameter, bits = found.rice(indices)
    assert (parameter, bits) == expected.rice(indices)
    for chosen in {parameter, min(parameter + 3, 31), 31}:
        size = int(((indices.diff(prepend=indices.new_full((1,), -1)) - 1 >> chosen) + 1 + chosen).sum() + 7) // 8
        if size > 10_000:
            continue
        payloads = on_device(torch.full((2, size), 0xA5, dtype=torch.uint8))
        found.write_delta(indices, chosen, payloads[0])
        expected.write_delta(indices, chosen, payloads[1])
        assert torch.equal(*payloads)
        assert torch.equal(found.read_delta(payloads[0], n, count, chosen)[0], indices)
    if n <= 2**32:
        payloads = on_device(torch.full((2, 4 * count), 0xA5, dtype=torch.uint8))
        found.write_int32(indices, payloads[0])
        expected.write_int32(indices, payloads[1])
        assert torch.equal(*payloads) and torch.equal(found.read_int32(payloads[0], n), indices)
        assert found.read_int32(payloads[0], int(indices[-1])) is None
        if count > 1:
            twice = torch.cat([payloads[0][:4], payloads[0][: 4 * count - 4]])
            assert found.read_int32(twice, n) is None and expected.read_int32(twice, n) is None
    if n <= 2**20:
        payloads = on_device(torch.full((2, -(-n // 8)), 0xA5, dtype=torch.uint8))
        found.write_bitmap(indices, payloads[0])
        expected.write_bitmap(indices, payloads[1])
        assert torch.equal(*payloads) and torch.equal(found.read_bitmap(payloads[0], n, count), indices)
        values, outs = on_device(draw_gaussian((count,))), on_device(draw_gaussian((1, n), 1)).repeat(2, 1)
        found.add_at(indices, values, 0.3, outs[0])
        expected.add_at(indices, values, 0.3, outs[1])
        assert torch.equal(*outs)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (1000, 10), (1000, 990), (5000, 2500), (2**31, 50), (2**33, 50)])
def test_random_subsets_are_those_of_the_reference(n: int, k: int) -> None:
    found, expected = both("randomk")
    device = torch.device(DEVICE)
    assert torch.equal(found.subset(make_key(1).mix(), n, k, device), expected.subset(make_key(1).mix(), n, k, device))


@pytest.mark.parametrize("count", [1, 4, 1000])
def test_samples_are_those_of_the_reference(count: int) -> None:
    found, expected = both("sampling")
    for size in (1, 700, 2**20 + 1):
        x = on_device(torch.arange(size, dtype=torch.float32))
        assert torch.equal(found.sample(x, make_key(2).mix(), count), expected.sample(x, make_key(2).mix(), count))


@pytest.mark.parametrize("values", ["normal", "equal", "sparse", "wide", "zeros"])
def test_statistics_of_exceedances_are_those_of_the_reference(values: str) -> None:
    found, expected = both("exceedances")
    for count in (0, 1, 17, 4097):
        x = on_device(INPUTS[values]((count,)))
        assert found.logarithms(x) == expected.logarithms(x)
        for location in (0.0, 1.7, 1e30):
            threshold = torch.tensor(location).view(torch.int32).item()
            assert found.moments_above(x, threshold, location) == expected.moments_above(x, threshold, location)


def test_products_of_many_chunks_are_taken_by_the_same_rule() -> None:
    found, expected = both("exceedances")
    x = on_device(draw_gaussian((90_000,)))
    assert found.logarithms(x) == expected.logarithms(x)


def test_histograms_that_are_counted_in_parts_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = both("sketch")
    monkeypatch.setattr(found, "_RUN", 1000)
    payloads = on_device(torch.zeros(2, 4 * 256 + 5003, dtype=torch.uint8))
    for values in ("normal", "equal"):
        x = on_device(INPUTS[values]((5003,)))
        found.encode(x, 256, payloads[0])
        expected.encode(x, 256, payloads[1])
        assert torch.equal(*payloads)


def test_omega_codes_of_every_length_are_written_and_read() -> None:
    """In a payload the largest numbers would be gaps of 2^32 elements."""
    numbers = [1, 2, 3, 4, 15, 16, 31, 32, 255, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
    value = on_device(torch.tensor((numbers * 5)[:64]))
    begin = on_device(47 * torch.arange(64) + 13)
    words = on_device(torch.zeros(47 * 2 + 10, dtype=torch.int32))
    found = torch.zeros_like(value), torch.zeros_like(value)
    MODULES["launch"].launch(write_omegas, 1, value, begin, words)
    MODULES["launch"].launch(read_omegas, 1, words, begin, *found)
    bits = "".join(map(str, both("packing")[1].unpack(words.view(torch.uint8), 32 * len(words), 1).tolist()))
    for number, first in zip(value.tolist(), begin.tolist(), strict=True):
        assert bits[first : first + 47] == codes.code(number).ljust(47, "0")
    assert torch.equal(found[0], value)
    assert (found[1] - begin).tolist() == [codes.length(number) for number in value.tolist()]


@pytest.mark.parametrize("values", ["normal", "equal", "wide", "nan"])
def test_splits_and_draws_of_atomo_are_those_of_the_reference(values: str) -> None:
    found, expected = both("atomo")
    for count in (0, 1, 5003):
        x = on_device(INPUTS[values]((count,)))
        for threshold in (1, 0x3F000000, 0x7F800000):
            scale = torch.tensor(threshold, dtype=torch.int32).view(torch.float32).item()
            assert found.split_at(x, threshold) == expected.split_at(x, threshold)
            drawn = [kernels.draw_kept(x, make_key(1).mix(), scale, threshold, 1.0) for kernels in (found, expected)]
            assert torch.equal(*drawn)


def test_modules_offer_what_their_namesakes_do() -> None:
    """The functions of the reference, with the same parameters; helpers, and PowerSGD for all units at once, aside."""
    for name, module in MODULES.items():
        if name in ("scales", "hadamard", "powersgd") or "primitives" in module.__name__:
            continue
        found, expected = both(name)
        for function, body in vars(expected).items():
            if function.startswith("_") or getattr(body, "__module__", "") != expected.__name__:
                continue
            if not hasattr(importlib.import_module(f"compressors.kernels.cpu.{name}"), function):
                continue
            assert inspect.signature(getattr(found, function)) == inspect.signature(body), (name, function)


@pytest.mark.parametrize("width", range(1, 17))
def test_codes_of_every_width_are_packed_as_by_the_reference(width: int) -> None:
    found, expected = both("packing")
    for count in (1, 7, 8, 9, 1001):
        codes = torch.randint(0, 1 << width, (count,), generator=torch.Generator().manual_seed(width))
        codes = on_device(codes.to(torch.int32))
        packed = found.pack_codes(codes, width)
        assert torch.equal(packed, expected.pack(codes, width))
        assert torch.equal(found.unpack_codes(packed, count, width), codes)
