"""Arguments of hooks that cannot work are refused in one line, before the first step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsweep
from compressors import build, memories
from gradsweep.csv_columns import PHASES
from gradsweep.errors import UsageError
from gradsweep.script import Run
from trainers.hooks import buckets
from trainers.hooks.buckets import Bucket, Numbering


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one worker."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_without_a_process_group() -> None:
    with pytest.raises(UsageError, match=r"^ddp_hook: there is no process group; valid after torch"):
        gradsweep.ddp_hook("topk")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"compressor": "tokp"}, "compressor=tokp: did you mean topk?"),
        ({"compressor": 3}, "compressor=3: valid is a name"),
        ({"compressor": "topk", "ratio": 2}, "compressor.ratio=2: valid is"),
        ({"compressor": "topk", "ration": 0.1}, "compressor.ration=0.1: did you mean ratio?"),
        ({"compressor": "none", "ratio": 0.1}, "compressor.ratio=0.1: valid is left out: none has no options"),
        ({"compressor": "topk", "memmory": "residual"}, "compressor.memmory=residual: did you mean memory?"),
        ({"compressor": build("topk"), "ratio": 0.1}, "ratio=0.1: valid is an option of a compressor's name only"),
        ({"memory": "residul"}, "memory=residul: did you mean residual?"),
        ({"memory": {"beta": 1}}, "memory={'beta': 1}: valid is a name, or a mapping with the key name"),
        ({"memory": {"name": "residual", "beta": -1}}, "memory.beta=-1: valid is a number from 0 to 10"),
        (
            {"compressor": "sign", "memory": "residual"},
            "compressor=sign with memory=residual: it sends",
        ),
        ({"compressor": "qsgd", "memory": "dgc"}, "compressor=qsgd with memory=dgc: momentum is cleared"),
        ({"policy": "dense_1d"}, "policy=dense_1d: valid is a mapping with keys of a config's policy"),
        ({"policy": {"min_element": 3}}, "policy.min_element=3: did you mean min_elements?"),
        ({"compressor": "qsgd", "policy": {"warmup": "exponential"}}, "policy.warmup=exponential: valid is none"),
        (
            {"policy": {"patterns": [{"match": "a", "compressor": {"name": "none"}}]}},
            "policy.patterns: names of parameters",
        ),
        ({"exchange": "gossip"}, "exchange=gossip: valid is one of auto, allreduce, allgather, mixed, sharded: a hook"),
        ({"exchange": "parameter_server"}, "exchange=parameter_server: valid is one of auto"),
        ({"exchange": "shard"}, "exchange=shard: did you mean sharded?"),
        (
            {"exchange": {"name": "auto", "tune": True}},
            "exchange.tune=True: valid is an option of",
        ),
        ({"exchange": {"name": "sharded", "second": "all"}}, "exchange.second=all: valid is one of same, none"),
        ({"compressor": "qsgd", "exchange": "allreduce"}, "compressor=qsgd with exchange=allreduce"),
        ({"compressor": "powersgd", "exchange": "sharded"}, "compressor=powersgd with exchange=sharded"),
        (
            {"compressor": "powersgd", "granularity": "bucket"},
            "compressor=powersgd with exchange=allreduce",
        ),
        ({"granularity": "model"}, "granularity=model: valid is one of layer, bucket"),
        ({"process_group": 4}, "ddp_hook: process_group=4: valid is a process group of torch.distributed"),
        ({"optimizer": 3}, "ddp_hook: optimizer=3: valid is an optimizer of torch"),
        ({"module": 3}, "ddp_hook: module=3: valid is the module that is wrapped"),
        ({"granularity": "bucket", "policy": {"dense_1d": True}}, "policy.dense_1d with exchange.granularity=bucket"),
        ({"compressor": "intsgd"}, "compressor=intsgd, memory=none: the learning rate of each step is needed"),
        ({"compressor": "topk", "memory": "scaled_residual"}, "compressor=topk, memory=scaled_residual: the learning"),
        ({"seed": -1}, "seed=-1: valid is an integer from 0 up"),
    ],
)
def test_wrong_arguments_are_one_line(alone: None, arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as raised:
        gradsweep.ddp_hook(**{"compressor": "topk", **arguments})
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_a_single_worker_trains(alone: None) -> None:
    """What it gets is what its payloads decode to; its counts are what a script reports of a step."""
    model = DistributedDataParallel(nn.Linear(20, 10, bias=False))
    state, hook = gradsweep.ddp_hook("topk", ratio=0.1, measure_every=1)
    model.register_comm_hook(state, hook)
    x = torch.randn(4, 20)
    for _ in range(3):
        model.zero_grad()
        model(x).square().sum().backward()
        gradient = model.module.weight.grad
        assert gradient is not None and int((gradient != 0).sum()) == 20
    counts = state.take_counts()
    assert {"payload_bytes", "compression_error", "memory_norm"} < set(counts)
    assert set(counts) < set(inspect.signature(Run.step).parameters) and set(counts["phases"]) < set(PHASES)


def test_another_module_than_the_wrapped_one_is_one_line(alone: None) -> None:
    model = DistributedDataParallel(nn.Linear(20, 10))
    model.register_comm_hook(*gradsweep.ddp_hook("topk", module=nn.Linear(20, 10)))
    with pytest.raises(UsageError, match=r"^module: 2 of the parameters in .* are not in it; valid is the module"):
        model(torch.randn(4, 20)).sum().backward()


def test_sparse_gradients_are_one_line(alone: None) -> None:
    model = DistributedDataParallel(nn.Embedding(20, 10, sparse=True))
    model.register_comm_hook(*gradsweep.ddp_hook("topk"))
    with pytest.raises((UsageError, RuntimeError)) as raised:
        model(torch.tensor([1, 2])).sum().backward()
    assert "sparse" in str(raised.value)


@pytest.mark.parametrize("memory", ["ef21", "econtrol"])
def test_estimates_of_gradients_of_16_bits_are_one_line(alone: None, memory: str) -> None:
    model = DistributedDataParallel(nn.Linear(20, 10).bfloat16())
    model.register_comm_hook(*gradsweep.ddp_hook("topk", memory=memory))
    with pytest.raises(UsageError, match=f"memory={memory} with gradients of bfloat16, in which the mean"):
        model(torch.randn(4, 20).bfloat16()).sum().backward()


def test_a_state_of_another_granularity_is_refused(alone: None) -> None:
    saved = gradsweep.ddp_hook("topk", granularity="bucket")[0].state_dict()
    with pytest.raises(ValueError, match="the state is that of granularity=bucket, not of layer"):
        gradsweep.ddp_hook("topk")[0].load_state_dict(saved)


def test_parameters_are_numbered_in_the_order_of_the_model() -> None:
    a, b, c, d = (torch.zeros(size) for size in (1, 2, 3, 4))
    first, second = Bucket(torch.zeros(7), [c, d]), Bucket(torch.zeros(3), [a, b])
    numbering = Numbering([first, second], None)
    assert numbering.find(first) == [2, 3] and numbering.find(second) == [0, 1]
    named = Numbering([first, second], [("d", d), ("e", torch.zeros(9)), ("a", a), ("c", c), ("b", b)])
    assert named.names == ["d", "a", "c", "b"] and named.find(first) == [2, 0]


def test_a_state_is_cut_by_parameter() -> None:
    """A parameter keeps its part of a memory in whichever bucket it comes to be."""
    old, new = [[[0, 2], [1, 3]], [[2, 1]]], [[[2, 1], [1, 3]], [[0, 2]]]
    memory = memories.build("scaled_residual")
    memory.unit_tensors[0] = {"residual": torch.arange(5.0), "lr": torch.tensor(0.1)}  # type: ignore[attr-defined]
    recut = buckets._recut(memory.state_dict(), old, new)
    assert recut["0"]["residual"].tolist() == [0, 2, 3, 4] and recut["1"]["residual"].tolist() == [0, 1]
    assert float(recut["0"]["lr"]) == float(recut["1"]["lr"]) == pytest.approx(0.1)
    memory.load_state_dict(recut)
    assert not buckets._recut({}, old, new)
    assert buckets._find_scalars(memory.state_dict(), new) and not buckets._find_scalars({"1": {}}, new)
