"""Optimizers on the flat buffers.

torch.optim is not used on purpose: the first `torch.optim.Optimizer` that a process makes imports
torch._dynamo, which costs a rank as much CPU time as importing torch itself. The updates are the
same to the bit of rounding, and tests compare them.
"""

from __future__ import annotations

import torch

from trainers import config as options


class SGD:
    """w -= lr * d with d = g + weight_decay * w, momentum and Nesterov as in torch.optim.SGD.

    (Sutskever et al., ICML 2013, in the form that applies the learning rate to the whole step.)
    """

    def __init__(self, values: torch.Tensor, gradients: torch.Tensor, config: options.SGD) -> None:
        self.values, self.gradients, self.config = values, gradients, config
        self.momentum = torch.zeros_like(values) if config.momentum else None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update the parameters in place from the gradients, which may be changed on the way."""
        direction = self.gradients
        if self.config.weight_decay:
            direction.add_(self.values, alpha=self.config.weight_decay)
        if self.momentum is not None:
            self.momentum.mul_(self.config.momentum).add_(direction)
            direction = (
                direction.add_(self.momentum, alpha=self.config.momentum) if self.config.nesterov else self.momentum
            )
        self.values.add_(direction, alpha=-lr)
