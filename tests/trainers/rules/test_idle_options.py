"""Options that decide nothing where another has some value: what is said of each, and where they are fine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.configs import compose_config
from trainers.rules.idle_options import RULES, find_idle, list_rules
from trainers.rules.resolve import resolve

WARM = {"name": "cosine", "warmup_epochs": 2.0}
RATIO = {"name": "topk", "ratio": 0.1}

CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "topology",
        {"topology": "torus", "workers": 4},
        "together with algorithm=dpsgd,choco,deep_squeeze,dcd,ecd,sgp,noloco; here algorithm=sgd",
        {"topology": "torus", "workers": 4, "algorithm": "choco"},
    ),
    ("topology.rows", {"algorithm": "local_sgd"}, "together with algorithm=dpsgd,", {"algorithm": "dpsgd"}),
    (
        "loss_scale.initial",
        {},
        "together with precision=fp16; here precision=fp32",
        {"precision": "fp16"},
    ),
    (
        "loss_scale.growth_interval",
        {"precision": "fp16", "loss_scale": {"dynamic": False}},
        "together with loss_scale.dynamic=true; here loss_scale.dynamic=false",
        {"precision": "fp16"},
    ),
    ("scaling.by", {}, "together with scaling.rule=linear,sqrt; here scaling.rule=none", {"scaling": {"rule": "sqrt"}}),
    (
        "scaling.base_batch",
        {"scaling": {"rule": "linear"}},
        "together with scaling.by=batch,neighbourhood; here scaling.by=workers",
        {"scaling": {"rule": "linear", "by": "batch"}},
    ),
    (
        "partition.alpha",
        {"partition": {"scheme": "label"}},
        "together with partition.scheme=dirichlet; here partition.scheme=label",
        {"partition": {"scheme": "dirichlet"}},
    ),
    (
        "data.loaders",
        {},
        "together with dataset=imagenet,custom; here dataset=digits",
        {"dataset": "imagenet", "model": "resnet18"},
    ),
    (
        "policy.warmup_epochs",
        {"compressor": RATIO},
        "together with policy.warmup=exponential; here policy.warmup=none",
        {"compressor": RATIO, "policy": {"warmup": "exponential"}},
    ),
    (
        "policy.lgreco.interval",
        {"compressor": RATIO},
        "together with policy.lgreco.option; here policy.lgreco.option=null",
        {"compressor": RATIO, "policy": {"lgreco": {"option": "ratio", "values": [0.5], "interval": 2}}},
    ),
    (
        "policy.accordion.relaxed",
        {"compressor": RATIO},
        "together with policy.accordion.option; here policy.accordion.option=null",
        {"compressor": RATIO, "policy": {"accordion": {"option": "ratio", "relaxed": 0.5, "interval": 2}}},
    ),
    ("policy.dense_1d", {}, "together with a compressor; here compressor=none", {"compressor": "topk"}),
    (
        "policy.min_elements",
        {},
        "together with a compressor; here compressor=none",
        {"policy": {"patterns": [{"match": "weight", "compressor": {"name": "topk"}}]}},
    ),
    (
        "exchange.bucket_mib",
        {"exchange": {"granularity": "model"}},
        "together with exchange.granularity=bucket; here exchange.granularity=model",
        {"exchange": {"granularity": "bucket"}},
    ),
    (
        "exchange.allreduce",
        {"exchange": "allgather"},
        "together with exchange=allreduce,mixed, which sum; here exchange=allgather",
        {"exchange": "allreduce"},
    ),
    (
        "exchange.allreduce",
        {"exchange": {"transport": "torch"}},
        "together with exchange.transport=mpi; here exchange.transport=torch",
        {"exchange": "mixed"},
    ),
    (
        "exchange.part_mib",
        {"algorithm": "dpsgd"},
        "together with exchange=auto,allreduce,allgather,mixed and a centralised algorithm; here exchange=gossip",
        {"compressor": "qsgd"},
    ),
    (
        "exchange.overlap",
        {"exchange": {"tune": True}},
        "together with exchange.tune=false; here exchange.tune=true",
        {"exchange": {"overlap": True}},
    ),
    (
        "exchange.staleness",
        {"exchange": "parameter_server"},
        "together with exchange.mode=asynchronous; here exchange.mode=synchronous",
        {"exchange": {"name": "parameter_server", "placement": "dedicated", "mode": "asynchronous"}},
    ),
    (
        "exchange.second_memory",
        {"exchange": "parameter_server"},
        "together with exchange.answer=compressed; here exchange.answer=dense",
        {"exchange": {"name": "parameter_server", "answer": "compressed"}},
    ),
    (
        "exchange.second_memory",
        {"exchange": {"name": "sharded", "second": "none"}},
        "together with exchange.second=same; here exchange.second=none",
        {"exchange": "sharded"},
    ),
    (
        "exchange.workers_per_node",
        {"exchange": {"name": "hierarchical", "workers_per_node": 4}, "workers": 4},
        "a number below the workers: all would be in one node, and nothing would be compressed; here workers=4",
        {"exchange": {"name": "hierarchical", "workers_per_node": 2}, "workers": 4},
    ),
    ("network", {"network": "wan_100m", "workers": 1}, "together with more workers than", {"network": "real"}),
    (
        "network.workers_per_host",
        {"network": {"name": "emulated", "workers_per_host": 2}},
        "together with more workers than network.workers_per_host: all ranks are on one host, and no message leaves it",
        {"network": {"name": "emulated", "workers_per_host": 2}, "workers": 3},
    ),
    (
        "network.hosts",
        {"network": {"name": "emulated", "hosts": {2: {"latency": "5ms"}}}},
        "numbers of hosts that there are: workers / network.workers_per_host of them, from 0",
        {"network": {"name": "emulated", "hosts": {2: {"latency": "5ms"}}}, "workers": 3},
    ),
    (
        "schedule.warmup_per",
        {"schedule": "constant"},
        "together with schedule.warmup_epochs or schedule.warmup_steps above 0; here schedule.warmup_epochs=0.0",
        {"schedule": WARM},
    ),
    (
        "schedule.warmup_epochs",
        {"schedule": WARM, "epochs": 2},
        "a number below the epochs of the run; a longer warm-up is cut to half of it; here epochs=2",
        {"schedule": WARM, "epochs": 3, "max_steps": 1},
    ),
    (
        "schedule.milestones",
        {"schedule": "multistep"},
        "a list of one number or more, or schedule=constant for no drop; left out, the rate drops at half and at three "
        "quarters of the run",
        {"schedule": {"name": "multistep", "milestones": [4]}},
    ),
    (
        "schedule.milestones",
        {"schedule": {"name": "multistep", "milestones": [4, 8]}},
        "a list of numbers below the epochs of the run; here epochs=8",
        {"schedule": {"name": "multistep", "milestones": [4, 7]}, "max_steps": 20},
    ),
    (
        "schedule.knots",
        {"schedule": {"name": "piecewise", "knots": [[0, 0], [8, 1], [9, 0]]}},
        "knots of which all but the last are before the end of the run; here epochs=8",
        {"schedule": {"name": "piecewise", "knots": [[0, 0], [5, 1], [24, 0]]}},
    ),
    (
        "schedule.phases",
        {"schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1}, {"epoch": 8, "lr": 0.01}]}},
        "phases that begin before the end of the run; here epochs=8",
        {"schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1}, {"epoch": 7, "lr": 0.01}]}},
    ),
    (
        "phases",
        {"phases": [{"epoch": 2, "scale": 0.5}]},
        "phases without scale and rectangular, which are of dataset=imagenet; here dataset=digits",
        {"phases": [{"epoch": 2, "batch": 64}]},
    ),
    (
        "optimizer.lr",
        {"schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1}]}},
        "together with another schedule than regime, whose phases have the rates; here schedule=regime",
        {},
    ),
    (
        "optimizer.decay_1d",
        {"optimizer": {"weight_decay": 0.0}},
        "together with optimizer.weight_decay above 0; here optimizer.weight_decay=0.0",
        {
            "optimizer": {"weight_decay": 0.0},
            "schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1, "weight_decay": 0.1}]},
        },
    ),
    (
        "memory.clip_per",
        {"memory": "dgc", "optimizer": "dgc_sgd", "compressor": "topk"},
        "together with memory.clip; here memory.clip=null",
        {"memory": {"name": "dgc", "clip": 1.0}, "optimizer": "dgc_sgd", "compressor": "topk"},
    ),
    (
        "memory.nesterov",
        {"memory": {"name": "dgc", "momentum": 0.0}, "optimizer": "dgc_sgd", "compressor": "topk"},
        "together with memory.momentum above 0; here memory.momentum=0.0",
        {"memory": "dgc", "optimizer": "dgc_sgd", "compressor": "topk"},
    ),
    (
        "compressor.rank",
        {"compressor": {"name": "svd", "budget": 2.5}},
        "together with compressor.budget=null; here compressor.budget=2.5",
        {"compressor": "svd"},
    ),
    (
        "compressor.rank_fraction",
        {"compressor": {"name": "dion", "rank": 4}, "optimizer": "dion", "memory": "residual"},
        "together with compressor.rank=null; here compressor.rank=4",
        {"compressor": "dion", "optimizer": "dion", "memory": "residual"},
    ),
    (
        "compressor.levels",
        {"compressor": {"name": "qsvd", "scheme": "terngrad"}},
        "together with compressor.scheme=qsgd; here compressor.scheme=terngrad",
        {"compressor": "qsgd"},
    ),
    (
        "compressor.adapt",
        {"compressor": {"name": "sidco", "adapt_every": None}},
        "together with compressor.adapt_every; here compressor.adapt_every=null",
        {"compressor": "sidco"},
    ),
    (
        "memory.double_momentum",
        {"memory": "ef21"},
        "together with memory.gradient_weight below 1; here memory.gradient_weight=1.0",
        {"memory": {"name": "ef21", "gradient_weight": 0.1}},
    ),
    (
        "evaluate_every",
        {"evaluate_every_steps": 5},
        "together with evaluate_every_steps=null; here evaluate_every_steps=5",
        {},
    ),
    (
        "schedule.warmup_epochs",
        {"schedule": {"name": "cosine", "warmup_steps": 5}},
        "together with schedule.warmup_steps=null; here schedule.warmup_steps=5",
        {"schedule": "cosine"},
    ),
    (
        "schedule.shape",
        {"schedule": {"name": "wsd", "decay": 0.0}},
        "together with schedule.decay above 0; here schedule.decay=0.0",
        {"schedule": "wsd"},
    ),
    (
        "dataset.padding_mode",
        {},
        "together with dataset.crop_padding above 0; here dataset.crop_padding=0",
        {"dataset": {"name": "digits", "crop_padding": 1}},
    ),
    (
        "dataset.padding_fill",
        {"dataset": {"name": "digits", "crop_padding": 1}},
        "together with dataset.padding_mode=constant; here dataset.padding_mode=reflect",
        {"dataset": {"name": "digits", "crop_padding": 1, "padding_mode": "constant"}},
    ),
    (
        "dataset.test_share",
        {"dataset": {"name": "libsvm", "test": "test.svm"}},
        "together with dataset.test=null; here dataset.test=test.svm",
        {"dataset": "libsvm"},
    ),
    (
        "model.dropout",
        {"model": "vgg"},
        "together with model.head=hidden,imagenet; here model.head=linear",
        {"model": {"name": "vgg", "head": "hidden"}},
    ),
    ("channels_last", {}, "together with a model of images; here model=mlp", {"model": "wideresnet"}),
    (
        "batch_norm",
        {"batch_norm": "local"},
        "together with a model that has batch normalisation; here model=mlp",
        {"batch_norm": "local", "model": "wideresnet"},
    ),
]


@pytest.mark.parametrize(("key", "changes", "valid", "works"), CASES, ids=[case[0] for case in CASES])
def test_a_typed_option_that_decides_nothing_is_told_with_what_would(
    key: str, changes: dict[str, Any], valid: str, works: dict[str, Any]
) -> None:
    found = find_idle(resolve(compose_config(**changes)), [key, "seed", "workers"])
    assert list(found) == [key] and found[key].startswith(valid)
    assert find_idle(resolve(compose_config(**works)), [key]) == {}


def test_every_rule_has_a_case_in_which_it_alone_speaks() -> None:
    spoken = {
        rule
        for key, changes, _, _ in CASES
        for rule in list_rules(key)
        if rule.is_broken(resolve(compose_config(**changes)))
    }
    assert spoken == set(RULES)


def test_where_nothing_was_typed_nothing_is_idle() -> None:
    """Defaults and presets have all options: only what is asked for is looked at."""
    assert find_idle(resolve(compose_config()), []) == {}
