"""Synchronised batch normalisation: with the statistics of all workers' samples, summed by MPI.

W workers with b samples each compute the same as one worker with W b samples. For this, each layer waits for two
allreduces a step: one in forward (sum, sum of squares and count of every channel), one in backward (two sums of
gradients). Their latencies overlap with no computation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainers.mpi.message_sizes import allreduce_bytes

if TYPE_CHECKING:
    from mpi4py import MPI


class NormalisationGroup:
    """The group of workers whose samples are normalised together.

    Sums are float64, because the difference between a mean of squares and a squared mean may be small.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm.Dup()  # sums during backward must not mix with messages of the exchange
        self.has_samples = True
        self.sent_bytes = 0.0

    @contextlib.contextmanager
    def exclude_samples(self) -> Iterator[None]:
        """Within the block, let this worker take part in the sums, but do not count its samples."""
        self.has_samples = False
        try:
            yield
        finally:
            self.has_samples = True

    def sum(self, mine: torch.Tensor) -> torch.Tensor:
        """Return the sum of a float64 vector over the workers, with the same bits on all."""
        from mpi4py import MPI

        if not self.has_samples:
            mine = torch.zeros_like(mine)
        host = mine.contiguous().cpu()
        self.comm.Allreduce(MPI.IN_PLACE, [host.numpy(), MPI.DOUBLE])
        self.sent_bytes += allreduce_bytes(host.numel(), host.element_size(), self.comm.size)
        return host.to(mine.device)


def _reshape_to_channels(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Reshape a vector with a number for each channel, to combine it with `like` of shape (N, C, ...)."""
    return vector.view(1, -1, *[1] * (like.dim() - 2))


class _Normalise(torch.autograd.Function):
    """Computes (x - mean) / sqrt(var + eps) * weight + bias with mean and variance over the samples of all workers.

    Returns the result, and without gradients the mean, the biased variance and the number of values of a channel.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        group: NormalisationGroup,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
        axes = [0, *range(2, x.dim())]
        count = x.numel() // x.size(1)
        variance, mean = (part.double() for part in torch.var_mean(x.float(), axes, correction=0))
        message = torch.cat([mean * count, (variance + mean.square()) * count, mean.new_tensor([count])])
        total = group.sum(message)
        size = x.size(1)
        number = float(total[-1])
        mean = total[:size] / number
        variance = (total[size:-1] / number - mean.square()).clamp_(min=0)
        mean, variance = mean.float(), variance.float()
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.group, ctx.number = eps, group, number
        ctx.mark_non_differentiable(mean, variance)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance, number

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        axes = [0, *range(2, x.dim())]
        deviation = torch.rsqrt(variance + ctx.eps)
        normal = (x.float() - _reshape_to_channels(mean, x)) * _reshape_to_channels(deviation, x)
        dy = gradient.float()
        sum_dy, sum_dy_normal = dy.sum(axes), (dy * normal).sum(axes)
        total = ctx.group.sum(torch.cat([sum_dy, sum_dy_normal]).double()) / ctx.number
        mean_dy, mean_dy_normal = (part.float() for part in total.chunk(2))
        dx = dy - _reshape_to_channels(mean_dy, x) - normal * _reshape_to_channels(mean_dy_normal, x)
        dx *= _reshape_to_channels(deviation if weight is None else deviation * weight.float(), x)
        if not ctx.group.has_samples:
            dx.zero_()  # its samples are in no statistics
        # gradients of weight and bias are of this worker's samples: the exchange sums over the workers
        has_weight, has_bias = ctx.needs_input_grad[1:3]
        return dx.to(x.dtype), sum_dy_normal if has_weight else None, sum_dy if has_bias else None, None, None


class SynchronisedBatchNorm(_BatchNorm):
    """A replacement for a `BatchNorm1d`, `2d` or `3d`, with its parameters and running statistics.

    In evaluation mode it is unchanged. All workers must call it in the same order, with at least one value each (see
    `NormalisationGroup.exclude_samples`).
    """

    def __init__(self, replaced: _BatchNorm, group: NormalisationGroup) -> None:
        super().__init__(
            replaced.num_features, replaced.eps, replaced.momentum, replaced.affine, replaced.track_running_stats
        )
        self._parameters, self._buffers = replaced._parameters, replaced._buffers
        self.training, self.group = replaced.training, group

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch normalisation takes (N, C, ...), not {input.dim()} dimension(s)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        y, mean, variance, number = _Normalise.apply(input, self.weight, self.bias, self.eps, self.group)
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            factor = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, factor)
            self.running_var.lerp_(variance * (number / max(number - 1, 1)), factor)
        return y


def synchronise(model: nn.Module, group: NormalisationGroup) -> nn.Module:
    """Replace all batch normalisation within `model` in place; return `model`, or its replacement.

    Parameters and buffers stay the same objects with the same names.
    """
    if isinstance(model, _BatchNorm):
        return SynchronisedBatchNorm(model, group)
    for name, child in list(model.named_children()):
        model.register_module(name, synchronise(child, group))
    return model
