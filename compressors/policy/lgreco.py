"""L-GreCo: choose an option of the compressor for each unit by the compression errors of accumulated gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compressors.base import Compressor
from compressors.lazy import np, npt, torch
from compressors.random_key import Key
from gradsweep.options.parameters import Checked, InvalidParameter, integer, is_number, number, sequence

STEPS = 10_000
"""Steps of the discretised error budget."""


@dataclasses.dataclass(frozen=True)
class LGreCo(Checked):
    """L-GreCo (Markov, Alimohammadi, Frantar and Alistarh, MLSys 2024, Algorithm 1): options by unit.

    Every `interval` exchanges, the sum of each unit's gradients since the last choice is compressed with every value of
    the compressor's `option` (`ratio`, `rank`, `levels`, ...): its own and `values`. Of all choices of a value for each
    unit whose squared errors add up to at most `factor` times those with the compressor's own value everywhere, the
    one with the smallest payloads is taken. Until the first choice, the own value holds. Null for `option`: off.

    Errors and sizes are sums over the workers, so that all choose alike.
    """

    option: str | None = None
    values: list[float] = sequence("a list of numbers", is_number)
    interval: int = integer(50, low=1)
    factor: float = number(1.0, low=0, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.option is None and self.values:
            raise InvalidParameter(
                "option", None, "the name of the option whose values lgreco.values has, such as ratio"
            )
        if self.option is not None and not self.values:
            raise InvalidParameter("values", self.values, f"a list of other values of {self.option}")


def allocate(errors: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64], factor: float = 1.0) -> list[int]:
    """Return the option of each unit with which the payloads are smallest within the error budget.

    The budget is `factor` times the sum of the first option's errors. It is cut into STEPS steps, and errors are
    rounded up to whole steps, so that the chosen ones keep within it. Dynamic programming finds, unit by unit, the
    smallest payloads for each number of steps. The first option stays for all units where it is within the budget and
    nothing smaller is found, and where no options are within it.

    Args:
        errors: squared errors, (units, options); finite.
        sizes: bytes of payloads, (units, options).
    """
    units, options = errors.shape
    budget = factor * float(errors[:, 0].sum())
    if budget > 0.0:
        costs = np.ceil(np.minimum(errors / budget, 2.0) * STEPS).astype(np.int64)
    else:
        costs = np.where(errors > 0.0, STEPS + 1, 0)
    least = np.zeros(STEPS + 1)  # bytes of the units so far, by the steps that their errors may take
    choices = np.zeros((units, STEPS + 1), dtype=np.int64)
    for unit in range(units):
        best = np.full(STEPS + 1, np.inf)
        for option in range(options):
            cost = costs[unit, option]
            if cost <= STEPS:
                total = least[: STEPS + 1 - cost] + sizes[unit, option]
                smaller = total < best[cost:]
                best[cost:][smaller] = total[smaller]
                choices[unit, cost:][smaller] = option
        least = best
    if np.isinf(least[-1]) or (factor >= 1.0 and least[-1] >= sizes[:, 0].sum()):
        return [0] * units
    left = int(least.argmin())  # of equal sizes those with the smallest error
    chosen = [0] * units
    for unit in reversed(range(units)):
        chosen[unit] = int(choices[unit, left])
        left -= int(costs[unit, chosen[unit]])
    return chosen


class Allocation:
    """The options that L-GreCo has chosen, and the gradients by which it will choose the next ones.

    Args:
        lgreco: the rule; without an option nothing is ever due.
        candidates: the compressor with its own value, and with each other one.
        shapes: the shapes of all units, by index.
        units: the units that take part.
    """

    def __init__(
        self,
        lgreco: LGreCo,
        candidates: Sequence[Compressor],
        shapes: Sequence[Sequence[int]],
        units: Sequence[int],
    ) -> None:
        self.lgreco, self.candidates, self.units = lgreco, list(candidates), list(units)
        self.shapes = [tuple(shape) for shape in shapes]
        self.chosen = [0] * len(shapes)
        """By unit, the number of its candidate."""
        self._exchanges = 0  # since the last choice
        self._sums: dict[int, torch.Tensor] = {}  # of the gradients since then
        self._is_on = lgreco.option is not None and bool(self.units)

    @property
    def is_due(self) -> bool:
        """Whether options are to be chosen anew: an interval is over, in which every unit was exchanged."""
        return self._is_on and self._exchanges >= self.lgreco.interval and len(self._sums) == len(self.units)

    def get_compressor(self, index: int) -> Compressor:
        """Return the candidate that was chosen for a unit."""
        return self.candidates[self.chosen[index]]

    def begin(self) -> None:
        """Count an exchange."""
        self._exchanges += 1

    def observe(self, index: int, gradient: torch.Tensor) -> None:
        """Add a gradient of this worker to those of its unit."""
        if not self._is_on or index not in self.units:
            return
        total = self._sums.get(index)
        if total is None:
            self._sums[index] = gradient.detach().to(torch.float32, copy=True)
        else:
            total.add_(gradient.detach())

    def measure(self, key: Key) -> torch.Tensor:
        """Return the squared errors and the bytes of payloads: (2, units, candidates) float64.

        Compressors begin without a state. `key` is that of the step, for any unit.
        """
        measured = torch.zeros(2, len(self.units), len(self.candidates), dtype=torch.float64)
        for row, index in enumerate(self.units):
            x, own_key = self._sums[index], dataclasses.replace(key, unit=index)
            for column, candidate in enumerate(self.candidates):
                compressor = dataclasses.replace(candidate)  # without its state
                compressor.join(1)
                if compressor.needs_agreement(own_key):
                    compressor.agree(own_key, compressor.statistics(x, own_key))
                payload, rest = compressor.compress(x, own_key), x.double()
                compressor.decompress_add(payload, rest, own_key, -1.0)
                measured[0, row, column] = rest.square_().sum()
                measured[1, row, column] = payload.numel()
        return measured

    def choose(self, totals: torch.Tensor) -> None:
        """Choose by the sums of all workers' `measure`, and begin a new interval; errors that are not finite change
        nothing.
        """
        errors, sizes = totals.numpy()
        if np.isfinite(errors).all():
            for index, option in zip(self.units, allocate(errors, sizes, self.lgreco.factor), strict=True):
                self.chosen[index] = option
        self._exchanges, self._sums = 0, {}

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state on which later choices depend."""
        return {
            "chosen": list(self.chosen),
            "exchanges": self._exchanges,
            "sums": {str(index): total.clone() for index, total in self._sums.items()},
        }

    def check_state(self, state: Any) -> None:
        """Raise ValueError if `state` is not a result of `state_dict` for these units and candidates."""
        tests: dict[str, tuple[str, Callable[[Any], bool]]] = {
            "chosen": (
                f"a list of {len(self.shapes)} numbers below {len(self.candidates)}",
                lambda value: (
                    isinstance(value, list)
                    and len(value) == len(self.shapes)
                    and all(type(one) is int and 0 <= one < len(self.candidates) for one in value)
                ),
            ),
            "exchanges": ("an integer from 0 up", lambda value: type(value) is int and value >= 0),
            "sums": ("gradients of the units", self._are_sums),
        }
        if not isinstance(state, Mapping) or set(state) != set(tests):
            raise ValueError(f"the options of a state are not given by {', '.join(tests)}")
        for key, (kind, test) in tests.items():
            if not test(state[key]):
                raise ValueError(f"{key} of a state is not {kind}")

    def _are_sums(self, value: Any) -> bool:
        shapes = {str(index): self.shapes[index] for index in self.units}
        return isinstance(value, Mapping) and all(
            index in shapes and isinstance(total, torch.Tensor) and tuple(total.shape) == shapes[index]
            for index, total in value.items()
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: the state is not valid; nothing has been changed.
        """
        self.check_state(state)
        self.chosen, self._exchanges = list(state["chosen"]), state["exchanges"]
        self._sums = {int(index): total.clone() for index, total in state["sums"].items()}
