"""When, where and how strongly to compress: what can be put around any compressor.

A `Policy` is the part of a config; a `Selector` is its state in a run. Before each step it picks, for
every unit, the compressor that is in force, from nothing but the step, the unit and what all workers know
alike; so all workers pick the same. Importing this module loads neither torch nor numba.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import compressors
from compressors import parameters
from compressors.base import Compressor, element_count
from compressors.parameters import InvalidParameter, boolean, choice, integer, number, sequence

if TYPE_CHECKING:
    import torch


def _is_rule(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and set(item) == {"match", "compressor"}
        and isinstance(item["match"], str)
        and isinstance(item["compressor"], Mapping)
        and isinstance(item["compressor"].get("name"), str)
        and all(isinstance(option, str) for option in item["compressor"])
    )


def _is_ratio(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool) and 0 < item <= 1


@dataclasses.dataclass(frozen=True)
class Accordion:
    """Accordion (Agarwal et al., MLSys 2021, Algorithm 1): compress less in critical regimes.

    Every `interval` epochs a unit's gradient, summed over the epoch that has just ended, is compared with
    that of the last comparison: where the norm has changed by the fraction `threshold` or more, or where the
    learning rate has fallen below `lr_drop` times that of the epoch before, the regime is critical, and
    `option` (`ratio`, `rank`, `levels`, ...) gets the value `relaxed`; else the compressor's own. The first
    epochs are critical. Null for `option`: off.
    """

    option: str | None = None
    relaxed: float | None = number(None, low=0, above=True, optional=True)
    threshold: float = number(0.5, low=0, above=True)
    interval: int = integer(10, low=1)
    lr_drop: float = number(0.5, low=0, high=1)

    def __post_init__(self) -> None:
        parameters.check(self)
        if (self.option is None) != (self.relaxed is None):
            name = "relaxed" if self.relaxed is None else "option"
            raise InvalidParameter(name, None, "given where the other of accordion.option and accordion.relaxed is")


@dataclasses.dataclass(frozen=True)
class Policy:
    """Gates, a start, a warm-up of the ratio, exceptions by name, and Accordion.

    What is not compressed is sent dense, as float32. In order of precedence: steps before `start_step` are
    dense; the first entry of `patterns` that is found in a unit's name decides alone; the gates; the warm-up
    or Accordion.
    """

    min_elements: int = integer(0, low=0)
    dense_1d: bool = boolean(False)
    start_step: int = integer(1, low=1)
    warmup: str = choice("none", "none", "exponential", "list")
    warmup_epochs: int = integer(5, low=0)
    warmup_coefficient: float | None = number(None, low=0, high=1, above=True, optional=True)
    warmup_ratios: list[float] = sequence("a list of ratios above 0 up to 1, one an epoch", _is_ratio)
    patterns: list[Any] = sequence("a list of {match: a regular expression, compressor: {name: ..., ...}}", _is_rule)
    accordion: Accordion = dataclasses.field(default_factory=Accordion)

    def __post_init__(self) -> None:
        parameters.check(self)
        if (self.warmup == "list") != bool(self.warmup_ratios):
            raise InvalidParameter("warmup_ratios", list(self.warmup_ratios), "a list with warmup=list, else empty")
        if self.warmup != "none" and self.accordion.option is not None:
            raise InvalidParameter("warmup", self.warmup, "none where accordion.option is given")
        for rule in self.patterns:
            try:
                re.compile(rule["match"])
            except re.error as error:
                raise InvalidParameter("patterns", rule["match"], f"a regular expression ({error})") from error
        self.exceptions()

    def exceptions(self) -> list[tuple[str, Compressor]]:
        """The entries of `patterns`: a regular expression and the compressor for what it finds.

        Raises:
            InvalidParameter: a compressor is not known, or an option of it out of range.
        """
        found = []
        for rule in self.patterns:
            try:
                found.append((rule["match"], compressors.build(**rule["compressor"])))
            except InvalidParameter as error:
                key = f"patterns.compressor.{error.name}"
                raise InvalidParameter(key, error.value, error.valid) from error
        return found

    def check(self, compressor: Compressor) -> None:
        """Refuse what this compressor has no option for.

        Raises:
            InvalidParameter: names the option of the policy.
        """
        options = [field.name for field in dataclasses.fields(compressor)]
        if self.warmup != "none" and "ratio" not in options:
            raise InvalidParameter("warmup", self.warmup, f"none with compressor={compressor.name}, which has no ratio")
        if self.accordion.option is not None:
            if self.accordion.option not in options:
                valid = f"an option of compressor={compressor.name}: {', '.join(options)}"
                raise InvalidParameter("accordion.option", self.accordion.option, valid)
            self.relaxed(compressor)

    def relaxed(self, compressor: Compressor) -> Compressor:
        """The compressor for critical regimes.

        Raises:
            InvalidParameter: `accordion.relaxed` is not valid for the option.
        """
        option, value = self.accordion.option, self.accordion.relaxed
        if option is None or value is None:
            return compressor
        is_whole = isinstance(getattr(compressor, option), int) and value == int(value)
        try:
            return dataclasses.replace(compressor, **{option: int(value) if is_whole else value})
        except InvalidParameter as error:
            raise InvalidParameter("accordion.relaxed", value, error.valid) from error

    def ratio(self, epoch: int, final: float) -> float:
        """The fraction to keep in `epoch` (from 1) of a compressor that keeps `final` in the end.

        `exponential` (Lin et al., ICLR 2018, section 3.3): c^epoch, but not below `final`, where c is
        `warmup_coefficient` or, where that is null, final^(1 / (warmup_epochs + 1)). `list`: an entry an epoch.
        """
        if self.warmup == "exponential" and epoch <= self.warmup_epochs:
            coefficient = self.warmup_coefficient
            if coefficient is None:
                coefficient = final ** (1 / (self.warmup_epochs + 1))
            return max(coefficient**epoch, final)
        if self.warmup == "list" and epoch <= len(self.warmup_ratios):
            return float(self.warmup_ratios[epoch - 1])
        return final

    def possible(self, compressor: Compressor) -> list[Compressor]:
        """One of each kind of compressor that a run can come to use."""
        dense = compressors.build("none")
        gated = self.min_elements > 1 or self.dense_1d or self.start_step > 1
        fully = any(ratio >= 1 for ratio in self.warmup_ratios)
        fully = fully or (self.warmup == "exponential" and self.warmup_coefficient == 1)
        others = [exception for _, exception in self.exceptions()]
        return [compressor, *others, *([dense] if gated or fully else [])]


class Selector:
    """Which compressor is in force for which unit.

    Args:
        policy: when, where and how strongly to compress.
        compressor: what is compressed with where the policy says nothing else.
        units: name and shape of every unit, by index.
        workers: whose payloads are combined.
    """

    def __init__(
        self, policy: Policy, compressor: Compressor, units: Sequence[tuple[str, Sequence[int]]], workers: int
    ) -> None:
        policy.check(compressor)
        self.policy, self.compressor, self.units, self.workers = policy, compressor, units, workers
        self._dense = compressors.build("none")
        self._exceptions = policy.exceptions()
        self._variants: dict[str, Compressor] = {}  # by what they are: each keeps its own state
        self._saved: dict[str, Any] = {}  # states of variants that are still to come
        self._critical = [policy.accordion.option is not None] * len(units)
        self._sums: list[torch.Tensor | None] = [None] * len(units)  # of the mean gradients of this epoch
        self._norms: list[float | None] = [None] * len(units)  # at the last comparison
        self._epoch, self._lr = 0, math.inf
        self._choices: tuple[object, ...] | None = None
        self.selected: list[Compressor] = []

    def begin(self, step: int, epoch: int, lr: float) -> bool:
        """Settle `selected`, the compressor of every unit, for this step (from 1) of this epoch (from 1).

        Returns whether the selection differs from that of the step before.
        """
        if epoch != self._epoch:
            if self._epoch:
                self._judge(lr)
            self._epoch, self._lr = epoch, lr
        choices = (step >= self.policy.start_step, epoch if self.policy.warmup != "none" else 0, tuple(self._critical))
        if choices == self._choices:
            return False
        self._choices = choices
        before = self.selected
        self.selected = [self._select(index, step, epoch) for index in range(len(self.units))]
        return [id(one) for one in before] != [id(one) for one in self.selected]

    def _select(self, index: int, step: int, epoch: int) -> Compressor:
        name, shape = self.units[index]
        if step < self.policy.start_step:
            return self._variant(self._dense)
        for pattern, exception in self._exceptions:
            if re.search(pattern, name):
                return self._variant(exception)
        if element_count(shape) < self.policy.min_elements or (self.policy.dense_1d and len(shape) <= 1):
            return self._variant(self._dense)
        if self._critical[index]:
            return self._variant(self.policy.relaxed(self.compressor))
        if self.policy.warmup != "none":
            ratio = self.policy.ratio(epoch, self.compressor.ratio)  # type: ignore[attr-defined]
            if ratio >= 1:
                return self._variant(self._dense)
            return self._variant(dataclasses.replace(self.compressor, ratio=ratio))  # type: ignore[call-arg]
        return self._variant(self.compressor)

    def _variant(self, compressor: Compressor) -> Compressor:
        """The one instance of this kind: compressors are equal by their options, their state is not."""
        key = repr(compressor)
        if key not in self._variants:
            compressor = dataclasses.replace(compressor)  # without the state of the one it is a copy of
            compressor.join(self.workers)
            if key in self._saved:
                compressor.load_state_dict(self._saved.pop(key))
            self._variants[key] = compressor
        return self._variants[key]

    def observe(self, index: int, mean: torch.Tensor) -> None:
        """Take note of a unit's mean gradient, which is the same on all workers."""
        accordion = self.policy.accordion
        if accordion.option is None or self._epoch % accordion.interval:
            return
        total = self._sums[index]
        self._sums[index] = mean.detach().clone() if total is None else total.add_(mean)

    def _judge(self, lr: float) -> None:
        """Accordion's decision, at the end of the epoch `self._epoch`; `lr` is that of the next one."""
        accordion = self.policy.accordion
        if accordion.option is None:
            return
        if lr < accordion.lr_drop * self._lr:
            self._critical = [True] * len(self.units)
        if self._epoch % accordion.interval:
            return
        for index, total in enumerate(self._sums):
            norm = float(total.double().norm()) if total is not None else 0.0
            before = self._norms[index]
            changed = before is None or not abs(before - norm) < accordion.threshold * before
            self._critical[index] = changed or lr < accordion.lr_drop * self._lr
            self._norms[index], self._sums[index] = norm, None

    def warm_up(self) -> None:
        """Load or compile the kernels of every compressor that may come to be used."""
        for compressor in self.policy.possible(self.compressor):
            compressor.warm_up()

    def state_dict(self) -> dict[str, Any]:
        """A copy of what decides the coming selections, and of the state of every compressor."""
        return {
            "epoch": self._epoch,
            "lr": self._lr,
            "critical": list(self._critical),
            "norms": list(self._norms),
            "sums": [None if total is None else total.clone() for total in self._sums],
            "compressors": {**self._saved, **{key: one.state_dict() for key, one in self._variants.items()}},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` of the same policy, compressor and units gave."""
        self._epoch, self._lr = state["epoch"], state["lr"]
        self._critical, self._norms = list(state["critical"]), list(state["norms"])
        self._sums = [None if total is None else total.clone() for total in state["sums"]]
        self._choices, self._variants, self._saved = None, {}, dict(state["compressors"])
