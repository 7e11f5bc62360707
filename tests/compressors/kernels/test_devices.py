"""Tensors on different devices, and which kernels are at work. There may be no GPU here: whether memory can be worked
on is asked in one place, `buffers.is_on`, which these tests let answer as if the caller's were elsewhere."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import pytest
import torch

from compressors import Compressor, InvalidParameter, build, lazy
from compressors.commands import single_worker
from compressors.commands.bench_timing import Gradients, Worker
from compressors.conformance.cases import draw_gaussian, every_compressor, make_key, renew
from compressors.kernels import backend, buffers, warm_up
from compressors.low_rank.linear_algebra import thin_products as products
from compressors.policy.policy import Policy, Selector
from tests.compressors.arithmetic import LINEAR_ALGEBRA, Arithmetic

KERNELS = Path(backend.__file__).parent


@pytest.mark.thorough
@every_compressor
def test_payloads_come_from_and_go_to_memory_of_another_device(
    compressor: Compressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = draw_gaussian((24, 40))
    expected = single_worker.encode(renew(compressor), x, make_key())
    mean = torch.zeros_like(x)
    alone_there = renew(compressor)
    message = torch.full((compressor.payload_bound(x.shape) + 5,), 0xA5, dtype=torch.uint8)
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(buffers, "is_on", lambda tensor, device: bool(asked.append(tensor)))
    payload = single_worker.encode(alone_there, x, make_key(), message)
    assert torch.equal(payload, expected)
    assert payload.data_ptr() == message.data_ptr() and (message[len(payload) :] == 0xA5).all()
    assert any(tensor is message for tensor in asked)
    asked.clear()
    alone_there.decompress_add(payload, mean, make_key())
    assert any(tensor is payload for tensor in asked)
    monkeypatch.undo()
    assert torch.equal(mean, alone_there.decompress(payload, x, make_key()))


def test_what_is_elsewhere_is_copied_once() -> None:
    meta = torch.device("meta")
    payload = torch.arange(6, dtype=torch.uint8)
    assert buffers.receive(payload, payload.device).data_ptr() == payload.data_ptr()
    assert buffers.receive(payload, meta).device == meta
    out = torch.zeros(9, dtype=torch.uint8)
    there = buffers.prepare(out, 6, meta)
    assert there.device == meta and len(there) == 6
    own = buffers.prepare(out, 6, out.device)
    assert own.data_ptr() == out.data_ptr() and buffers.deliver(own, out) is own
    assert buffers.deliver(there, None) is there
    with pytest.raises(ValueError, match="9 bytes, the payload needs 10"):
        buffers.prepare(out, 10, meta)


@every_compressor
def test_warm_up_elsewhere_encodes_and_decodes_every_shape_and_leaves_no_trace(
    compressor: Compressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device whose kernels are compiled when they start; "meta" stands for it, and tensors stay here."""
    loaded, seen = [], []
    linspace, load = torch.linspace, backend.load
    monkeypatch.setattr(lazy.torch, "linspace", lambda *args, device: linspace(*args, device=seen.append(device)))
    monkeypatch.setattr(backend, "load", lambda name, device: loaded.append(str(device)) or load(name, "cpu"))
    monkeypatch.setattr(lazy.torch, "eye", lambda n, device=None: torch.diag(torch.ones(n)))
    shapes = [(10, 20), (33,), (10, 20)]
    sizes = []
    compress = type(compressor).compress
    monkeypatch.setattr(
        type(compressor), "compress", lambda self, x, *rest: sizes.append(tuple(x.shape)) or compress(self, x, *rest)
    )
    warm_up.warm_up(compressor, "meta", shapes)
    assert seen == ["meta", "meta"] and sizes[0] == (10, 20) and (33,) in sizes
    assert loaded[: len(compressor.kernel_modules())] == ["meta"] * len(compressor.kernel_modules())
    assert compressor.state_dict() == {}


@every_compressor
def test_warm_up_loads_what_is_used(compressor: Compressor) -> None:
    with backend.record_used() as loaded:
        warm_up.warm_up(compressor)
    with backend.record_used() as used:
        for shape in ((24, 40), (3000,)):
            single_worker.quantise(compressor, draw_gaussian(shape), make_key())
    assert set(used) <= set(loaded) | {"spectral"}


