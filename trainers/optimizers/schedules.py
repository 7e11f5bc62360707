"""Learning-rate schedules: a function each, from the step to a factor of the base rate.

Epochs count from 0 here: epoch 5 begins when five epochs are done. With `per: epoch` the rate for the beginning of an
epoch holds for the whole epoch; with `per: step` the rate changes at every step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainers import topology
from trainers.config.epochs import Epochs
from trainers.options import schedules as options

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig


@dataclasses.dataclass(frozen=True)
class ScheduledStep:
    """A step (from 1) of a run, with the run's epochs and the number of its `warmup` steps."""

    step: int
    epochs: Epochs
    warmup: int = 0

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return self.epochs.count_done(self.step)

    def interpolate(self, knots: Sequence[Sequence[float]], per: str) -> float:
        """Interpolate linearly between knots (epoch, value): with per=step at the end of the step, with per=epoch at
        the beginning of its epoch. A jump takes effect with the first step that begins at it or later."""
        if per == "epoch":
            return interpolate(knots, float(self.epoch))
        return interpolate(knots, self.epochs.count_passed(self.step), jumped=False)


def warmup_steps(config: options.Schedule, epochs: Epochs) -> int:
    """Return the number of steps of the warm-up.

    One of `warmup_steps` ends within the run (trainers/rules/training.py). One of epochs that would not is cut to half
    of the run, so that the schedule has a part too; with `warmup_per: epoch` to whole epochs, which may be none.
    """
    if config.warmup_steps is not None:
        return config.warmup_steps
    wanted = round(epochs.count_steps_until(config.warmup_epochs))
    if wanted < epochs.steps:
        return wanted
    half = epochs.steps // 2
    return half if config.warmup_per == "step" else int(epochs.count_steps_until(epochs.count_done(half + 1)))


def compute_warmup_factor(config: options.Schedule, now: ScheduledStep, start: float | None) -> float:
    """Return the factor of the warm-up: from `start`, or in equal steps from 0, to 1 (Goyal et al., 2017)."""
    if now.step > now.warmup:
        return 1.0
    done, whole = now.step - 1, now.warmup
    if config.warmup_per == "epoch":
        done, whole = now.epoch, now.epochs.count_done(now.warmup + 1)
    return (done + 1) / whole if start is None else start + (1 - start) * done / whole


def constant(config: options.Constant, now: ScheduledStep) -> float:
    return 1.0


def cosine(config: options.Cosine, now: ScheduledStep) -> float:
    """Return the factor of a cosine decay after the warm-up.

    It reaches `final` just after the last step, or after `t_max` epochs.
    """
    epochs, begun = now.epochs, now.epochs.count_passed(now.warmup)
    if config.per == "step":
        done: float = now.step - 1 - now.warmup
        end = epochs.steps if config.t_max is None else epochs.count_steps_until(begun + config.t_max)
        whole = end - now.warmup
    else:
        done = now.epoch - begun
        whole = math.ceil(epochs.length) - begun if config.t_max is None else config.t_max
    final = config.final or 0.0
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(max(done / whole, 0.0), 1.0)))


_FALLS: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "sqrt": lambda done: 1 - math.sqrt(done),
}
"""The part of the way down that is left, by the part of the decay that is done."""


def wsd(config: options.WSD, now: ScheduledStep) -> float:
    """Return 1 until the decay, which reaches `final` just after the last step."""
    steps = now.epochs.steps
    whole = config.count_decay_steps(steps)
    done = now.step - 1 - (steps - whole)
    return config.final + (1 - config.final) * _FALLS[config.shape](done / whole) if done > 0 else 1.0


def multistep(config: options.MultiStep, now: ScheduledStep) -> float:
    """Return `factor` to the power of the milestones passed.

    By default the milestones are at half and three quarters of the run (He et al., CVPR 2016).
    """
    epochs = now.epochs
    ends = [epochs.count_steps_until(epoch) for epoch in config.milestones] or [epochs.steps / 2, epochs.steps * 3 / 4]
    drops = sum(now.step - 1 >= end for end in ends)
    return float(config.factor**drops)


def interpolate(knots: Sequence[Sequence[float]], at: float, *, jumped: bool = True) -> float:
    """Interpolate linearly between knots (position, value).

    Args:
        jumped: of two knots at the same position `at`, take the later one; with False, the earlier one.
    """
    if at < knots[0][0] or (at == knots[0][0] and not jumped):
        return float(knots[0][1])
    for (low, first), (high, second) in zip(knots, knots[1:], strict=False):
        if low <= at < high if jumped else low < at <= high:
            return float(first + (second - first) * (at - low) / (high - low))
    return float(knots[-1][1])


def piecewise(config: options.Piecewise, now: ScheduledStep) -> float:
    """Return the factor on straight lines between knots.

    The default is that of DAWNBench for CIFAR-10: up for 5/24 of the run, then down to 0.
    """
    end = now.epochs.length
    return now.interpolate(config.knots or [[0, 0], [end * 5 / 24, 1], [end, 0]], config.per)


def onecycle(config: options.OneCycle, now: ScheduledStep) -> float:
    """Return the factor of one cycle up and down; a cycle longer than the run is cut."""
    end = now.epochs.length
    cycle = min(0.92 * end if config.cycle_epochs is None else config.cycle_epochs, end)
    knots = [[0, config.low], [cycle / 2, 1.0], [cycle, config.low], [end, config.final]]
    return now.interpolate(knots if cycle < end else knots[:3], config.per)


