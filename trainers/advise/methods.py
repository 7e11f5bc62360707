"""The methods that are measured, each with the memory with which it trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import compressors
from compressors import Compressor
from compressors.base import ROUNDING
from compressors.unit_state import Stateful
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean, one_of
from trainers.advise.request import Request, check_measurable
from trainers.config.run_config import RunConfig, parse
from trainers.rules.resolve import resolve

BASELINE = "none"


@dataclasses.dataclass(frozen=True)
class Method:
    """A method with the config of its run."""

    name: str
    memory: str
    config: RunConfig

    @property
    def compressor(self) -> Compressor:
        return self.config.compressor


def list_names(asked: Sequence[str]) -> list[str]:
    """Return the names of the compressors to measure, the baseline first.

    Raises:
        UsageError: there is no such compressor.
    """
    known = list(compressors.registry())
    for name in asked:
        if name not in known:
            valid = one_of(known, compressors.LISTED_BY, "compressors")
            raise bad_value("--methods", name, valid, did_you_mean(name, known))
    return list(dict.fromkeys([BASELINE, *(asked or known)]))


def configure(request: Request, workers: int) -> tuple[list[Method], dict[str, str]]:
    """Return the methods to measure, the baseline first, and the others with the reason why each cannot be measured.

    Args:
        workers: that the exchanges are built for.

    Raises:
        UsageError: the config cannot be used even without compression.
    """
    parse(request.config)  # loads plug-ins
    found, refused = [], {}
    for name in list_names(request.methods):
        try:
            found.append(_configure(request, name, workers))
        except UsageError as error:
            if name == BASELINE:
                raise
            refused[name] = str(error)
    return found, refused


def _configure(request: Request, name: str, workers: int) -> Method:
    config = dict(request.config)
    typed: Mapping[str, Any] = config["compressor"]
    if typed.get("name") != name:
        config["compressor"] = {"name": name}
    compressor = parse(config).compressor
    memory = request.memory or ("residual" if compressor.needs_memory else "none")
    if name == BASELINE and not request.memory:
        memory = "none"
    if not request.memory:
        config["memory"] = {"name": memory}
    run = parse(resolve({**config, "workers": workers}))
    check_measurable(run, request)
    return Method(name, memory, run)


def describe_state(method: Method) -> str:
    """Return in words what a worker keeps from step to step: error feedback or another memory, and the method's own."""
    memory = {"none": "", "residual": "error feedback"}.get(method.memory, f"memory={method.memory}")
    own = "its own" if isinstance(method.compressor, Stateful) else ""
    return ", ".join(filter(None, (memory, own))) or "none"


def describe_needs(compressor: Compressor) -> str:
    """Return in words what the accuracy of a method needs, by its law."""
    law = compressor.law((1024, 1024))
    if compressor.lossless:
        return "exact"
    if compressor.scale_free:
        return "sends directions only, needs another learning rate"
    if law.omega is not None and law.omega < ROUNDING:
        return f"rounds: error up to {100 * law.omega**0.5:.2g} %"
    if law.unbiased:
        variance = "" if law.omega is None else f", variance up to {1 + law.omega:.3g} times"
        return f"unbiased{variance}"
    return "biased, needs error feedback" if compressor.needs_memory else "random, not quite unbiased"
