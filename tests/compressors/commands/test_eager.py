"""The eager versions that ours are measured against compute the same thing, in as many bits."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from compressors import Key, registry
from compressors.commands import bench_timing, single_worker
from compressors.commands.method_specs import parse
from compressors.conformance.cases import draw_gaussian
from tests.conftest import ROOT


def load(name: str) -> ModuleType:
    """A file of benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"benchmarked_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


benchmark = load("compressors")
FLAT = [case for case in benchmark.CASES if case.eager and not case.layers]
LAYERS = [case for case in benchmark.CASES if case.layers]
MORE_BITS = {"topk": 2.0, "dgc": 2.0, "thresholdv": 2.0, "adaptive_threshold": 2.0, "randomk": 3.5}
"""Eager code sends 32-bit indices (and randomk's, which need not travel, are int64 in its memory)."""


def test_every_promised_method_exists() -> None:
    assert {case.name for case in benchmark.CASES} <= set(registry())
    assert {case.name for case in FLAT} == set(benchmark.eager.FLAT)


@pytest.mark.parametrize("case", FLAT, ids=lambda case: case.method)
def test_it_computes_the_same_in_as_many_bits(case: object) -> None:
    """The error of both is that of the method, not of a mistake."""
    torch.manual_seed(1)  # the gradients are drawn from a generator that starts at 0
    room = bench_timing.Gradients([(200_000,)])
    x = room.flat[0]
    eager = case.eager(room)  # type: ignore[attr-defined]
    ours = parse(case.method)  # type: ignore[attr-defined]
    room.mean.zero_()
    eager.encode()
    eager.decode()
    theirs = float((room.mean - x).norm() / x.norm())
    q = single_worker.quantise(ours, x, Key(0, 0, 1, 0))
    assert theirs == pytest.approx(float((q - x).norm() / x.norm()), rel=0.05, abs=1e-4)
    size = sum(part.numel() * part.element_size() for part in eager.payload)
    payload = len(single_worker.encode(single_worker.copy_without_state(ours), x, Key(0, 0, 1, 0)))
    assert payload == pytest.approx(size, rel=0.01) or payload <= size <= MORE_BITS.get(ours.name, 1.0) * payload


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 1001])
def test_codes_come_back(width: int, count: int) -> None:
    codes = torch.randint(1 << width, (count,), dtype=torch.uint8)
    packed = benchmark.eager.pack(codes, width)
    assert len(packed) == -(-count * width // 8)
    assert torch.equal(benchmark.eager.unpack(packed, width, count), codes)


def test_layers_are_reduced_to_their_rank() -> None:
    """Matrices of the rank that is sent come back exactly; the sampled SVD in the mean."""
    layers = [
        draw_gaussian((30, 2), 1) @ draw_gaussian((2, 40), 2),
        draw_gaussian((50, 2), 3) @ draw_gaussian((2, 20), 4),
    ]
    outs = [torch.zeros_like(layer) for layer in layers]
    torch.manual_seed(0)
    power = benchmark.eager.LayerPowerSGD(layers, outs, 2)
    for _ in range(3):
        power.encode()
        power.decode()
    assert all(torch.allclose(layer, out, atol=1e-4) for layer, out in zip(layers, outs, strict=True))
    outs = [torch.zeros_like(layer) for layer in layers]
    sampled = benchmark.eager.LayerSVD(layers, outs, 1)
    for _ in range(2000):
        sampled.encode()
        sampled.decode()
    for layer, out in zip(layers, outs, strict=True):
        assert float((out / 2000 - layer).norm() / layer.norm()) < 0.1


def test_orthogonalised_columns_are_orthonormal() -> None:
    columns = draw_gaussian((1, 40, 4)).clone()
    benchmark.eager.orthogonalise(columns)
    assert torch.allclose(columns[0].T @ columns[0], torch.eye(4), atol=1e-5)


def test_a_promise_that_does_not_hold_is_named() -> None:
    fast, slow = bench_timing.Times([1.0] * 3, [1.0] * 3), bench_timing.Times([90.0] * 3, [1.0] * 3)
    kept = benchmark.Result(FLAT[0], 4.0, fast, fast, slow, 0.1)
    assert (kept.copies, kept.faster, kept.missed) == (2.0, 45.0, "")
    assert benchmark.Result(FLAT[0], 4.0, slow, fast, slow, 7.0).missed == "copy, eager, memory"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "least", "most"),
    [
        ("qsgd", 0.0, 1.0),
        ("topk,ratio=0.1", 20.0, 40.0),  # int64 positions alone are 20 %
        ("randomk,ratio=0.01", 2.0, 5.0),  # with its map of a bit for every element, which stays
        ("topk,ratio=0.01,values=fp16", 2.0, 5.0),
        ("atomo", 2.0, 5.0),
        ("svd,rank=3", 1.0, 5.0),
    ],
)
def test_memory_is_what_steps_take_and_keep(method: str, least: float, most: float) -> None:
    """Measured in a process of its own, where malloc keeps nothing that a step could take unseen."""
    layers = method.startswith("svd")
    room = bench_timing.Gradients(bench_timing.resnet18_shapes() if layers else [(11_200_000,)])
    case = benchmark.Case(method, None, 1, lambda room: None, layers)
    measured = benchmark.extra_memory(case, room)
    assert measured is None or least <= measured <= most


CODE = """
import sys
sys.path.insert(0, "benchmarks")
import memory
svd, shapes = memory.parse("svd,rank=3"), memory.bench_timing.resnet18_shapes()
memory.run(svd, memory.bench_timing.Gradients(memory.SMALL[True]))
room = memory.bench_timing.Gradients(shapes)
memory.settle()
before = memory.read_memory()["RssFile"]
memory.run(svd, room)
print(memory.read_memory()["RssFile"] - before)
"""


STATUS = Path("/proc/self/status")


@pytest.mark.thorough
@pytest.mark.skipif(
    not STATUS.exists() or "RssFile" not in STATUS.read_text(), reason="the system does not tell what is in memory"
)
def test_code_of_libraries_that_a_step_is_the_first_to_run_is_not_its_memory() -> None:
    """Without `settle` 1.5 MB of the linear algebra's code come to count, 3.4 % of the gradient."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000