def test_a_selector_warms_up_for_its_units(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(warm_up, "warm_up", lambda compressor, *given: calls.append((compressor.name, *given)))
    Selector(Policy(), build("qsgd"), [("a", (3, 4)), ("b", (5,))], 2).warm_up("cuda")
    assert ("qsgd", "cuda", [(3, 4), (5,)]) in calls


def test_what_was_used_is_noted_by_itself() -> None:
    with backend.record_used() as outer:
        backend.load("qsgd", "cpu")
        with backend.record_used() as inner, backend.use("torch"):
            backend.load("sums", "cpu")
    assert inner == {"sums": "torch"} and outer == {"qsgd": "numba", "sums": "torch"}
    assert backend.used["qsgd"] == "numba" and backend.used["sums"] == "torch"


def test_linear_algebra_is_not_said_to_be_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of one unit, and decompositions, have no Triton: on a GPU they are torch's, and named so."""
    monkeypatch.setattr(backend, "_find_fault", lambda kernels: None)
    with backend.record_used() as used, backend.use("triton"), monkeypatch.context() as patch:
        patch.setattr(backend.importlib, "import_module", types.ModuleType)
        assert products.products(torch.device("cuda")) is products.Library
        assert backend.select("selection", "cuda") == "triton"
    assert used == {"powersgd": "torch"}
    with backend.use("numba"), pytest.raises(InvalidParameter, match="kernels"):
        products.products(torch.device("cuda"))
    assert Worker(build("powersgd"), Gradients([(40, 30)])).kernels == ["numba"]
    assert Worker(build("svd"), Gradients([(40, 30)])).kernels == ["torch"]
    assert Worker(build("svd"), Gradients([(80, 90)])).kernels == ["numba"]


LIBRARY = "powersgd.py"
"""Has sums in the order of the compiler, as a library of linear algebra would."""
ONLY_FOR_A_CPU = {"arrays", "eigen", "householder", "jit", "elias_reader", "elias_writer", "rounding"}


def names(package: str) -> set[str]:
    return {path.stem for path in (KERNELS / package).rglob("[!_]*.py")}


def test_every_method_with_numba_has_triton_or_a_reason() -> None:
    missing = names("cpu") - names("cuda") - ONLY_FOR_A_CPU
    assert not missing
    assert not names("reference") - names("cuda")
    text = (KERNELS.parents[1] / "docs" / "design" / "compression.md").read_text()
    assert all(f"`{name}`" in text for name in missing | {"spectral"})


SUMS_FOR_NAN = {"fp16", "bf16"}  # whether a sum is NaN does not depend on its order


@every_compressor
def test_torch_rounds_alike_on_all_devices(compressor: Compressor) -> None:
    if compressor.name in LINEAR_ALGEBRA:
        pytest.skip("a product of matrices has the sums of its library")
    with backend.use("torch"), Arithmetic() as arithmetic:
        for shape in ((24, 40), (3000,)):
            single_worker.quantise(compressor, draw_gaussian(shape), make_key())
    assert arithmetic.found <= ({"sum"} if compressor.name in SUMS_FOR_NAN else set())


# What a GPU does otherwise than Triton's interpreter, as far as the source shows it


def triton_sources() -> list[tuple[str, ast.Module]]:
    return [(path.name, ast.parse(path.read_text())) for path in sorted((KERNELS / "cuda").rglob("*.py"))]


def jitted(tree: ast.Module) -> list[ast.FunctionDef]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list)
    ]


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_kernels_are_started_in_one_place_without_contraction() -> None:
    """Only `launch` may start one: it forbids a * b + c to be rounded once."""
    starts = [
        (name, ast.unparse(call))
        for name, tree in triton_sources()
        for call in calls(tree)
        if isinstance(call.func, ast.Subscript) and not ast.unparse(call.func).startswith(("dict[", "list["))
    ]
    assert {name for name, _ in starts} == {"launch.py"}
    own = [text for _, text in starts if text.startswith("kernel[")]
    assert all("enable_fp_fusion=False" in text for text in own) and len(starts) == len(own) + 1  # compiled before
    assert ".run(" not in "".join(text for _, text in starts)


