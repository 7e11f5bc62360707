"""Optimizers on flat buffers against torch's own."""

from __future__ import annotations

import pytest
import torch

from trainers import optimizers
from trainers.flat import Flat
from trainers.options import optimizers as options


def flat_of(*tensors: torch.Tensor) -> Flat:
    return Flat(torch.nn.ParameterList([torch.nn.Parameter(tensor.clone()) for tensor in tensors]))


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_equals_torch(momentum: float, nesterov: bool, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(100, generator=generator)
    reference = torch.nn.Parameter(values.clone())
    flat = flat_of(values)
    ours = optimizers.build(options.SGD(0.1, momentum, nesterov, weight_decay), flat)
    theirs = torch.optim.SGD([reference], 0.1, momentum, nesterov=nesterov, weight_decay=weight_decay)
    for step in range(5):
        flat.gradients.copy_(torch.randn(100, generator=generator))
        reference.grad = flat.gradients.clone()
        theirs.param_groups[0]["lr"] = 0.1 / (step + 1)
        theirs.step()
        ours.step(0.1 / (step + 1))
        torch.testing.assert_close(flat.values, reference.detach(), rtol=1e-6, atol=1e-7)
