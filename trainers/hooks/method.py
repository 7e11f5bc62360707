"""The method of a hook: compressor, memory, policy and exchange, from the arguments of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import compressors
from compressors import Compressor, memories
from compressors.memories.base import Memory
from compressors.policy.policy import Policy
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import InvalidParameter, from_mapping
from trainers.config.run_config import build_section
from trainers.gradients.units import can_join_layers
from trainers.options.exchanges import EXCHANGES, Exchange, Sharded
from trainers.rules import check
from trainers.rules.compressors import MEMORY_RULES, RULES, Combination, choose_exchange
from trainers.rules.rule import refuse

T = TypeVar("T")

OVERLAPPING = {name: ("part_mib", "overlap") for name in ("auto", "allreduce", "allgather", "mixed")}
"""Exchanges that send each payload once, with the options that they have in a hook."""
TWO_PHASE = {"sharded": ("second", "second_memory")}
"""Exchanges whose units have owners, which compress the mean again."""
GRANULARITIES = ("layer", "bucket")
ARGUMENTS = (
    *("memory", "policy", "exchange", "granularity", "seed", "measure_every"),
    *("module", "optimizer", "process_group"),
)
"""Arguments of hooks; all others are options of the compressor."""


@dataclasses.dataclass(frozen=True)
class Method:
    """What a hook does with gradients; rules read its attributes as those of a run."""

    compressor: Compressor
    memory: Memory
    policy: Policy
    exchange: Exchange
    seed: int
    measure_every: int
    algorithm: None = None

    @property
    def joins_layers(self) -> bool:
        """Whether a bucket of layers has the same numbers as its layers, and needs no owners for them."""
        shards = isinstance(self.exchange, Sharded)
        return not shards and can_join_layers(self.policy, self.compressor, self.memory)

    @property
    def needs_lr(self) -> bool:
        """Whether the numbers depend on the learning rate."""
        possible = self.policy.list_possible(self.compressor)
        return (
            any(compressor.needs_movement for compressor in possible)
            or self.memory.name == "scaled_residual"
            or self.policy.accordion.option is not None
        )

    @property
    def needs_epoch(self) -> bool:
        """Whether the numbers depend on the epoch."""
        return self.policy.warmup != "none" or self.policy.accordion.option is not None


def build_method(
    compressor: str | Compressor,
    options: Mapping[str, Any],
    *,
    memory: str | Mapping[str, Any] | Memory,
    policy: Mapping[str, Any] | Policy | None,
    exchange: str | Mapping[str, Any],
    exchanges: Mapping[str, Sequence[str]],
    granularity: str,
    workers: int,
    seed: int,
    measure_every: int,
    overlap: bool = True,
) -> Method:
    """Build the method that a call describes.

    Args:
        options: hyper-parameters of the compressor, if it is given by its name.
        exchanges: the exchanges that the hook has, with their options.
        workers: how many exchange gradients.
        overlap: send during backward, unless the exchange's options say otherwise.

    Raises:
        UsageError: a name or value is not valid, or parts do not go together; one line.
    """
    if isinstance(compressor, Compressor):
        if options:
            raise bad_value(next(iter(options)), options[next(iter(options))], "an option of a compressor's name only")
        built = compressor
    else:
        built = _build("compressor", compressors.build, compressor, options, ARGUMENTS)
    if not isinstance(memory, Memory):
        memory = _build("memory", memories.build, *_split("memory", memory))
    rules = policy if isinstance(policy, Policy) else _build_policy(policy)
    for key, number, least in (("seed", seed, 0), ("measure_every", measure_every, 0)):
        if not isinstance(number, int) or number < least:
            raise bad_value(key, number, f"an integer from {least} up")
    method = Method(built, memory, rules, Exchange(), seed, measure_every)
    method = dataclasses.replace(method, exchange=_build_exchange(method, exchange, exchanges, granularity, overlap))
    _check_together(method, workers)
    return method


def _split(key: str, given: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a member of a group: a name alone, or a mapping with `name`."""
    if isinstance(given, str):
        return given, {}
    if not (isinstance(given, Mapping) and isinstance(given.get("name"), str)):
        raise bad_value(key, given, "a name, or a mapping with the key name")
    return given["name"], {option: value for option, value in given.items() if option != "name"}


def _build(key: str, build: Callable[..., T], name: str, options: Mapping[str, Any], others: Sequence[str] = ()) -> T:
    if not isinstance(name, str):
        raise bad_value(key, name, "a name")
    return _check(key, lambda: build(name, **options), others)


def _build_policy(given: Mapping[str, Any] | None) -> Policy:
    if not (given is None or isinstance(given, Mapping)):
        raise bad_value("policy", given, "a mapping with keys of a config's policy")
    policy: Policy = build_section("policy", Policy, given or {})
    return policy


def _check(key: str, build: Callable[[], T], others: Sequence[str] = ()) -> T:
    """Return what `build` returns; its errors name the argument.

    Args:
        others: arguments that may be meant by an unknown option.
    """
    try:
        return build()
    except InvalidParameter as error:
        key = key if error.name == "name" else f"{key}.{error.name}"
        meant = error.meant or did_you_mean(error.name, others)
        raise bad_value(key, error.value, error.valid, meant) from error


def _build_exchange(
    method: Method,
    given: str | Mapping[str, Any],
    exchanges: Mapping[str, Sequence[str]],
    granularity: str,
    overlap: bool,
) -> Exchange:
    name, options = _split("exchange", given)
    if name not in exchanges:
        others = ": a hook averages the gradients of all workers in every step" if name in EXCHANGES else ""
        valid = f"{'one of ' if len(exchanges) > 1 else ''}{', '.join(exchanges)}{others}"
        raise bad_value("exchange", name, valid, did_you_mean(name, exchanges))
    if granularity not in GRANULARITIES:
        raise bad_value("granularity", granularity, f"one of {', '.join(GRANULARITIES)}")
    for option, value in options.items():
        if option not in exchanges[name]:
            valid = f"an option of exchange={name} in a hook: {', '.join(exchanges[name])}"
            raise bad_value(f"exchange.{option}", value, valid, did_you_mean(option, exchanges[name]))
    if name == "auto":
        name = choose_exchange(method.policy.list_possible(method.compressor))
    if name in OVERLAPPING:
        options = {"overlap": overlap, **options}
    member = EXCHANGES[name]
    exchange: Exchange = _check("exchange", lambda: from_mapping(member, {**options, "granularity": granularity}))
    return exchange


def _check_together(method: Method, workers: int) -> None:
    """Refuse parts that do not go together, by the rules of a run.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    policy, compressor = method.policy, method.compressor
    _check("policy", lambda: policy.check(compressor))
    for possible in (*policy.list_possible(compressor), *policy.list_variants(compressor)):
        try:
            dataclasses.replace(possible).join(workers)
        except ValueError as error:
            raise UsageError(f"{workers} workers with compressor={possible.name}: {error}") from error
        refuse(Combination(possible, method.exchange, method.memory), (*RULES, *MEMORY_RULES))
    refuse(method, check.RULES)
    if method.exchange.granularity == "bucket" and method.memory.name == "loco":
        why = "whose buckets DDP forms anew after the first step, and its errors of 8 bits cannot be divided"
        raise UsageError(f"memory=loco with granularity=bucket, {why}; valid is granularity=layer")
