"""Accordion: compress less while gradients change fast."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compressors.kernels import norms
from compressors.lazy import torch
from gradsweep.options.parameters import Checked, InvalidParameter, integer, number


@dataclasses.dataclass(frozen=True)
class Accordion(Checked):
    """Accordion (Agarwal et al., MLSys 2021, Algorithm 1): compress less in critical regimes.

    Every `interval` epochs a unit's gradient, summed over the epoch that has just ended, is compared with
    that of the last comparison: where the norm has changed by the fraction `threshold` or more, or where the
    learning rate has fallen below `lr_drop` times that of the epoch before, the regime is critical, and
    `option` (`ratio`, `rank`, `levels`, ...) gets the value `relaxed`; else the compressor's own. Null for
    `option`: off.

    The first comparison has nothing to compare with, so all is critical until the second: the compressor's own
    option is not in force before epoch 2 `interval` + 1, and `check_length` refuses shorter runs.

    In the paper any decay of the learning rate is critical, which is meant for schedules with a few steps.
    Under a schedule that decays all the time (`schedule=cosine`) that would be every epoch, so `lr_drop` says
    how large a decay has to be; `lr_drop: 1` is the paper's rule. What is compared is the mean gradient that has
    arrived, so that all workers decide alike.
    """

    option: str | None = None
    relaxed: float | None = number(None, low=0, above=True, optional=True)
    threshold: float = number(0.5, low=0, above=True)
    interval: int = integer(10, low=1)
    lr_drop: float = number(0.5, low=0, high=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.option is None) != (self.relaxed is None):
            name = "relaxed" if self.relaxed is None else "option"
            raise InvalidParameter(name, None, "given where the other of accordion.option and accordion.relaxed is")

    def check_length(self, epochs: int) -> None:
        """Refuse a run with too few epochs for the compressor's own option to come into force.

        Raises:
            InvalidParameter: the run is too short; the message names `interval`.
        """
        most = (epochs - 1) // 2
        if self.option is not None and self.interval > most:
            needed = f"{2 * self.interval + 1} epochs or more, as {self.option}={self.relaxed:g} is in force until then"
            valid = f"an integer from 1 to {most} with {epochs} epochs, or {needed}" if most else needed
            raise InvalidParameter("interval", self.interval, valid)


class Regimes:
    """The regime, critical or not, of every unit.

    Args:
        accordion: the rule; if it has no option, no unit is ever critical.
        shapes: the shapes of the units, by index.
    """

    def __init__(self, accordion: Accordion, shapes: Sequence[Sequence[int]]) -> None:
        self.accordion, self.shapes = accordion, [tuple(shape) for shape in shapes]
        self.critical = [accordion.option is not None] * len(shapes)
        self._sums: list[torch.Tensor | None] = [None] * len(shapes)  # of the mean gradients of this epoch
        self._norms: list[float | None] = [None] * len(shapes)  # at the last comparison

    def observe(self, index: int, mean: torch.Tensor, epoch: int) -> None:
        """Record a unit's mean gradient, which is the same on all workers."""
        if self.accordion.option is None or epoch % self.accordion.interval:
            return
        total = self._sums[index]
        if total is None:  # a sum of many in 16 bits would lose the last ones
            self._sums[index] = mean.detach().to(torch.promote_types(mean.dtype, torch.float32), copy=True)
        else:
            total.add_(mean)

    def judge(self, epoch: int, before: float, lr: float) -> None:
        """Choose the regimes at the end of `epoch`, whose learning rate was `before`; that of the next is `lr`."""
        accordion = self.accordion
        if accordion.option is None:
            return
        dropped = lr < accordion.lr_drop * before
        if dropped:
            self.critical = [True] * len(self.shapes)
        if epoch % accordion.interval:
            return
        for index, total in enumerate(self._sums):
            norm = math.sqrt(norms.squares(total)) if total is not None else 0.0
            last = self._norms[index]
            changed = last is None or not abs(last - norm) < accordion.threshold * last
            self.critical[index] = changed or dropped
            self._norms[index], self._sums[index] = norm, None

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state on which later regimes depend."""
        return {
            "critical": list(self.critical),
            "norms": list(self._norms),
            "sums": [None if total is None else total.clone() for total in self._sums],
        }

    def check_state(self, state: Any) -> None:
        """Raise ValueError if `state` is not a result of `state_dict` for these units."""

        def fits(total: Any, index: int) -> bool:
            return total is None or (isinstance(total, torch.Tensor) and tuple(total.shape) == self.shapes[index])

        tests: dict[str, tuple[str, Callable[[Any, int], bool]]] = {
            "critical": ("true or false", lambda one, _: isinstance(one, bool)),
            "norms": ("a number or nothing", lambda one, _: one is None or isinstance(one, float)),
            "sums": ("a tensor of the unit's shape or nothing", fits),
        }
        if not isinstance(state, Mapping) or set(state) != set(tests):
            raise ValueError(f"the regimes of a state are not given by {', '.join(tests)}")
        count = len(self.shapes)
        for key, (kind, test) in tests.items():
            items = state[key]
            if not isinstance(items, list) or len(items) != count or not all(map(test, items, range(count))):
                raise ValueError(f"{key} of a state is not a list of {count} times {kind}")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: the state is not valid; nothing has been changed.
        """
        self.check_state(state)
        self.critical, self._norms = list(state["critical"]), list(state["norms"])
        self._sums = [None if total is None else total.clone() for total in state["sums"]]
