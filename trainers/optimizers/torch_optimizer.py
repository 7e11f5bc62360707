"""Any optimizer with the interface of torch.optim, on the parameters of the model one by one."""

from __future__ import annotations

from typing import Any

import torch

from gradsweep.errors import UsageError
from gradsweep.targets import call_target, name_errors
from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer
from trainers.options import optimizers as options
from trainers.tasks.nested import map_tensors

_VALID = "an optimizer whose steps need no closure, and whose state has only tensors, numbers and strings"


class TorchOptimizer(Optimizer):
    """The optimizer that a target makes of the parameters, a learning rate and the config's arguments.

    Parameters and gradients are views of the flat buffers. The learning rate of all groups is set before every step.

    Raises:
        UsageError: the target cannot be imported or called, or does not return a torch.optim.Optimizer.
    """

    def __init__(self, flat: Flat, config: options.Torch) -> None:
        self.flat, self.config = flat, config
        self.momentum = self.weight_decay = 0.0  # no schedule changes those of the target
        arguments = {"lr": config.lr, **config.args}
        made = call_target("optimizer.target", config.target, arguments, [parameter for _, parameter in flat.named])
        if not isinstance(made, torch.optim.Optimizer):
            raise UsageError(
                f"optimizer.target={config.target} returns a {type(made).__name__}; valid is a torch.optim.Optimizer"
            )
        self.optimizer = made
        self._refer_to_state()

    def _refer_to_state(self) -> None:
        self.kept: dict[str, Any] = {"state": self.optimizer.state}

    def adjust(self, *, momentum: float | None = None, weight_decay: float | None = None) -> None:
        """Leave all values as they are: trainers/rules/training.py refuses schedules that have some."""

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with name_errors(f"optimizer.target={self.config.target}", _VALID):
            self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        copied: dict[str, Any] = map_tensors(torch.clone, self.optimizer.state_dict())
        return copied

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict) or set(state) != {"state", "param_groups"}:
            raise ValueError(f"it is not the state of {self.config.target}")
        try:
            self.optimizer.load_state_dict(map_tensors(torch.clone, state))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not the state of {self.config.target}: {error}") from error
        self._refer_to_state()


def try_out(config: options.Torch, shapes: list[tuple[int, ...]]) -> None:
    """Take a step with small parameters of as many dimensions as the model's, and save and restore the state.

    Args:
        shapes: of the model's parameters.

    Raises:
        UsageError: the target cannot be used.
    """
    import io

    few = dict.fromkeys(tuple(min(size, 2) for size in shape) for shape in shapes)
    flat = Flat(torch.nn.ParameterList([torch.nn.Parameter(torch.ones(shape)) for shape in few]))
    optimizer, other = TorchOptimizer(flat, config), TorchOptimizer(flat, config)
    with name_errors(f"optimizer.target={config.target}", _VALID):
        optimizer.step(config.lr)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        other.step(config.lr)
