"""Choose for each step and unit whether, by which compressor and how strongly to compress.

A `Policy` is the part of a config; a `Selector` is its state in a run. Before each step the selector chooses a
compressor for every unit. It depends only on the step, the unit and what all workers know, so all workers choose the
same. Importing this module loads neither torch nor numba.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import compressors
from compressors import unit_state
from compressors.base import Compressor, count_elements
from compressors.kernels import backend, warm_up
from compressors.lazy import torch
from compressors.policy import patterns
from compressors.policy.accordion import Accordion, Regimes
from compressors.policy.lgreco import Allocation, LGreCo
from compressors.random_key import Key
from compressors.sparsification import counts
from gradsweep.options.parameters import (
    Checked,
    InvalidParameter,
    boolean,
    choice,
    integer,
    is_number,
    number,
    sequence,
)


@dataclasses.dataclass(frozen=True)
class Policy(Checked):
    """Gates, a start, a warm-up of the ratio, exceptions by name, Accordion, and L-GreCo.

    What is not compressed is sent dense, as float32. In order of precedence: steps before `start_step` are
    dense; the first entry of `patterns` that is found in a unit's name decides alone; the gates; the warm-up,
    Accordion or L-GreCo.
    """

    min_elements: int = integer(0, low=0)
    dense_1d: bool = boolean(False)
    start_step: int = integer(1, low=1)
    warmup: str = choice("none", "none", "exponential", "list")
    warmup_epochs: int = integer(5, low=0)
    warmup_coefficient: float | None = number(None, low=0, high=1, above=True, optional=True)
    warmup_ratios: list[float] = sequence(
        "a list of ratios above 0 up to 1, one an epoch", lambda item: is_number(item, 0, 1) and item > 0
    )
    patterns: list[Any] = sequence(patterns.WORDS, patterns.is_rule)
    accordion: Accordion = dataclasses.field(default_factory=Accordion)
    lgreco: LGreCo = dataclasses.field(default_factory=LGreCo)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.warmup == "list") != bool(self.warmup_ratios):
            raise InvalidParameter("warmup_ratios", list(self.warmup_ratios), "a list with warmup=list, else empty")
        if self.warmup == "exponential" and not self.warmup_epochs:
            raise InvalidParameter("warmup_epochs", 0, "an integer from 1 up with warmup=exponential")
        if self.warmup != "none" and self.accordion.option is not None:
            raise InvalidParameter("warmup", self.warmup, "none where accordion.option is given")
        if self.lgreco.option is not None and (self.warmup != "none" or self.accordion.option is not None):
            other = "policy.warmup=none" if self.warmup != "none" else "policy.accordion.option=null"
            raise InvalidParameter("lgreco.option", self.lgreco.option, f"null, or {other}: both choose the option")
        patterns.build_exceptions(self.patterns)

    @property
    def looks_at_tensors(self) -> bool:
        """Whether the choice for a unit may depend on its name, its shape or its norm."""
        by_norm = self.accordion.option is not None or self.lgreco.option is not None
        return bool(self.patterns) or self.dense_1d or self.min_elements > 1 or by_norm

    def check(self, compressor: Compressor) -> None:
        """Refuse settings of the policy for which the compressor has no option.

        Raises:
            InvalidParameter: there is such a setting; the message names it.
        """
        options = [field.name for field in dataclasses.fields(compressor)]
        budget = getattr(compressor, "budget", None)
        overruled = f"{compressor.name} with budget={budget}, which overrules"  # `ratio` and `rank`
        if self.warmup != "none":
            if "ratio" not in options:
                valid = f"none with compressor={compressor.name}, which has no ratio"
                raise InvalidParameter("warmup", self.warmup, valid)
            if self.warmup == "exponential" and self.warmup_coefficient is None and compute_part_kept(compressor) == 0:
                valid = "a number where the compressor's ratio drops everything"
                raise InvalidParameter("warmup_coefficient", None, valid)
            if budget is not None:
                raise InvalidParameter("warmup", self.warmup, f"none with compressor={overruled} the ratio")
        for key, option in (("accordion.option", self.accordion.option), ("lgreco.option", self.lgreco.option)):
            if option is None:
                continue
            if option not in options:
                valid = f"an option of compressor={compressor.name}: {', '.join(options)}"
                raise InvalidParameter(key, option, valid)
            if budget is not None and option in ("ratio", "rank"):
                raise InvalidParameter(key, option, f"budget with compressor={overruled} the {option}")
        if self.lgreco.option is not None and (compressor.scale_free or compressor.needs_movement):
            why = "sends directions only" if compressor.scale_free else "has a scale that follows the parameters"
            valid = f"null with compressor={compressor.name}, which {why}, so that it has no error of a gradient"
            raise InvalidParameter("lgreco.option", self.lgreco.option, valid)
        self.list_variants(compressor)

    def check_length(self, epochs: int, steps: int | None = None, exchanges: int | None = None) -> None:
        """Refuse settings that never come into force in a run of this many epochs, and steps if they are known.

        Args:
            exchanges: the number of exchanges in these steps; None: one in each step.

        Raises:
            InvalidParameter: there is such a setting; the message names it.
        """
        if steps is not None and self.start_step > steps:
            raise InvalidParameter("start_step", self.start_step, f"an integer up to the number of steps ({steps})")
        if self.warmup == "exponential" and self.warmup_epochs >= epochs:
            valid = f"an integer below the number of epochs ({epochs})"
            raise InvalidParameter("warmup_epochs", self.warmup_epochs, valid)
        if self.warmup == "list" and len(self.warmup_ratios) >= epochs:
            valid = f"a list shorter than the number of epochs ({epochs})"
            raise InvalidParameter("warmup_ratios", list(self.warmup_ratios), valid)
        exchanges = steps if exchanges is None else exchanges
        if exchanges is not None and self.lgreco.option is not None and self.lgreco.interval >= exchanges:
            valid = f"an integer below the number of {'steps' if exchanges == steps else 'exchanges'} ({exchanges})"
            raise InvalidParameter("lgreco.interval", self.lgreco.interval, valid)
        try:
            self.accordion.check_length(epochs)
        except InvalidParameter as error:
            raise error.prefix("accordion") from error

    def build_relaxed(self, compressor: Compressor) -> Compressor:
        """Return the compressor with the `relaxed` option, for critical regimes.

        Raises:
            InvalidParameter: `accordion.relaxed` is not valid for the option.
        """
        option, value = self.accordion.option, self.accordion.relaxed
        if option is None or value is None:
            return compressor
        relaxed = _replace_option(compressor, option, value, "accordion.relaxed")
        if relaxed == compressor:
            value = getattr(relaxed, option)
            raise InvalidParameter("accordion.relaxed", value, f"another value than the compressor's own {option}")
        return relaxed

    def list_candidates(self, compressor: Compressor) -> list[Compressor]:
        """Return the compressors from which L-GreCo chooses: with its own value of the option, and with each other one.

        Raises:
            InvalidParameter: one of `lgreco.values` is not valid for the option, or none is another one.
        """
        option, values = self.lgreco.option, self.lgreco.values
        if option is None:
            return [compressor]
        candidates = [compressor]
        for value in values:
            other = _replace_option(compressor, option, value, "lgreco.values")
            if other not in candidates:
                candidates.append(other)
        if len(candidates) == 1:
            raise InvalidParameter("lgreco.values", list(values), f"other values than the compressor's own {option}")
        return candidates

    def list_variants(self, compressor: Compressor) -> list[Compressor]:
        """Return the compressor with each value that Accordion or L-GreCo may give to an option.

        Raises:
            InvalidParameter: a value is not valid for the option.
        """
        return [self.build_relaxed(compressor), *self.list_candidates(compressor)]

    def ratio(self, epoch: int, final: float) -> float:
        """Return the share of elements to keep in `epoch` (from 1), if the compressor keeps the share `final` after the
        warm-up.

        `exponential` (Lin et al., ICLR 2018, section 3.3): c^epoch, but not below `final`. c is `warmup_coefficient`;
        if that is null, it is final^(1 / (warmup_epochs + 1)). `list`: an entry for each epoch.
        """
        if self.warmup == "exponential" and epoch <= self.warmup_epochs:
            coefficient = self.warmup_coefficient
            if coefficient is None:
                coefficient = final ** (1 / (self.warmup_epochs + 1))
            return max(coefficient**epoch, final)
        if self.warmup == "list" and epoch <= len(self.warmup_ratios):
            return float(self.warmup_ratios[epoch - 1])
        return final

    def list_possible(self, compressor: Compressor) -> list[Compressor]:
        """Return one compressor of each kind that a run can use."""
        dense = compressors.build("none")
        gated = self.min_elements > 1 or self.dense_1d or self.start_step > 1
        fully = any(ratio >= 1 for ratio in self.warmup_ratios)
        fully = fully or (self.warmup == "exponential" and self.warmup_coefficient == 1)
        others = [exception for _, exception in patterns.build_exceptions(self.patterns)]
        return [compressor, *others, *([dense] if gated or fully else [])]


def _replace_option(compressor: Compressor, option: str, value: float, key: str) -> Compressor:
    """Return the compressor with another value of an option.

    Raises:
        InvalidParameter: the value, which `key` gives, is not valid.
    """
    own = getattr(compressor, option)
    if isinstance(own, float):
        value = float(value)
    elif value == int(value):
        value = int(value)  # also where it is null now, which does not tell what the option takes
    try:
        return dataclasses.replace(compressor, **{option: value})
    except InvalidParameter as error:
        raise InvalidParameter(key, value, error.valid) from error


def compute_part_kept(compressor: Compressor) -> float:
    """Return the share of elements that a compressor with a `ratio` keeps, by which a warm-up is defined."""
    return float(counts.compute_part_kept(compressor.ratio, _rule(compressor)))  # type: ignore[attr-defined]


def _rule(compressor: Compressor) -> str:
    """Return the compressor's rule of counting kept elements; without a rule (ATOMO) the ratio is their share."""
    return getattr(compressor, "count", "ceil")


