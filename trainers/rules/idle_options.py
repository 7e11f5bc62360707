"""Rules on options that have no effect with some values of other options.

Such options may be in any config, since they have defaults, and presets set them. But a user who types an option wants
an effect. So a typed option is refused if it has no effect at any point (`sweep/config/idle_options.py`). A run that
exists already has no typed options, so a resume does not use these rules. They read resolved configs, not RunConfigs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gradsweep import run_directory
from trainers.options.algorithms import ALGORITHMS, Decentralised
from trainers.rules import scripts
from trainers.rules.rule import Condition, Rule, read, word

Config = Mapping[str, Any]


def _idle(options: str, test: Callable[[Config], bool], valid: str, other: str | None = None) -> Rule:
    """Return the rule that some options have an effect only in configs that pass a test.

    Args:
        options: their keys, separated by spaces; `scaling.*` means all options of a section.
        valid: what is valid instead, in words.
        other: the option because of which they have no effect, if it is a single one.
    """
    typed = Condition(", ".join(f"`{option}`" for option in options.split()), lambda config: True, options)
    idle = Condition("", lambda config: not test(config), f"; here {{{other}=}}" if other else "")
    return Rule(typed, idle, "", valid)


def _together(options: str, other: str, *values: Any) -> Rule:
    """Return the rule that `options` have an effect only if `other` has one of `values` or is not in the config."""
    listed = ",".join(map(word, values))
    return _idle(
        options, lambda config: read(config, other, values[0]) in values, f"together with {other}={listed}", other
    )


def _unless(options: str, other: str, value: Any, instead: str) -> Rule:
    """Return the rule that `options` have an effect only if `other` does not have this value."""
    return _idle(options, lambda config: read(config, other, ...) != value, f"together with {instead}", other)


def _count_hosts(config: Config) -> int | None:
    """Return the number of hosts of an emulated network; None without emulation."""
    each = read(config, "network.workers_per_host")
    return None if each is None else -(-run_directory.count_ranks(config) // int(each))


def _decays(config: Config) -> bool:
    return bool(config["schedule"].get("decay", 1))


def _milestones_in_time(config: Config) -> bool:
    return all(one < config["epochs"] for one in config["schedule"].get("milestones", ()))


def _knots_in_time(config: Config) -> bool:
    return all(epoch < config["epochs"] for epoch, _ in config["schedule"].get("knots", ())[:-1])


def _phases_in_time(config: Config) -> bool:
    return all(phase["epoch"] < config["epochs"] for phase in config["schedule"].get("phases", ()))


_DECENTRALISED = [name for name, cls in ALGORITHMS.items() if issubclass(cls, Decentralised)]
_NO_IMAGES = ("lstm", "mlp", "logistic")
_NOT_NORMALISED = (*_NO_IMAGES, "fc")

RULES: tuple[Rule, ...] = (
    _together("topology topology.*", "algorithm", *_DECENTRALISED),
    _together("loss_scale.*", "precision", "fp16"),
    _together("loss_scale.growth_interval", "loss_scale.dynamic", True),
    _together("scaling.by scaling.base_batch", "scaling.rule", "linear", "sqrt"),
    _together("scaling.base_batch", "scaling.by", "batch", "neighbourhood"),
    _together("partition.alpha", "partition.scheme", "dirichlet"),
    _together("data.loaders", "dataset", "imagenet", "custom"),
    _together("policy.warmup_epochs policy.warmup_coefficient", "policy.warmup", "exponential"),
    _unless(
        "policy.accordion.relaxed policy.accordion.threshold policy.accordion.interval policy.accordion.lr_drop",
        "policy.accordion.option",
        None,
        "policy.accordion.option",
    ),
    _unless(
        "policy.lgreco.values policy.lgreco.interval policy.lgreco.factor",
        "policy.lgreco.option",
        None,
        "policy.lgreco.option",
    ),
    _idle(
        "policy.min_elements policy.dense_1d policy.start_step",
        lambda config: config["compressor"]["name"] != "none" or bool(config["policy"]["patterns"]),
        "together with a compressor",
        "compressor",
    ),
    _together("exchange.bucket_mib", "exchange.granularity", "bucket"),
    _idle(
        "exchange.allreduce",
        lambda config: config["exchange"]["name"] in ("allreduce", "mixed"),
        "together with exchange=allreduce,mixed, which sum",
        "exchange",
    ),
    _together("exchange.allreduce", "exchange.transport", "mpi"),
    _idle(
        "exchange.part_mib",
        lambda config: "part_mib" in config["exchange"],
        "together with exchange=auto,allreduce,allgather,mixed and a centralised algorithm",
        "exchange",
    ),
    _together("exchange.overlap exchange.part_mib exchange.allreduce", "exchange.tune", False),
    _together("exchange.staleness", "exchange.mode", "asynchronous"),
    _together("exchange.second_memory", "exchange.answer", "compressed"),
    _together("exchange.second_memory", "exchange.second", "same"),
    _idle(
        "exchange.workers_per_node",
        lambda config: (config["exchange"].get("workers_per_node") or 0) < config["workers"],
        "a number below the workers: all would be in one node, and nothing would be compressed",
        "workers",
    ),
    _idle(
        "network network.*",
        lambda config: _count_hosts(config) != 1,
        "together with more workers than network.workers_per_host: all ranks are on one host, and no message leaves it",
    ),
    _idle(
        "network.hosts",
        lambda config: all(int(host) < (_count_hosts(config) or 0) for host in config["network"].get("hosts", ())),
        "numbers of hosts that there are: workers / network.workers_per_host of them, from 0",
    ),
    _idle(
        "schedule.warmup_from schedule.warmup_per",
        lambda config: bool(config["schedule"].get("warmup_steps") or config["schedule"]["warmup_epochs"]),
        "together with schedule.warmup_epochs or schedule.warmup_steps above 0",
        "schedule.warmup_epochs",
    ),
    _together("evaluate_every", "evaluate_every_steps", None),
    _together("schedule.warmup_epochs", "schedule.warmup_steps", None),
    _idle(
        "schedule.warmup_epochs",
        lambda config: config["schedule"]["warmup_epochs"] < config["epochs"],
        "a number below the epochs of the run; a longer warm-up is cut to half of it",
        "epochs",
    ),
    _idle(
        "schedule.milestones",
        lambda config: config["schedule"].get("milestones") != [],
        "a list of one number or more, or schedule=constant for no drop; left out, the rate drops at half and at "
        "three quarters of the run",
    ),
    _idle("schedule.shape schedule.final", _decays, "together with schedule.decay above 0", "schedule.decay"),
    _idle("schedule.milestones", _milestones_in_time, "a list of numbers below the epochs of the run", "epochs"),
    _idle("schedule.knots", _knots_in_time, "knots of which all but the last are before the end of the run", "epochs"),
    _idle(
        "phases",
        lambda config: (
            config["dataset"]["name"] == "imagenet"
            or not any("scale" in phase or "rectangular" in phase for phase in config["phases"])
        ),
        "phases without scale and rectangular, which are of dataset=imagenet",
        "dataset",
    ),
    _idle("schedule.phases", _phases_in_time, "phases that begin before the end of the run", "epochs"),
    _unless("optimizer.lr", "schedule", "regime", "another schedule than regime, whose phases have the rates"),
    _idle(
        "optimizer.decay_1d optimizer.decoupled",
        lambda config: (
            config["optimizer"].get("weight_decay") != 0
            or any(phase.get("weight_decay") for phase in config["schedule"].get("phases", ()))
        ),
        "together with optimizer.weight_decay above 0",
        "optimizer.weight_decay",
    ),
    _unless("memory.clip_per", "memory.clip", None, "memory.clip"),
    _unless("memory.double_momentum", "memory.gradient_weight", 1, "memory.gradient_weight below 1"),
    _unless("memory.nesterov memory.momentum_masking", "memory.momentum", 0, "memory.momentum above 0"),
    _idle(
        "compressor.ratio compressor.rank",
        lambda config: config["compressor"].get("budget") is None,
        "together with compressor.budget=null",
        "compressor.budget",
    ),
    _idle(
        "compressor.rank_fraction",
        lambda config: config["compressor"].get("rank") is None,
        "together with compressor.rank=null",
        "compressor.rank",
    ),
    _together("compressor.levels compressor.norm", "compressor.scheme", "qsgd"),
    _unless("compressor.tolerance compressor.adapt", "compressor.adapt_every", None, "compressor.adapt_every"),
    _unless("dataset.padding_mode dataset.padding_fill", "dataset.crop_padding", 0, "dataset.crop_padding above 0"),
    _together("dataset.padding_fill", "dataset.padding_mode", "constant"),
    _together("dataset.test_share", "dataset.test", None),
    _unless("model.dropout", "model.head", "linear", "model.head=hidden,imagenet"),
    _idle(
        "channels_last",
        lambda config: config["model"]["name"] not in _NO_IMAGES,
        "together with a model of images",
        "model",
    ),
    _idle(
        "batch_norm",
        lambda config: config["model"]["name"] not in _NOT_NORMALISED,
        "together with a model that has batch normalisation",
        "model",
    ),
)


def find_idle(config: Config, typed: Iterable[str]) -> dict[str, str]:
    """Return the typed keys that have no effect in a resolved config, each with what is valid instead."""
    found = {}
    for key in typed:
        if run_directory.is_script(config) and (valid := scripts.explain_idle(key)) is not None:
            found[key] = valid
            continue
        for rule in list_rules(key):
            if rule.is_broken(config):
                found[key] = rule.instead + rule.forbids.show(config)
                break
    return found


@functools.cache
def list_rules(key: str) -> list[Rule]:
    """Return the rules for a typed key, cached: a sweep may request them for thousands of points."""
    section = key.partition(".")[0]
    named = [(rule, str(rule.when.shown).split()) for rule in RULES]
    return [rule for rule, options in named if key in options or f"{section}.*" in options and "." in key]
