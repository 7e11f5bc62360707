"""What a config says before anything starts: parts that go together, and what `auto` becomes."""

from __future__ import annotations

from typing import Any

import pytest

from gradsweep.errors import UsageError
from tests.trainers.configs import NO_MOMENTUM, compose_config
from trainers.config import run_config
from trainers.options.networks import NoNetwork
from trainers.rules.resolve import resolve
from trainers.rules.training import check_length

TEXT = {"model": "lstm", "dataset": "synthetic_text"}
SENDERS = {"name": "topk", "mean": "senders"}
SERVER = {"placement": "dedicated", "mode": "asynchronous"}


def test_a_budget_in_tokens_becomes_a_number_of_steps() -> None:
    changes = {**TEXT, "tokens": 10_000, "workers": 3, "batch": {"size": 4, "per": "worker"}}
    resolved = resolve(compose_config(**changes))
    assert resolved["max_steps"] == 24 and resolve(resolved)["max_steps"] == 24  # ceil(10,000 / (3 * 4 * 35))
    check_length(run_config.parse(resolved), 40)
    with pytest.raises(UsageError, match="^epochs=8: valid is at least 24 with tokens=10000, which are 24 steps$"):
        check_length(run_config.parse(resolved), 12)


def test_a_config_of_an_earlier_version_has_no_network() -> None:
    resolved = resolve(compose_config())
    earlier = {key: value for key, value in resolved.items() if key != "network"}
    assert run_config.parse(earlier) == run_config.parse(resolved) and run_config.parse(earlier).network == NoNetwork()
    with pytest.raises(UsageError, match="^memory: missing from the config$"):
        run_config.parse({key: value for key, value in resolved.items() if key != "memory"})


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
    assert resolve(compose_config(**changes))["exchange"]["name"] == exchange


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
        (
            {"policy": {"accordion": {"opinion": "rank"}}},
            "policy.accordion.opinion=rank: did you mean option? valid is one of the keys",
        ),
        ({"policy": {"start": 3}}, "policy.start=3: did you mean start_step? valid is one of the keys min_elements"),
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
        (
            {"compressor": "fp16", "memory": "ef21"},
            "compressor=fp16 with memory=ef21, exchange=allreduce: the network rou",
        ),
        (
            {"compressor": {"name": "randomk", "values": "fp16"}, "memory": "ef21", "exchange": "mixed"},
            "16 bits, and the common mean of the estimates would drift away from the sent values; "
            "valid is exchange=allgather, or another memory",
        ),
        (
            {"memory": "ef21", "policy": {"patterns": [{"match": "w", "compressor": {"name": "bf16"}}]}},
            "compressor=bf16 with memory=ef21, exchange=allreduce",
        ),
        (
            {"compressor": "qsgd", "memory": "dgc", "optimizer": NO_MOMENTUM},
            "compressor=qsgd with memory=dgc: momentum is cleared for sent elements, which are almost all elements "
            "in every step; valid is memory.momentum_masking=false, or a sparsifier (adaptive_threshold,atomo,",
        ),
        (
            {"compressor": "powersgd", "memory": "dgc", "optimizer": NO_MOMENTUM},
            "compressor=powersgd with memory=dgc: mom",
        ),
        (
            {"compressor": {"name": "topk", "ratio": 1.0}, "memory": "dgc", "optimizer": NO_MOMENTUM},
            "compressor=topk with memory=dgc: momentum is cleared",
        ),
        *(
            (
                {"compressor": SENDERS, "exchange": exchange},
                f"compressor=topk, compressor.mean=senders with exchange={exchange}: who "
                "has sent an element counts only where every worker decodes the payloads of all; valid is "
                "exchange=allgather, mixed or hierarchical, or compressor.mean=all",
            )
            for exchange in ("sharded", "parameter_server")
        ),
        (
            {"compressor": SENDERS, "memory": "ef21"},
            "compressor=topk, compressor.mean=senders with memory=ef21: the mean of all estimates is not that of those",
        ),
        (
            {"policy": {"patterns": [{"match": "w", "compressor": SENDERS}]}, "exchange": "sharded"},
            "compressor=topk, compressor.mean=senders with exchange=sharded",
        ),
        (
            {"compressor": "topk", "policy": {"lgreco": {"option": "ratio", "values": [2.0]}}},
            "policy.lgreco.values=2.0: valid is a number above 0 to 1",
        ),
        (
            {"compressor": "topk", "policy": {"lgreco": {"option": "ratio"}}},
            "policy.lgreco.values=[]: valid is a list of other values of",
        ),
        (
            {"compressor": "topk", "max_steps": 50, "policy": {"lgreco": {"option": "ratio", "values": [0.1]}}},
            "policy.lgreco.interval=50: valid is an integer below the number of steps (50)",
        ),
        (
            {"compressor": "topk", "policy": {"accordion": {"option": "ratio", "relaxed": 0.1}}},
            "policy.accordion.interval=10: valid is an integer from 1 to 3 with 8 epochs, or 21 epochs or more, as "
            "ratio=0.1 is in force until then",
        ),
        (
            {"compressor": "topk", "max_steps": 2, "policy": {"accordion": {"option": "ratio", "relaxed": 0.1}}},
            "policy.accordion.interval=10: valid is 21 epochs or more, as ratio=0.1",
        ),
        (
            {"policy": {"start_step": 9}, "max_steps": 8},
            "policy.start_step=9: valid is an integer up to the number of st",
        ),
        (
            {"compressor": {"name": "atomo", "budget": 9.0}, "policy": {"warmup": "exponential"}},
            "policy.warmup=exponential: valid is none with compressor=atomo with budget=9.0, which overrules the ratio",
        ),
        (
            {"compressor": {"name": "svd", "budget": 2.0}, "policy": {"accordion": {"option": "rank", "relaxed": 4}}},
            "policy.accordion.option=rank: valid is budget with compressor=svd with budget=2.0, which overrules",
        ),
        (
            {"compressor": "intsgd", "workers": 128},
            "workers=128 with compressor=intsgd: intsgd with 8 bits adds for 1 to 127 workers",
        ),
        ({"memory": "dgc"}, "memory=dgc with optimizer.momentum=0.9: the memory has the momentum; valid is optimizer."),
        ({"tokens": 1000}, "tokens=1000 with dataset=digits: its samples are no text; valid is max_steps, or a"),
        (
            {**TEXT, "tokens": 1000, "max_steps": 2},
            "max_steps=2 with tokens=1000: both end the run; valid is one of the two",
        ),
        (
            {"exchange": {"name": "parameter_server", **SERVER}, "evaluate_every_steps": 9},
            "evaluate_every_steps=9 with exchange.mode=asynchronous: workers have the same parameters at the end",
        ),
        ({"compressor": "signum", "memory": "residual"}, "compressor=signum with memory=residual: it sends directions"),
    ],
)
def test_what_cannot_work_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": "fp16", "memory": "ef21", "exchange": "allgather"},
        *({"compressor": SENDERS, "exchange": name} for name in ("allgather", "mixed", "hierarchical")),
        {"compressor": "fp16", "memory": "residual"},
        {"compressor": "intsgd", "memory": "ef21"},
        {"compressor": "topk", "memory": "dgc", "optimizer": NO_MOMENTUM, "policy": {"dense_1d": True}},
        {"compressor": "none", "memory": "dgc", "optimizer": NO_MOMENTUM},
        {"compressor": "qsgd", "memory": {"name": "dgc", "momentum_masking": False}, "optimizer": NO_MOMENTUM},
        {"compressor": "qsgd", "memory": {"name": "dgc", "momentum": 0.0}, "optimizer": NO_MOMENTUM},
        {"compressor": "topk", "policy": {"accordion": {"option": "ratio", "relaxed": 0.1, "interval": 3}}},
        {
            "compressor": {"name": "atomo", "budget": 9.0},
            "policy": {"accordion": {"option": "budget", "relaxed": 99.0, "interval": 2}},
        },
        {"policy": {"start_step": 8}, "max_steps": 8},
    ],
    ids=str,
)
def test_what_can_work_is_not_refused(changes: dict[str, Any]) -> None:
    resolve(compose_config(**changes))
