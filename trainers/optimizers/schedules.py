"""Learning-rate schedules: one function each, from the place in the run to a factor of the base rate.

Epochs count from 0 here: epoch 5 is where five epochs are done. With `per: epoch` a rate holds for a whole epoch, the
one for its beginning; with `per: step` it changes at every step.
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
    """Where in a run a step is: `step` (from 1), and how the steps make epochs.

    `warmup` steps of the run are its warm-up.
    """

    step: int
    epochs: Epochs
    warmup: int = 0

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.epochs.done(self.step)

    def interpolate(self, knots: Sequence[Sequence[float]], per: str) -> float:
        """The value on straight lines between knots by epoch: with `step` at the end of the step, with `epoch` at the
        beginning of its epoch. What has jumped is seen from the first step on that begins at the jump or later."""
        if per == "epoch":
            return interpolate(knots, float(self.epoch))
        return interpolate(knots, self.epochs.passed(self.step), jumped=False)


def warmup_steps(config: options.Schedule, epochs: Epochs) -> int:
    """Length of the warm-up. One that would not end within the run is cut to half of it, so that something is left of
    the schedule; with `warmup_per: epoch` to whole epochs, which may be none."""
    wanted = round(epochs.until(config.warmup_epochs))
    if wanted < epochs.steps:
        return wanted
    half = epochs.steps // 2
    return half if config.warmup_per == "step" else int(epochs.until(epochs.done(half + 1)))


def compute_warmup_factor(config: options.Schedule, place: ScheduledStep, start: float | None) -> float:
    """The factor of the warm-up: from `start`, or by equal parts from 0, to 1 (Goyal et al., 2017)."""
    if place.step > place.warmup:
        return 1.0
    done, whole = place.step - 1, place.warmup
    if config.warmup_per == "epoch":
        done, whole = place.epoch, place.epochs.done(place.warmup + 1)
    return (done + 1) / whole if start is None else start + (1 - start) * done / whole


def constant(config: options.Constant, place: ScheduledStep) -> float:
    return 1.0


def cosine(config: options.Cosine, place: ScheduledStep) -> float:
    """In the warm-up 1. Reaches 0 just after the last step, or after `t_max` epochs."""
    epochs, begun = place.epochs, place.epochs.passed(place.warmup)
    if config.per == "step":
        done: float = place.step - 1 - place.warmup
        end = epochs.steps if config.t_max is None else epochs.until(begun + config.t_max)
        whole = end - place.warmup
    else:
        done = place.epoch - begun
        whole = math.ceil(epochs.length) - begun if config.t_max is None else config.t_max
    return 0.5 * (1 + math.cos(math.pi * min(max(done / whole, 0.0), 1.0)))


def multistep(config: options.MultiStep, place: ScheduledStep) -> float:
    """Without milestones, as in He et al., CVPR 2016: at half and at three quarters of the run."""
    epochs = place.epochs
    ends = [epochs.until(one) for one in config.milestones] or [epochs.steps / 2, epochs.steps * 3 / 4]
    drops = sum(place.step - 1 >= end for end in ends)
    return float(config.factor**drops)


def interpolate(knots: Sequence[Sequence[float]], at: float, *, jumped: bool = True) -> float:
    """The value at `at` of the straight lines between knots; where two are at one place, there the later if it has
    `jumped`, else the earlier."""
    if at < knots[0][0] or (at == knots[0][0] and not jumped):
        return float(knots[0][1])
    for (low, first), (high, second) in zip(knots, knots[1:], strict=False):
        if low <= at < high if jumped else low < at <= high:
            return float(first + (second - first) * (at - low) / (high - low))
    return float(knots[-1][1])


def piecewise(config: options.Piecewise, place: ScheduledStep) -> float:
    """Without knots, those of the DAWNBench entry for CIFAR-10: up for 5 of 24 parts of the run, then down to 0."""
    end = place.epochs.length
    return place.interpolate(config.knots or [[0, 0], [end * 5 / 24, 1], [end, 0]], config.per)


def onecycle(config: options.OneCycle, place: ScheduledStep) -> float:
    """A cycle that is longer than the run ends with it."""
    end = place.epochs.length
    cycle = min(0.92 * end if config.cycle_epochs is None else config.cycle_epochs, end)
    knots = [[0, config.low], [cycle / 2, 1.0], [cycle, config.low], [end, config.final]]
    return place.interpolate(knots if cycle < end else knots[:3], config.per)


def convex_decay(config: options.ConvexDecay, place: ScheduledStep) -> float:
    done = {"step": place.step - 1, "epoch": place.epoch, "fraction": place.epochs.passed(place.step - 1)}
    return 1 / (config.mu * (config.shift + done[config.per]))


def regime(config: options.Regime, place: ScheduledStep) -> float:
    """The learning rate itself, of the last phase that gives one."""
    return find_settings(config, place)["lr"]


def find_settings(config: options.Regime, place: ScheduledStep) -> dict[str, float]:
    """All that the phases of a regime have set so far."""
    found: dict[str, float] = {}
    for phase in config.phases:
        if phase["epoch"] <= place.epoch:
            found.update({key: float(value) for key, value in phase.items() if value is not None and key != "epoch"})
    return found


class Plateau:
    """torch.optim.lr_scheduler.ReduceLROnPlateau (mode min, relative threshold), which would load torch._dynamo."""

    def __init__(self, config: options.Plateau) -> None:
        self.config = config
        self.factor, self.best, self.bad = 1.0, math.inf, 0

    def observe(self, loss: float) -> None:
        """Take note of an evaluation; a loss that is no number is no better."""
        if loss < self.best * (1 - self.config.threshold):
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        if self.bad > self.config.patience:
            self.factor, self.bad = max(self.factor * self.config.factor, self.config.minimum), 0


RULES: dict[type, Callable[[Any, ScheduledStep], float]] = {
    options.Constant: constant,
    options.Cosine: cosine,
    options.MultiStep: multistep,
    options.Piecewise: piecewise,
    options.OneCycle: onecycle,
    options.ConvexDecay: convex_decay,
    options.Regime: regime,
}
"""All schedules that are a function of the place; a plateau also depends on what was observed."""


class Schedule:
    """The learning rate of every step of a run: base * scale * warm-up * the schedule's own factor.

    Args:
        base: the rate that the optimizer was given; a regime has its own instead.
        epochs: of the run, in optimizer steps.
        scale: of the learning rate, by workers or batch.
        warmup_from: overrules the config's.
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
        """What the scaled base rate is multiplied with in `step` (from 1); of a regime the rate before scaling."""
        place = self._locate(step)
        own = self.plateau.factor if self.plateau is not None else RULES[type(self.config)](self.config, place)
        return compute_warmup_factor(self.config, place, self.start) * own

    def rate(self, step: int) -> float:
        """The learning rate in `step` (from 1)."""
        return self.base * self.factor(step)

    def settings(self, step: int) -> dict[str, float]:
        """What else of the optimizer a regime sets in `step`: `momentum`, `weight_decay`."""
        if not isinstance(self.config, options.Regime):
            return {}
        return {key: value for key, value in find_settings(self.config, self._locate(step)).items() if key != "lr"}

    def observe(self, test_loss: float) -> None:
        """Called after every evaluation, on all workers with the same number."""
        if self.plateau is not None:
            self.plateau.observe(test_loss)

    def state_dict(self) -> dict[str, Any]:
        """What is remembered of evaluations."""
        if self.plateau is None:
            return {}
        return {"factor": self.plateau.factor, "best": self.plateau.best, "bad": self.plateau.bad}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

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
    """The schedule of a run whose steps make such epochs."""
    scale = run.scaling.factor(run.workers, topology.degree(run), run.global_batch)
    start = min(1 / scale, 1.0) if run.scaling.warmup_from_base else None
    return Schedule(run.schedule, run.optimizer.lr, epochs, scale=scale, warmup_from=start)
