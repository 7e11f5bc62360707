"""Batch normalisation over all workers is that of one worker with the whole batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.trainers.start_ranks import run_ranks
from trainers.replica import batch_norm

PROGRAM = "tests.trainers.ranks.replica"


class Alone:
    """A communicator of one."""

    size = 1

    def Dup(self) -> Alone:
        return self

    def Allreduce(self, *_: object) -> None:
        return None


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_together_normalise_like_one_with_the_whole_batch(workers: int) -> None:
    """And those without samples take part; statistics that are not synchronised are averaged, or stay local."""
    run_ranks(workers, "normalisation", module=PROGRAM)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(5), (9, 5)),
        (nn.BatchNorm1d(5, eps=0.1), (4, 5, 3)),
        (nn.BatchNorm2d(3, affine=False), (4, 3, 5, 2)),
        (nn.BatchNorm2d(3, momentum=None), (4, 3, 5, 2)),
        (nn.BatchNorm3d(2, track_running_stats=False), (3, 2, 2, 2, 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_worker_is_torch_s_layer(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    theirs = copy.deepcopy(layer)
    ours = batch_norm.synchronise(layer, batch_norm.NormalisationGroup(Alone()))
    assert isinstance(ours, batch_norm.SynchronisedBatchNorm)
    tolerance = 1e-5 if dtype is torch.float32 else 0.05
    for _ in range(3):
        x = torch.randn(shape).to(dtype)
        weights = torch.randn(shape)
        results = []
        for one in (ours, theirs):
            inputs = x.clone().requires_grad_()
            one.zero_grad()
            y = one(inputs)
            (y.float() * weights).sum().backward()
            assert inputs.grad is not None and y.dtype == inputs.grad.dtype == dtype
            results.append([y.detach(), inputs.grad, *(parameter.grad for parameter in one.parameters())])
        for mine, other in zip(*results, strict=True):
            torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    """Of the square of the mean and the mean of squares, both near 10^6, a variance of 1 is what is left."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)) + 1000
    ours = batch_norm.synchronise(nn.BatchNorm1d(3, momentum=1.0), batch_norm.NormalisationGroup(Alone()))
    ours(x)
    torch.testing.assert_close(ours.running_var, x.double().var(0).float(), rtol=1e-5, atol=0)


def test_all_layers_of_a_model_are_replaced_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4), nn.LayerNorm(4)), nn.InstanceNorm1d(4))
    before = dict(model.named_parameters())
    group = batch_norm.NormalisationGroup(Alone())
    assert batch_norm.synchronise(model, group) is model
    kinds = [type(module).__name__ for module in model.modules()]
    assert kinds == ["Sequential", "Linear", "Sequential", "SynchronisedBatchNorm", "LayerNorm", "InstanceNorm1d"]
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
