"""Units leave in a fixed order, each as soon as backward has completed it and all before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from trainers.gradients.flat import Flat, Unit


class Arrivals:
    """Calls `submit` once a step for each unit, in the order reversed(units), whatever order autograd takes.

    While it `expect`s them, gradients that backward completes make their units leave at once; `flush` sends off what
    has not left by then: where nothing was expected, where parameters had no part in the loss, or where a worker has
    an empty batch. So every worker submits the same units in the same order in every step.
    """

    def __init__(self, flat: Flat, units: Sequence[Unit], submit: Callable[[Unit], None]) -> None:
        self._submit = submit
        self._order = list(reversed(units))
        self._position = 0
        self._expecting = False
        self._sizes = [0] * len(self._order)  # parameters that each unit has a part of
        self._missing: list[int] = []
        for _, parameter in flat.named:
            places = [i for i, unit in enumerate(self._order) if _share_memory(unit.gradient, parameter.grad)]
            for place in places:
                self._sizes[place] += 1
            parameter.register_post_accumulate_grad_hook(self._make_hook(places))

    def _make_hook(self, places: list[int]) -> Callable[[torch.Tensor], None]:
        def arrived(parameter: torch.Tensor) -> None:
            if not self._expecting:
                return
            for place in places:
                self._missing[place] -= 1
                if self._missing[place] < 0 or place < self._position:
                    raise RuntimeError(f"a gradient of {self._order[place].name} was computed twice in one backward")
            while self._position < len(self._order) and not self._missing[self._position]:
                self._leave()

        return arrived

    def _leave(self) -> None:
        self._position += 1
        self._submit(self._order[self._position - 1])

    def expect(self) -> None:
        """The next backward is the last of this step."""
        self._missing = list(self._sizes)
        self._expecting = True

    def flush(self) -> None:
        """Backward is over: send off what has not left."""
        self._expecting = False
        while self._position < len(self._order):
            self._leave()
        self._position = 0


def _share_memory(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether there is memory that both lie in."""
    if other is None:
        return False
    return max(one.data_ptr(), other.data_ptr()) < min(one.data_ptr() + one.nbytes, other.data_ptr() + other.nbytes)
