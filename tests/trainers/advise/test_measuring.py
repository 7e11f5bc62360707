"""`python -m trainers.advise`: an exchange on one worker's mirror image, and what a measurement records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import compressors
from compressors import Key
from compressors.memories.base import NoMemory
from compressors.policy.policy import Policy, Selector
from tests.conftest import ROOT
from tests.trainers.configs import compose_config
from trainers.advise.bench import Times
from trainers.advise.methods import describe_needs
from trainers.advise.mirror import Mirror
from trainers.advise.rounds import explain_slow
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Flat, Unit
from trainers.options import exchanges
from trainers.rules.compressors import is_reducible

WORKERS = 6


def build(name: str, workers: int = WORKERS) -> tuple[Exchange, list[Unit]]:
    """The exchange of a method on a mirror image, with the gradient of a small model."""
    torch.manual_seed(0)
    flat = Flat(nn.Linear(40, 30))
    flat.gradients.copy_(torch.randn(len(flat)) * 1e-2)
    units, compressor = flat.cut_units("layer", 1.0), compressors.build(name)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    selector = Selector(Policy(), compressor, described, workers)
    comm: Any = Mirror(workers)
    setup = ExchangeSetup(comm, units, selector, NoMemory(), 0, Stopwatch())
    options = exchanges.Allreduce() if is_reducible(compressor) else exchanges.Allgather()
    return build_exchange(options, *setup), units


@pytest.mark.parametrize("name", ["qsgd", "topk", "natural", "sign", "svd"])
def test_gathered_payloads_are_decoded_of_all_workers(name: str) -> None:
    exchange, units = build(name)
    wanted = []
    for unit in units:
        x, one, key = unit.gradient.clone(), compressors.build(name), Key(0, 0, 1, unit.index)
        wanted.append(one.decompress(one.compress(x, key), x, key))
    traffic = exchange.mean(1)
    assert traffic.sent_bytes == (WORKERS - 1) * traffic.payload_bytes > 0
    for unit, mean in zip(units, wanted, strict=True):
        if name == "sign":  # a majority vote
            assert torch.equal(unit.gradient.sign(), mean.sign())
        else:
            torch.testing.assert_close(unit.gradient, mean, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["none", "fp16"])
def test_the_others_add_nothing_to_sums(name: str) -> None:
    exchange, units = build(name)
    before = [unit.gradient.clone() for unit in units]
    traffic = exchange.mean(1)
    assert traffic.sent_bytes == pytest.approx(2 * (WORKERS - 1) / WORKERS * traffic.payload_bytes)
    for unit, gradient in zip(units, before, strict=True):
        torch.testing.assert_close(unit.gradient, gradient / WORKERS, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(("name", "kind", "calls"), [("gtopk", "swaps", 3), ("powersgd", "rounds", 2)])
def test_cooperative_methods_take_their_rounds(name: str, kind: str, calls: int) -> None:
    exchange, _ = build(name, workers=8)
    exchange.mean(1)
    assert exchange.collectives.calls[kind] == calls


def test_error_feedback_is_for_biased_methods() -> None:
    wanted = dict.fromkeys(["topk", "powersgd", "acp_sgd", "onebit", "gtopk", "thresholdv"], True)
    wanted |= dict.fromkeys(["none", "qsgd", "fp16", "int8", "sign", "natural", "terngrad"], False)
    assert {name: compressors.build(name).needs_memory for name in wanted} == wanted
    assert describe_needs(compressors.build("none")) == "exact"
    assert describe_needs(compressors.build("topk")) == "biased, needs error feedback"
    assert "variance" in describe_needs(compressors.build("qsgd"))


@pytest.mark.parametrize(
    ("first", "second", "compute", "is_slow"),
    [(1.5, 1.5, 0.1, False), (9.0, 0.5, 0.1, False), (9.0, 2.5, 0.1, True), (9.0, 2.5, 0.6, False)],
)
def test_slow_methods_are_left_out(first: float, second: float, compute: float, is_slow: bool) -> None:
    bench: Any = SimpleNamespace(first=make_times(first), take_step=lambda: make_times(second))
    reason = explain_slow(bench, compute, 60.0)
    assert (reason == "it takes 2.5 s to encode and decode, 25 times the computation") if is_slow else reason is None


def make_times(total: float) -> Times:
    return Times(total, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def measure(tmp_path: Path, **changed: Any) -> subprocess.CompletedProcess[str]:
    """Start the measuring program; its measurements go into measured.json."""
    request = {
        "config": {**compose_config(), "model": {"name": "mlp", "width": 8}, "batch": _BATCH, "device": "cpu"},
        "shape": [16],
        "classes": 3,
        "seconds": 0.01,
        "methods": ["qsgd", "topk", "powersgd", "intsgd"],
        "memory": "",
        "output": str(tmp_path / "measured.json"),
        **changed,
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    command = [sys.executable, "-m", "trainers.advise", str(tmp_path / "request.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


_BATCH = {"size": 4, "per": "worker", "accumulate": 1}


@pytest.mark.thorough
def test_records_times_and_counts_of_every_method(tmp_path: Path) -> None:
    done = measure(tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "measured.json").read_text())
    rounds = found["rounds"]
    assert rounds >= 5 and found["batch"] == 4 and len(found["yardstick"]) == rounds + 1
    assert all(len(times) == rounds and min(times) >= 0 for times in found["compute"].values())
    assert min(found["compute"]["total"]) > max(0.0, min(found["compute"]["backward"]))
    methods = found["methods"]
    assert list(methods) == ["none", "qsgd", "topk", "powersgd", "intsgd"]
    assert {name: sorted(one["workers"]) for name, one in methods.items()} == {
        **dict.fromkeys(["none", "powersgd", "intsgd"], ["8"]),
        **dict.fromkeys(["qsgd", "topk"], ["2", "8"]),
    }
    assert [methods[name]["memory"] for name in methods] == ["none", "none", "residual", "residual", "none"]
    states = ["none", "none", "error feedback", "error feedback, its own", "its own"]
    assert [methods[name]["state"] for name in methods] == states
    assert "BytePS" in methods["topk"]["reported"] and not methods["none"]["reported"]
    size = 4 * found["parameters"]
    assert methods["none"]["workers"]["8"]["payload_bytes"] == size
    assert methods["none"]["workers"]["8"]["sent_bytes"] == pytest.approx(2 * 7 / 8 * size)
    assert methods["topk"]["workers"]["8"]["kept_bytes"] == size, "the residual"
    for one in methods.values():
        for world in one["workers"].values():
            assert len(world["encode"]) == len(world["decode"]) == rounds
            assert min(world["encode"]) > 0


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"methods": ["topp"]}, "--methods=topp: did you mean topk?"),
        (
            {"shape": [3, 2, 2], "config": {**compose_config(model="wideresnet"), "batch": _BATCH}},
            "images from 8x8 pixels",
        ),
        ({"config": {**compose_config(algorithm="local_sgd"), "batch": _BATCH}}, "valid is sgd, whose step"),
        (
            {"config": {**compose_config(optimizer="zero_one_adam"), "batch": _BATCH}},
            "valid is one whose steps exchange",
        ),
    ],
)
def test_refuses_in_one_line(changed: dict[str, Any], line: str, tmp_path: Path) -> None:
    done = measure(tmp_path, **changed)
    assert done.returncode == 2
    assert line in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "measured.json").exists()