class Selector:
    """Chooses the compressor of each unit in each step.

    Args:
        policy: when, where and how strongly to compress.
        compressor: the compressor used unless the policy chooses another.
        units: name and shape of every unit, by index.
        workers: the number of workers whose payloads are combined.

    Raises:
        InvalidParameter: the compressor has no option for the policy, or a pattern finds no unit.
    """

    def __init__(
        self, policy: Policy, compressor: Compressor, units: Sequence[tuple[str, Sequence[int]]], workers: int
    ) -> None:
        policy.check(compressor)
        patterns.check_names(policy.patterns, [name for name, _ in units])
        self.policy, self.compressor, self.units, self.workers = policy, compressor, units, workers
        self._dense = compressors.build("none")
        self._exceptions = patterns.build_exceptions(policy.patterns)
        self._variants: dict[str, Compressor] = {}  # by what they are: each keeps its own state
        self._saved: dict[str, Any] = {}  # states of variants that are still to come
        shapes = [shape for _, shape in units]
        self._regimes = Regimes(policy.accordion, shapes)
        free = [index for index in range(len(units)) if self._find_fixed(index) is None]
        self._allocation = Allocation(policy.lgreco, policy.list_candidates(compressor), shapes, free)
        self._epoch, self._lr = 0, math.inf
        self._choices: tuple[object, ...] | None = None
        self.selected: list[Compressor] = []

    def begin(self, step: int, epoch: int, lr: float) -> bool:
        """Choose the compressors of this step (from 1) of this epoch (from 1), and store them in `selected`.

        Returns whether the selection differs from that of the step before.
        """
        if epoch != self._epoch:
            if self._epoch:
                self._regimes.judge(self._epoch, self._lr, lr)
            self._epoch, self._lr = epoch, lr
        choices = (
            step >= self.policy.start_step,
            epoch if self.policy.warmup != "none" else 0,
            tuple(self._regimes.critical),
            tuple(self._allocation.chosen),
        )
        self._allocation.begin()
        if choices == self._choices:
            return False
        self._choices = choices
        before = self.selected
        self.selected = [self._select(index, step, epoch) for index in range(len(self.units))]
        return [id(one) for one in before] != [id(one) for one in self.selected]

    def _select(self, index: int, step: int, epoch: int) -> Compressor:
        if step < self.policy.start_step:
            return self._get_variant(self._dense)
        if (fixed := self._find_fixed(index)) is not None:
            return self._get_variant(fixed)
        if self._regimes.critical[index]:
            return self._get_variant(self.policy.build_relaxed(self.compressor))
        if self.policy.warmup != "none":
            final = compute_part_kept(self.compressor)
            part = self.policy.ratio(epoch, final)
            if part >= 1:
                return self._get_variant(self._dense)
            if part != final:
                ratio = counts.compute_ratio(part, _rule(self.compressor))
                return self._get_variant(dataclasses.replace(self.compressor, ratio=ratio))  # type: ignore[call-arg]
        return self._get_variant(self._allocation.get_compressor(index))

    def _find_fixed(self, index: int) -> Compressor | None:
        """Return the compressor of a unit for which a pattern or a gate decides; else None."""
        name, shape = self.units[index]
        for pattern, exception in self._exceptions:
            if re.search(pattern, name):
                return exception
        gated = count_elements(shape) < self.policy.min_elements or (self.policy.dense_1d and len(shape) <= 1)
        return self._dense if gated else None

    def _get_variant(self, compressor: Compressor) -> Compressor:
        """Return the single instance with these options, which holds their state.

        Compressors with equal options compare equal, whatever their state.
        """
        key = repr(compressor)
        if key not in self._variants:
            compressor = dataclasses.replace(compressor)  # without the state of the one it is a copy of
            compressor.join(self.workers)
            if key in self._saved:
                compressor.load_state_dict(self._saved.pop(key))
            self._variants[key] = compressor
        return self._variants[key]

    @property
    def is_due(self) -> bool:
        """Whether L-GreCo is to choose before the next `begin`, by the sums of all workers' `measure`."""
        return self._allocation.is_due

    def measure(self, key: Key) -> torch.Tensor:
        """Return what L-GreCo needs of this worker, float64 in main memory. `key` is that of the step, for any unit."""
        return self._allocation.measure(key)

    def choose(self, totals: torch.Tensor) -> None:
        """Let L-GreCo choose by the sums of all workers' `measure`, which are the same on all of them."""
        self._allocation.choose(totals)

    def observe_own(self, index: int, gradient: torch.Tensor) -> None:
        """Record this worker's own gradient of a unit."""
        self._allocation.observe(index, gradient)

    def observe(self, index: int, mean: torch.Tensor) -> None:
        """Record a unit's mean gradient, which is the same on all workers."""
        self._regimes.observe(index, mean, self._epoch)

    def warm_up(self, device: torch.device | str = "cpu") -> None:
        """Load or compile, for the units on `device`, the kernels of the selection and of all compressors that the run
        may use.
        """
        possible = self.policy.list_possible(self.compressor)
        shapes = [shape for _, shape in self.units]
        for compressor in possible:
            warm_up.warm_up(compressor, device, shapes)
        if self.policy.accordion.option is not None or any(one.needs_movement for one in possible):
            backend.load("sums", device)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state on which later selections depend, and of every compressor's state."""
        return {
            "units": self._describe_units(),
            "epoch": self._epoch,
            "lr": self._lr,
            "regimes": self._regimes.state_dict(),
            **self._save_allocation(),
            "compressors": {
                **copy.deepcopy(self._saved),
                **{key: one.state_dict() for key, one in self._variants.items()},
            },
        }

    def _save_allocation(self) -> dict[str, Any]:
        """Return the state of L-GreCo; without it a state is as those of earlier versions."""
        return {} if self.policy.lgreco.option is None else {"allocation": self._allocation.state_dict()}

    def _describe_units(self) -> list[list[Any]]:
        return [[name, list(shape)] for name, shape in self.units]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` has returned for the same policy, compressor and units.

        Raises:
            ValueError: the state is not valid; nothing has been changed.
        """
        self.check_state(state)
        self._regimes.load_state_dict(state["regimes"])
        if "allocation" in state:
            self._allocation.load_state_dict(state["allocation"])
        self._epoch, self._lr = state["epoch"], state["lr"]
        self._choices, self._variants, self._saved = None, {}, copy.deepcopy(dict(state["compressors"]))

    def check_state(self, state: Any) -> None:
        """Raise ValueError unless `state` can come from a selector with the same policy, compressor and units."""
        keys = ("units", "epoch", "lr", "regimes", *self._save_allocation(), "compressors")
        unit_state.require_keys("a selector", state, keys)
        units, saved = self._describe_units(), state["compressors"]
        if state["units"] != units:
            theirs = f"{len(state['units'])} other units" if isinstance(state["units"], list) else "no units"
            raise ValueError(f"the state is that of {theirs}, not of these {len(units)}")
        if type(state["epoch"]) is not int or type(state["lr"]) not in (int, float):
            raise ValueError(f"epoch={state['epoch']} and lr={state['lr']} of a selector's state must be numbers")
        if not isinstance(saved, Mapping):
            raise ValueError(f"compressors of a selector's state is a {type(saved).__name__}, not a mapping")
        self._regimes.check_state(state["regimes"])
        if "allocation" in state:
            self._allocation.check_state(state["allocation"])
        for key, one in saved.items():
            kinds = [self._dense, self.compressor, *(exception for _, exception in self._exceptions)]
            kind = next((kind for kind in kinds if str(key).startswith(f"{type(kind).__qualname__}(")), None)
            if kind is None:
                raise ValueError(f"the state is that of {key}, which is not in use here")
            dataclasses.replace(kind).load_state_dict(one)
