"""The Triton kernels, compiled for a GPU, which needs none: the interpreter takes what the compiler may refuse.

It also rounds as numpy does, so their machine code is searched for operations that round otherwise.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from compressors import build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.low_rank.powersgd import PowerSGD
from tests.compressors.kernels.test_cuda import (
    DEVICE,
    LONG_BUCKETS,
    MODULES,
    TRITON_CASES,
    on_device,
    triton_for_every_tensor,
)

__all__ = ["triton_for_every_tensor"]  # a fixture

TYPES = {torch.float32: "fp32", torch.float64: "fp64", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8"}
PER_KERNEL = 3
ROUNDED_OTHERWISE = r"^\s*(?:@\S+\s+)?(fma\.\S+|\S+\.ftz\S*|\S+\.approx\S*|div\.full\S*)"
COMPILE = f"""
import importlib, json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for module, name, signature, constants, options in json.load(sys.stdin):
    kernel = getattr(importlib.import_module(module), name)
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options["enable_fp_fusion"] = False
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    found = sorted(set(re.findall({ROUNDED_OTHERWISE!r}, compiled.asm["ptx"], re.MULTILINE)))
    # `launch` keeps a compiled kernel for other values of these.
    numbers = [one.name for one in kernel.params if signature[one.name] in ("i32", "i64")]
    found += [one.name for one in kernel.params if one.name in numbers and not one.do_not_specialize]
    print(json.dumps([name, found]), flush=True)
"""


@pytest.mark.skipif(DEVICE != "cpu", reason="the kernels run on this GPU")
def test_the_kernels_compile_and_round_as_the_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = started_kernels(monkeypatch)
    assert {(module, name) for module, name, *_ in started} >= all_kernels()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMPILE)],
        input=json.dumps(started),
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    compiled = list(map(json.loads, result.stdout.splitlines()))
    assert len(compiled) == len(started)
    draws = {"fma.rn.f64", "rcp.approx.ftz.f64"}  # of sines and logarithms
    assert [(name, found) for name, found in compiled if found and (name != "_orthonormal" or set(found) - draws)] == []


def started_kernels(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Module, name, types, constants and options of the kernels that the methods start, a few for each kernel."""
    started: dict[str, list[Any]] = {}

    def noting(original: Any) -> Any:
        def launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
            options = {name: value for name, value in constants.items() if name == "num_warps"}
            compiled = {name: value for name, value in constants.items() if name not in options}
            types = [triton_type(argument) for argument in arguments]
            signature = {**dict(zip(kernel.arg_names, types, strict=False)), **dict.fromkeys(compiled, "constexpr")}
            function = kernel.fn
            one = [function.__module__, function.__name__, signature, compiled, options]
            started[json.dumps(one)] = one
            original(kernel, programs, *arguments, **constants)

        return launch

    monkeypatch.setattr(MODULES["selection"], "_SMALL", 0)
    for module in MODULES.values():
        if hasattr(module, "launch"):
            monkeypatch.setattr(module, "launch", noting(module.launch))
    for count, cases in ((300, TRITON_CASES), (4500, LONG_BUCKETS)):
        for name, options in cases:
            compressor, x = build(name, **options), on_device(draw_gaussian((count,)))
            compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    monkeypatch.setattr(MODULES["randomk"], "_FEW", 0)
    for n in (300, 2**31):
        MODULES["randomk"].subset(make_key().mix(), n, 9, torch.device(DEVICE))
    MODULES["packing"].unpack_codes(MODULES["packing"].pack_codes(torch.ones(9, dtype=torch.int32), 3), 9, 3)
    MODULES["sums"].moments(draw_gaussian((5000,)))
    batch = [(on_device(draw_gaussian((24, 40))), make_key())]
    PowerSGD().decompress_together(PowerSGD().reduce_alone(batch), batch)
    MODULES["sampling"].sample(draw_gaussian((50,)), make_key().mix(), 7)
    MODULES["exceedances"].logarithms(draw_gaussian((5000,)))
    MODULES["exceedances"].moments_above(draw_gaussian((5000,)), 0x3F000000, 0.5)
    found, kept = [], collections.Counter[str]()
    for one in started.values():
        kept[f"{one[0]}.{one[1]}"] += 1
        if kept[f"{one[0]}.{one[1]}"] <= PER_KERNEL:
            found.append(one)
    return found


def all_kernels() -> set[tuple[str, str]]:
    """The private functions that are compiled and return nothing; what they call is public, or returns something."""
    return {
        (module.__name__, name)
        for module in MODULES.values()
        for name, body in vars(module).items()
        if name.startswith("_") and hasattr(body, "arg_names") and body.fn.__annotations__["return"] == "None"
    }


def triton_type(argument: torch.Tensor | int) -> str:
    if isinstance(argument, torch.Tensor):
        return "*" + TYPES[argument.dtype]
    return "i32" if -(2**31) <= argument < 2**31 else "i64"
