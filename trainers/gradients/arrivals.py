"""Submits units during backward in a fixed order, each when its gradient and all earlier ones are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils.hooks import RemovableHandle

from trainers.gradients.flat import Flat, Unit


class Arrivals:
    """Calls `submit` in each step for every unit in the order reversed(units), independent of autograd's order.

    After `expect`, backward submits a unit as soon as its gradient and those of all earlier units are complete. `flush`
    submits the remaining units: all of them without `expect` or with an empty batch, and those from the first parameter
    on that has no influence on the loss. So every worker submits the same units in the same order in every step.
    """

    def __init__(self, flat: Flat, units: Sequence[Unit], submit: Callable[[Unit], None]) -> None:
        self._submit = submit
        self._order = list(reversed(units))
        self._position = 0
        self._expecting = False
        self._sizes = [0] * len(self._order)  # parameters that overlap with each unit
        self._missing: list[int] = []
        self._hooks: list[RemovableHandle] = []
        for _, parameter in flat.named:
            positions = [i for i, unit in enumerate(self._order) if _share_memory(unit.gradient, parameter.grad)]
            for position in positions:
                self._sizes[position] += 1
            self._hooks.append(parameter.register_post_accumulate_grad_hook(self._make_hook(positions)))

    def _make_hook(self, positions: list[int]) -> Callable[[torch.Tensor], None]:
        def on_gradient(parameter: torch.Tensor) -> None:
            if not self._expecting:
                return
            for position in positions:
                self._missing[position] -= 1
                if self._missing[position] < 0 or position < self._position:
                    raise RuntimeError(f"a gradient of {self._order[position].name} was computed twice in one backward")
            while self._position < len(self._order) and not self._missing[self._position]:
                self._submit_next()

        return on_gradient

    def _submit_next(self) -> None:
        self._position += 1
        self._submit(self._order[self._position - 1])

    def expect(self) -> None:
        """Submit units during the next backward, which must be the last one of this step."""
        self._missing = list(self._sizes)
        self._expecting = True

    def flush(self) -> None:
        """Submit the remaining units after backward."""
        self._expecting = False
        while self._position < len(self._order):
            self._submit_next()
        self._position = 0

    def close(self) -> None:
        """Remove the hooks from the parameters, which may outlive this object."""
        while self._hooks:
            self._hooks.pop().remove()


def _share_memory(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Tell whether two tensors overlap in memory."""
    if other is None:
        return False
    return max(one.data_ptr(), other.data_ptr()) < min(one.data_ptr() + one.nbytes, other.data_ptr() + other.nbytes)
