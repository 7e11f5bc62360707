"""Algorithms by name: how the workers' gradients become new parameters; built by trainers/algorithms."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsweep.options.parameters import Checked, InvalidParameter, boolean, choice, integer, number


@dataclasses.dataclass(frozen=True)
class Synchronous(Checked):
    """Every step, all workers take the same step along the mean of their (compressed) gradients."""


@dataclasses.dataclass(frozen=True)
class LocalSGD(Checked):
    """Local SGD: workers take steps of their own, and average the changes of their parameters every `steps` steps.

    Args:
        fragments: parts of the model, of which one is averaged every `steps / fragments` steps.
        delay: steps between the begin of an averaging and the use of its result.
        mixing: part of its own parameters that a worker keeps when it gets the result.
        average: `mean` of the workers' changes; `radial_directional`: of their lengths and directions, by unit.
    """

    steps: int = integer(8, low=1)
    from_step: int = integer(1, low=1)
    outer_lr: float = number(1.0, 0.0, above=True)
    outer_momentum: float = number(0.0, 0.0, 0.9999)
    outer_nesterov: bool = boolean(False)
    fragments: int = integer(1, low=1)
    delay: int = integer(0, low=0)
    mixing: float = number(0.0, 0.0, 0.9999)
    average: str = choice("mean", "mean", "radial_directional")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outer_nesterov and self.outer_momentum == 0:
            raise InvalidParameter("outer_nesterov", True, "false where outer_momentum is 0")
        if self.steps % self.fragments:
            below, above = self.steps - self.steps % self.fragments, -(-self.steps // self.fragments) * self.fragments
            near = f"{below} or {above}" if below else str(above)
            raise InvalidParameter(
                "steps", self.steps, f"a multiple of algorithm.fragments={self.fragments}, such as {near}"
            )
        if self.delay >= self.period and not self.delays_rounds:
            rounds = f"; or {self.steps}, which delays each averaging by a whole round" if self.fragments == 1 else ""
            valid = f"an integer from 0 to {self.period - 1}, below the {self.period} steps between two averagings"
            raise InvalidParameter("delay", self.delay, valid + rounds)

    @property
    def period(self) -> int:
        """Steps from one averaging of a fragment to that of the next."""
        return self.steps // self.fragments

    @property
    def delays_rounds(self) -> bool:
        """Whether the result of a round is used at the end of the next one."""
        return self.fragments == 1 and self.delay == self.steps

    @property
    def looks_at_units(self) -> bool:
        """Whether numbers depend on the borders of units."""
        return self.fragments > 1 or self.average != "mean"

    @property
    def streams(self) -> bool:
        """Whether workers have different parameters after an averaging, too."""
        return self.fragments > 1 or self.delay > 0 or self.mixing > 0


def _consensus_stepsize(default: float, word: str | None = None) -> Any:
    return number(default, 0.0, 1.0, above=True, word=word)


@dataclasses.dataclass(frozen=True)
class Decentralised(Checked):
    """The base of decentralised algorithms: workers have their own parameters and mix them with their neighbours'.

    Args:
        evaluate_local: after every epoch, also evaluate each worker's own model on the whole test set.
    """

    evaluate_local: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class Ordered(Decentralised):
    """The base of algorithms that can mix parameters after the gradient step or at the same time.

    Args:
        order: `adapt_then_combine` takes the gradient step and then mixes the results; `combine_then_adapt` mixes the
            parameters at which the gradient is computed, and then takes the step.
        consensus_stepsize: gamma, the factor of the change by mixing; `tune`: find the best one by a short search.
    """

    order: str = choice("adapt_then_combine", "adapt_then_combine", "combine_then_adapt")
    consensus_stepsize: Any = _consensus_stepsize(0.5, "tune")


@dataclasses.dataclass(frozen=True)
class DPSGD(Ordered):
    """Decentralised parallel SGD: workers mix parameters in every step, without correction of compression errors."""

    consensus_stepsize: float = _consensus_stepsize(1.0)


@dataclasses.dataclass(frozen=True)
class Choco(Ordered):
    """CHOCO-SGD: differences to an estimate that the neighbours share are compressed and sent."""


@dataclasses.dataclass(frozen=True)
class DeepSqueeze(Ordered):
    """DeepSqueeze: parameters are compressed with error feedback, and mixed."""


@dataclasses.dataclass(frozen=True)
class DCD(Decentralised):
    """Difference compression: a worker's parameters equal the copies that its neighbours keep of them."""


@dataclasses.dataclass(frozen=True)
class ECD(Decentralised):
    """ECD-PSGD: neighbours estimate each other's parameters from extrapolations, which are sent compressed."""


@dataclasses.dataclass(frozen=True)
class SGP(Decentralised):
    """Stochastic gradient push: parameters are mixed by push-sum, on directed graphs, too."""


@dataclasses.dataclass(frozen=True)
class NoLoCo(Decentralised):
    """NoLoCo: local steps, and every `steps` steps an outer step with the mean of a worker and its neighbours.

    Args:
        outer_lr: factor of the mean change.
        outer_momentum: momentum of the outer steps.
        consensus: factor of the distance from the neighbours' mean; null: `outer_lr`, as in the authors' code.
    """

    steps: int = integer(50, low=1)
    outer_lr: float = number(0.7, 0.0, above=True)
    outer_momentum: float = number(0.5, 0.0, 0.9999)
    consensus: float | None = number(None, 0.0, above=True, optional=True)


ALGORITHMS: dict[str, type] = {
    "sgd": Synchronous,
    "local_sgd": LocalSGD,
    "dpsgd": DPSGD,
    "choco": Choco,
    "deep_squeeze": DeepSqueeze,
    "dcd": DCD,
    "ecd": ECD,
    "sgp": SGP,
    "noloco": NoLoCo,
}
