"""Learning-rate schedules by name; trainers/optimizers/schedules.py computes them. Epochs count from 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradsweep.options.parameters import (
    Checked,
    InvalidParameter,
    choice,
    integer,
    is_integer,
    is_number,
    number,
    sequence,
)


def _is_rising(values: Sequence[float], strictly: bool) -> bool:
    return all(b > a or (b == a and not strictly) for a, b in zip(values, values[1:], strict=False))


@dataclasses.dataclass(frozen=True)
class Schedule(Checked):
    """The base of all schedules, with their warm-up: the rate rises linearly over the first `warmup_epochs`.

    `warmup_steps` is the length of the warm-up in steps, in place of `warmup_epochs`; null: it is not given.

    Schedules of plug-ins have `factor(now)`: it returns the factor of the base rate in a step
    (`trainers.optimizers.schedules.ScheduledStep`).

    `warmup_from` is the factor in the first step (or epoch); null: the rate rises from 0 in equal increments.
    """

    warmup_epochs: float = number(0.0, 0.0)
    warmup_from: float | None = number(None, 0.0, 1.0, optional=True)
    warmup_per: str = choice("step", "step", "epoch")
    warmup_steps: int | None = integer(None, low=0, optional=True)

    @property
    def warms_up(self) -> bool:
        """Whether there is a warm-up."""
        return bool(self.warmup_epochs if self.warmup_steps is None else self.warmup_steps)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_per == "epoch" and self.warmup_steps is not None:
            raise InvalidParameter("warmup_per", "epoch", "step with warmup_steps")
        if self.warmup_per == "epoch" and self.warmup_epochs != int(self.warmup_epochs):
            raise InvalidParameter("warmup_epochs", self.warmup_epochs, "a whole number with warmup_per=epoch")


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
    """The learning rate does not change after the warm-up."""


@dataclasses.dataclass(frozen=True)
class Cosine(Schedule):
    """After the warm-up, half a cosine down to `final` at the end of the run, or within `t_max` epochs.

    `final` is the factor of the base rate there, such as 0.1 for language models (Hoffmann et al., 2022); null: 0.
    """

    warmup_epochs: float = number(1.0, 0.0)
    t_max: float | None = number(None, 0.0, above=True, optional=True)
    per: str = choice("step", "step", "epoch")
    final: float | None = number(None, 0.0, 1.0, optional=True)


@dataclasses.dataclass(frozen=True)
class WSD(Schedule):
    """Warm-up, stable, decay: the factor is 1 after the warm-up, and falls to `final` in the last part of the run.

    Hu et al., "MiniCPM", 2024. `decay` is the part of the run's steps in which the factor falls, along `shape`: a
    line, half a cosine, or 1 - sqrt of the part done (Haegele et al., NeurIPS 2024).
    """

    decay: float = number(0.2, 0.0, 1.0)
    shape: str = choice("linear", "linear", "cosine", "sqrt")
    final: float = number(0.0, 0.0, 1.0)

    def count_decay_steps(self, steps: int) -> int:
        """Return the number of steps of the decay in a run of `steps` steps."""
        return round(self.decay * steps)


@dataclasses.dataclass(frozen=True)
class MultiStep(Schedule):
    """The rate is multiplied by `factor` after each number of epochs in `milestones`."""

    milestones: list[Any] = sequence("a list of increasing numbers of epochs above 0", lambda one: is_number(one, 1e-9))
    factor: float = number(0.1, 0.0, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _is_rising(self.milestones, strictly=True):
            raise InvalidParameter("milestones", list(self.milestones), "a list of increasing numbers of epochs")


_KNOTS = "a list of [epoch, factor], by epoch; two at one epoch are a jump"


def _is_knot(item: Any) -> bool:
    return isinstance(item, (list, tuple)) and len(item) == 2 and all(is_number(value, 0) for value in item)


@dataclasses.dataclass(frozen=True)
class Piecewise(Schedule):
    """The factor is on straight lines between `knots`, [epoch, factor] each, and constant before and after them."""

    knots: list[Any] = sequence(_KNOTS, _is_knot)
    per: str = choice("step", "step", "epoch")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _is_rising([epoch for epoch, _ in self.knots], strictly=False):
            raise InvalidParameter("knots", [list(knot) for knot in self.knots], _KNOTS)


@dataclasses.dataclass(frozen=True)
class OneCycle(Schedule):
    """The factor rises from `low` to 1 and falls back in equal parts of `cycle_epochs`, then falls to `final`."""

    low: float = number(0.05, 0.0, 1.0)
    final: float = number(5e-4, 0.0, 1.0)
    cycle_epochs: float | None = number(None, 0.0, above=True, optional=True)
    per: str = choice("step", "step", "epoch")


@dataclasses.dataclass(frozen=True)
class ConvexDecay(Schedule):
    """The rate is lr / (mu * (shift + t)), where t is the number of steps, whole epochs or fractional epochs done."""

    mu: float = number(1.0, 0.0, above=True)
    shift: float = number(1.0, 0.0, above=True)
    per: str = choice("step", "step", "epoch", "fraction")


@dataclasses.dataclass(frozen=True)
class Plateau(Schedule):
    """The rate is multiplied by `factor` when the test loss was no better for more than `patience` evaluations."""

    factor: float = number(0.1, 0.0, 1.0, above=True, below=True)
    patience: int = integer(10, low=0)
    threshold: float = number(1e-4, 0.0, 1.0, below=True)
    minimum: float = number(0.0, 0.0, 1.0)


_PHASES = "a list of {epoch, lr, momentum, weight_decay}, by epoch; the first has epoch 0 and lr"
_LIMITS: dict[str, Callable[[Any], bool]] = {
    "epoch": lambda value: is_integer(value, 0),
    "lr": lambda value: is_number(value, 0),
    "momentum": lambda value: is_number(value, 0, 0.9999),
    "weight_decay": lambda value: is_number(value, 0),
}


def _is_phase(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and "epoch" in item
        and all(key in _LIMITS and (_LIMITS[key](value) or value is None) for key, value in item.items())
        and item["epoch"] is not None
    )


@dataclasses.dataclass(frozen=True)
class Regime(Schedule):
    """Sets the learning rate, momentum and weight decay from given epochs on.

    Each of `phases` has an `epoch` and those of the other three that change then. Its lr is the rate itself, not a
    factor.
    """

    phases: list[Any] = sequence(_PHASES, _is_phase)

    def __post_init__(self) -> None:
        super().__post_init__()
        epochs = [phase["epoch"] for phase in self.phases]
        first = self.phases[0] if self.phases else {"epoch": 0, "lr": 0.0}
        if not _is_rising(epochs, strictly=True) or first["epoch"] != 0 or first.get("lr") is None:
            raise InvalidParameter("phases", [dict(phase) for phase in self.phases], _PHASES)


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "cosine": Cosine,
    "wsd": WSD,
    "multistep": MultiStep,
    "piecewise": Piecewise,
    "onecycle": OneCycle,
    "convex_decay": ConvexDecay,
    "plateau": Plateau,
    "regime": Regime,
}
