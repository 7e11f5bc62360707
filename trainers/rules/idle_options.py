"""Options that decide nothing where another has some value: which, and what they go together with.

They have defaults, and presets give them values, so a config may always have them. Whoever types one wants it to do
something, so what is typed and decides nothing at any point is refused (`sweep/config/idle_options.py`). A run that
is laid out has
no typed words: these rules are no part of a resume.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradsweep import run_directory
from trainers.options.algorithms import ALGORITHMS, Decentralised

Config = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Rule:
    """When some options decide something.

    Attributes:
        options: as they are typed; `scaling.*` are all of a section.
        test: of the config of a run, whether they do.
        valid: what they are or go together with, in words.
        other: the option that keeps them from it, if it is one.
    """

    options: tuple[str, ...]
    test: Callable[[Config], bool]
    valid: str
    other: str | None = None

    def why(self, config: Config) -> str:
        """What is valid in place of an option that decides nothing in this run."""
        if self.other is None:
            return self.valid
        value = _at(config, self.other)
        return f"{self.valid}; here {self.other.removesuffix('.name')}={_word(value)}"


def _together(options: str, other: str, values: Sequence[Any]) -> Rule:
    """These options need the other to be one of these values."""
    listed = ",".join(map(_word, values))
    return Rule(
        tuple(options.split()),
        lambda config: _at(config, other, values[0]) in values,
        f"together with {other.removesuffix('.name')}={listed}",
        other,
    )


def _unless(options: str, other: str, value: Any, instead: str) -> Rule:
    """These options need the other to be anything else than this value."""
    return Rule(
        tuple(options.split()), lambda config: _at(config, other, ...) != value, f"together with {instead}", other
    )


def _at(config: Any, key: str, default: Any = None) -> Any:
    """The value of a dotted key; the default where this run has no such option."""
    for part in key.split("."):
        if not isinstance(config, Mapping) or part not in config:
            return default
        config = config[part]
    return config


def _word(value: Any) -> str:
    """A value as it is typed."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _hosts(config: Config) -> int | None:
    """How many hosts an emulated network has; None where none is emulated."""
    each = _at(config, "network.workers_per_host")
    return None if each is None else -(-run_directory.ranks(config) // int(each))


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
    _together("topology topology.*", "algorithm.name", _DECENTRALISED),
    _together("loss_scale.*", "precision", ["fp16"]),
    _together("loss_scale.growth_interval", "loss_scale.dynamic", [True]),
    _together("scaling.by scaling.base_batch", "scaling.rule", ["linear", "sqrt"]),
    _together("scaling.base_batch", "scaling.by", ["batch", "neighbourhood"]),
    _together("partition.alpha", "partition.scheme", ["dirichlet"]),
    _together("data.loaders", "dataset.name", ["imagenet"]),
    _together("policy.warmup_epochs policy.warmup_coefficient", "policy.warmup", ["exponential"]),
    _unless(
        "policy.accordion.relaxed policy.accordion.threshold policy.accordion.interval policy.accordion.lr_drop",
        "policy.accordion.option",
        None,
        "policy.accordion.option",
    ),
    Rule(
        ("policy.min_elements", "policy.dense_1d", "policy.start_step"),
        lambda config: config["compressor"]["name"] != "none" or bool(config["policy"]["patterns"]),
        "together with a compressor",
        "compressor.name",
    ),
    _together("exchange.bucket_mib", "exchange.granularity", ["bucket"]),
    _together("exchange.staleness", "exchange.mode", ["asynchronous"]),
    _together("exchange.second_memory", "exchange.answer", ["compressed"]),
    _together("exchange.second_memory", "exchange.second", ["same"]),
    Rule(
        ("exchange.workers_per_node",),
        lambda config: (config["exchange"].get("workers_per_node") or 0) < config["workers"],
        "a number below the workers: all would be in one node, and nothing would be compressed",
        "workers",
    ),
    Rule(
        ("network", "network.*"),
        lambda config: _hosts(config) != 1,
        "together with more workers than network.workers_per_host: all ranks are on one host, and no message leaves it",
    ),
    Rule(
        ("network.hosts",),
        lambda config: all(int(host) < (_hosts(config) or 0) for host in config["network"].get("hosts", ())),
        "numbers of hosts that there are: workers / network.workers_per_host of them, from 0",
    ),
    _unless("schedule.warmup_from schedule.warmup_per", "schedule.warmup_epochs", 0, "schedule.warmup_epochs above 0"),
    Rule(
        ("schedule.warmup_epochs",),
        lambda config: config["schedule"]["warmup_epochs"] < config["epochs"],
        "a number below the epochs of the run; a longer warm-up is cut to half of it",
        "epochs",
    ),
    Rule(
        ("schedule.milestones",),
        lambda config: config["schedule"].get("milestones") != [],
        "a list of one number or more, or schedule=constant for no drop; left out, the rate drops at half and at "
        "three quarters of the run",
    ),
    Rule(("schedule.milestones",), _milestones_in_time, "a list of numbers below the epochs of the run", "epochs"),
    Rule(
        ("schedule.knots",), _knots_in_time, "knots of which all but the last are before the end of the run", "epochs"
    ),
    Rule(
        ("phases",),
        lambda config: (
            config["dataset"]["name"] == "imagenet"
            or not any("scale" in phase or "rectangular" in phase for phase in config["phases"])
        ),
        "phases without scale and rectangular, which are of dataset=imagenet",
        "dataset.name",
    ),
    Rule(("schedule.phases",), _phases_in_time, "phases that begin before the end of the run", "epochs"),
    _unless("optimizer.lr", "schedule.name", "regime", "another schedule than regime, whose phases have the rates"),
    Rule(
        ("optimizer.decay_1d", "optimizer.decoupled"),
        lambda config: (
            config["optimizer"].get("weight_decay") != 0
            or any(phase.get("weight_decay") for phase in config["schedule"].get("phases", ()))
        ),
        "together with optimizer.weight_decay above 0",
        "optimizer.weight_decay",
    ),
    _unless("memory.clip_per", "memory.clip", None, "memory.clip"),
    _unless("memory.nesterov memory.momentum_masking", "memory.momentum", 0, "memory.momentum above 0"),
    Rule(
        ("compressor.ratio", "compressor.rank"),
        lambda config: config["compressor"].get("budget") is None,
        "together with compressor.budget=null",
        "compressor.budget",
    ),
    _together("compressor.levels compressor.norm", "compressor.scheme", ["qsgd"]),
    _unless("compressor.tolerance compressor.adapt", "compressor.adapt_every", None, "compressor.adapt_every"),
    _unless("dataset.padding_mode dataset.padding_fill", "dataset.crop_padding", 0, "dataset.crop_padding above 0"),
    _together("dataset.padding_fill", "dataset.padding_mode", ["constant"]),
    _together("dataset.test_share", "dataset.test", [None]),
    _unless("model.dropout", "model.head", "linear", "model.head=hidden,imagenet"),
    Rule(
        ("channels_last",),
        lambda config: config["model"]["name"] not in _NO_IMAGES,
        "together with a model of images",
        "model.name",
    ),
    Rule(
        ("batch_norm",),
        lambda config: config["model"]["name"] not in _NOT_NORMALISED,
        "together with a model that has batch normalisation",
        "model.name",
    ),
)


def lines() -> list[str]:
    """The rules in words, for docs/reference/compatibility.md."""
    return [f"`{'`, `'.join(rule.options)}`: {rule.valid}" for rule in RULES]


def idle(config: Config, typed: Iterable[str]) -> dict[str, str]:
    """Return what is valid in place of each typed key that decides nothing in a resolved run."""
    found = {}
    for key in typed:
        for rule in _rules_of(key):
            if not rule.test(config):
                found[key] = rule.why(config)
                break
    return found


@functools.cache
def _rules_of(key: str) -> list[Rule]:
    """The rules of a key as it is typed; a sweep may ask for thousands of points."""
    section = key.partition(".")[0]
    return [rule for rule in RULES if key in rule.options or f"{section}.*" in rule.options and "." in key]