def convex_decay(config: options.ConvexDecay, now: ScheduledStep) -> float:
    done = {"step": now.step - 1, "epoch": now.epoch, "fraction": now.epochs.count_passed(now.step - 1)}
    return 1 / (config.mu * (config.shift + done[config.per]))


def regime(config: options.Regime, now: ScheduledStep) -> float:
    """Return the learning rate itself instead of a factor: that of the last phase that sets one."""
    return find_settings(config, now)["lr"]


def find_settings(config: options.Regime, now: ScheduledStep) -> dict[str, float]:
    """Return all settings that hold in a step by a regime: for each option, that of the last phase that sets it."""
    values: dict[str, float] = {}
    for phase in config.phases:
        if phase["epoch"] <= now.epoch:
            values.update({key: float(value) for key, value in phase.items() if value is not None and key != "epoch"})
    return values


class Plateau:
    """Computes the factor of torch's ReduceLROnPlateau (mode min, relative threshold) without loading torch._dynamo."""

    def __init__(self, config: options.Plateau) -> None:
        self.config = config
        self.factor, self.best, self.bad = 1.0, math.inf, 0

    def observe(self, loss: float) -> None:
        """Take the loss of an evaluation into account; NaN is no improvement."""
        if loss < self.best * (1 - self.config.threshold):
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        if self.bad > self.config.patience:
            self.factor, self.bad = max(self.factor * self.config.factor, self.config.minimum), 0


RULES: dict[type, Callable[[Any, ScheduledStep], float]] = {
    options.Constant: constant,
    options.Cosine: cosine,
    options.WSD: wsd,
    options.MultiStep: multistep,
    options.Piecewise: piecewise,
    options.OneCycle: onecycle,
    options.ConvexDecay: convex_decay,
    options.Regime: regime,
}
"""All schedules that are functions of the step; a plateau depends on evaluations."""


class Schedule:
    """The learning rate of every step of a run: base * scale * warm-up * the schedule's own factor.

    Args:
        base: the optimizer's learning rate; a regime sets its own rates instead.
        epochs: of the run, in optimizer steps.
        scale: factor of the learning rate for the number of workers or the batch size.
        warmup_from: factor at the begin of the warm-up, in place of the config's.
    """

    def __init__(
        self,
        config: Any,
        base: float,
        epochs: Epochs,
        *,
        scale: float = 1.0,
        warmup_from: float | None = None,
    ) -> None:
        self.config = config
        self.base = scale if isinstance(config, options.Regime) else base * scale
        self.start: float | None = config.warmup_from if warmup_from is None else warmup_from
        self.epochs, self.warmup = epochs, warmup_steps(config, epochs)
        self.plateau = Plateau(config) if isinstance(config, options.Plateau) else None

    def _locate(self, step: int) -> ScheduledStep:
        return ScheduledStep(step, self.epochs, self.warmup)

    def factor(self, step: int) -> float:
        """Return the factor of the scaled base rate in `step` (from 1); for a regime, the rate before scaling."""
        now = self._locate(step)
        return compute_warmup_factor(self.config, now, self.start) * self._compute_own_factor(now)

    def _compute_own_factor(self, now: ScheduledStep) -> float:
        if self.plateau is not None:
            return self.plateau.factor
        rule = RULES.get(type(self.config))
        return float(self.config.factor(now)) if rule is None else rule(self.config, now)  # the former: of a plug-in

    def rate(self, step: int) -> float:
        """Return the learning rate in `step` (from 1)."""
        return self.base * self.factor(step)

    def settings(self, step: int) -> dict[str, float]:
        """Return the optimizer's other values that a regime sets in `step`: `momentum`, `weight_decay`."""
        if not isinstance(self.config, options.Regime):
            return {}
        return {key: value for key, value in find_settings(self.config, self._locate(step)).items() if key != "lr"}

    def observe(self, test_loss: float) -> None:
        """Take the loss of an evaluation into account; all workers call this with the same loss."""
        if self.plateau is not None:
            self.plateau.observe(test_loss)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that depends on evaluations."""
        if self.plateau is None:
            return {}
        return {"factor": self.plateau.factor, "best": self.plateau.best, "bad": self.plateau.bad}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: it is the state of another schedule; nothing has been changed.
        """
        mine = self.state_dict()
        given = dict(state) if isinstance(state, Mapping) else {"": state}
        if set(given) != set(mine) or not all(type(given[key]) is type(value) for key, value in mine.items()):
            raise ValueError(f"a schedule keeps {', '.join(mine) or 'nothing'}, but was given {state!r}")
        if self.plateau is not None:
            self.plateau.factor, self.plateau.best, self.plateau.bad = given["factor"], given["best"], given["bad"]


def build(run: RunConfig, epochs: Epochs) -> Schedule:
    """Build the schedule of a run with these epochs."""
    scale = run.scaling.compute_factor(run.workers, topology.count_contributors(run), run.global_batch)
    start = min(1 / scale, 1.0) if run.scaling.warmup_from_base else None
    return Schedule(run.schedule, run.optimizer.lr, epochs, scale=scale, warmup_from=start)
