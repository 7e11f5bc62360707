"""What a config says before anything starts: parts that go together, and what `auto` becomes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sweep.run import UsageError
from trainers import config


def composed(**changes: Any) -> dict[str, Any]:
    """A whole config with the defaults; `changes` name the part of a group (with its options) or a value."""
    parts = {
        "model": "mlp",
        "dataset": "digits",
        "optimizer": "sgd",
        "schedule": "constant",
        "exchange": "auto",
        "compressor": "none",
        "memory": "none",
    }
    found = dataclasses.asdict(config.RunConfig())
    for group, default in parts.items():
        given = changes.pop(group, {})
        given = {"name": given} if isinstance(given, str) else dict(given)
        name = given.setdefault("name", default)
        found[group] = {**dataclasses.asdict(config.GROUPS[group][name]()), **given}
    for section, values in changes.items():
        found[section] = {**found[section], **values} if isinstance(values, dict) else values
    return found


@pytest.mark.parametrize(
    ("changes", "exchange"),
    [
        ({}, "allreduce"),
        ({"compressor": "qsgd"}, "allgather"),
        ({"compressor": "powersgd"}, "allreduce"),
        ({"policy": {"dense_1d": True}}, "allreduce"),
        ({"compressor": "qsgd", "policy": {"dense_1d": True}}, "mixed"),
        ({"compressor": "qsgd", "policy": {"start_step": 2}}, "mixed"),
        ({"compressor": "powersgd", "policy": {"min_elements": 9}}, "allreduce"),
        ({"policy": {"patterns": [{"match": "w", "compressor": {"name": "qsgd"}}]}}, "mixed"),
    ],
)
def test_auto_is_the_exchange_that_can_carry_everything(changes: dict[str, Any], exchange: str) -> None:
    assert config.resolve(composed(**changes))["exchange"]["name"] == exchange


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compressor": "qsgd", "exchange": "allreduce"}, "cannot add its payloads; valid is exchange=allgather, or"),
        ({"compressor": "powersgd", "exchange": "allgather"}, "rounds of its own; valid is exchange=allreduce"),
        (
            {
                "compressor": "none",
                "exchange": "allreduce",
                "policy": {"patterns": [{"match": "w", "compressor": {"name": "qsgd"}}]},
            },
            "compressor=qsgd with exchange=allreduce",
        ),
        (
            {"policy": {"dense_1d": True}, "exchange": {"granularity": "bucket"}},
            "policy.dense_1d with exchange.granularity=bucket: it looks at single tensors",
        ),
        ({"policy": {"warmup": "exponential"}}, "policy.warmup=exponential: valid is none with compressor=none"),
        ({"policy": {"accordion": {"option": "rank"}}}, "policy.accordion.relaxed=null: valid is given where"),
        ({"policy": {"accordion": {"opinion": "rank"}}}, "policy.accordion.opinion=rank: valid is one of the keys"),
        ({"policy": {"start": 3}}, "policy.start=3: valid is one of the keys min_elements"),
        ({"policy": 3}, "policy=3: valid is a mapping with the keys min_elements"),
        ({"kernels": "triton"}, "kernels=triton: valid is auto, numba or torch"),
        ({"kernels": "cuda"}, "kernels=cuda: valid is one of auto, numba, triton, torch"),
        (
            {
                "compressor": "topk",
                "memory": "residual",
                "policy": {"patterns": [{"match": "w", "compressor": {"name": "sign"}}]},
            },
            "compressor=sign with memory=residual: it sends directions",
        ),
        ({"memory": "dgc"}, "memory=dgc with optimizer.momentum=0.9: the memory has the momentum; valid is optimizer."),
        ({"compressor": "signum", "memory": "residual"}, "compressor=signum with memory=residual: it sends directions"),
    ],
)
def test_what_cannot_work_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        config.resolve(composed(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)