def test_kernels_divide_and_take_roots_as_float32_is_rounded() -> None:
    """A plain division of float32 is off by a bit, and so are roots, exponentials and logarithms."""
    wide = ("_euclidean", "_clip_scales", "_take_roots", "_divide", "_write_means")  # of float64 they are exact
    for name, tree in triton_sources():
        for function in jitted(tree) if name != LIBRARY else []:
            for node in ast.walk(function):
                if isinstance(node, ast.BinOp | ast.AugAssign) and function.name not in wide:
                    assert not isinstance(node.op, ast.Div), (name, function.name)
            used = {ast.unparse(call.func) for call in calls(function)}
            assert not used & {"tl.exp", "tl.exp2", "tl.log", "tl.log2", "tl.fdiv", "tl.fma", "tl.rsqrt", "tl.dot"}
            assert "tl.sqrt" not in used or function.name in wide


def test_kernels_count_in_64_bits_from_the_start() -> None:
    """A tensor may have more than 2^31 elements: what the number of a program is multiplied with, too."""
    for name, tree in triton_sources():
        text = ast.unparse(tree)
        assert "tl.program_id(1)" not in text and "tl.program_id(2)" not in text  # which end at 65535
        # Beside an index, the number is compared or divided, which takes much longer in 64 bits.
        plain = text.count("tl.program_id(0)") - text.count("tl.program_id(0).to(tl.int64)")
        plain -= text.count("tl.program_id(0).to(tl.uint64)")
        small = (" % across", " // across", " - first * across", " == 0", " == tl.num_programs(0) - 1")
        assert plain == sum(text.count(f"tl.program_id(0){rest}") for rest in small), name


def test_sums_of_floats_are_in_the_hands_of_two_functions() -> None:
    """The order of a reduction is the compiler's, so only pairs are summed (`sums.add_halves`); integers may be."""
    integers = {
        *("packing.pack", "packing.pack_words", "selection._next_digit", "selection._count_kept", "selection._collect"),
        *("selection._find_bound", "selection._find_candidates", "selection._running_sums"),
        *(
            "sparse._count_bits",
            "bitmaps._count_set",
            "bitmaps._list_set",
            "randomk._mark",
            "signs._decode_add",
            "signs._read_bits",
            "onebit._halves",
            "atomo._split",
        ),
        *("chunks._select", "eden._decode_add"),
        *("exceedances._exceedances", "exceedances._products", "elias._measure", "elias._write"),
    }
    found = set()
    for name, tree in triton_sources():
        for function in jitted(tree) if name != LIBRARY else []:
            if any(ast.unparse(call.func) in ("tl.sum", "tl.reduce", "tl.xor_sum") for call in calls(function)):
                found.add(f"{name.removesuffix('.py')}.{function.name}")
    assert found == {"sums.add_halves"} | integers


def test_a_triton_that_cannot_be_used_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backend, "_find_fault", lambda kernels: "Triton 3.5.1 is older than 3.6, and divides inexactly")
    backend._warn.cache_clear()
    for _ in range(2):
        assert backend.select("qsgd", "cuda") == "torch"
    line = "kernels=auto: torch's on cuda, many times slower than Triton's would be: Triton 3.5.1 is older than 3.6,"
    assert capfd.readouterr().err == f"{line} and divides inexactly\n"
    with pytest.raises(InvalidParameter, match="another one where Triton 3.5.1 is older"):
        backend.choose("triton")


def test_methods_without_a_kernel_in_triton_are_named_with_a_gpu() -> None:
    methods = ("qsgd", "transform", "signs", "spectral")
    line = "kernels=auto: torch's on cuda for spectral, transform, which have none in Triton"
    assert backend.explain_lacking(methods, "cuda:1") == line
    assert backend.explain_lacking(methods, "cpu") is backend.explain_lacking(["qsgd"], "cuda") is None
    with backend.use("torch"):
        assert backend.explain_lacking(methods, "cuda") is None
