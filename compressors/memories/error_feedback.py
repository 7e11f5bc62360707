"""Error feedback: memories that keep the parts of a gradient (or of its estimate) that were not sent, and send them
later.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

from compressors.base import Compressor
from compressors.lazy import torch
from compressors.memories.base import UnitMemory
from compressors.random_key import Key
from gradsweep.options.parameters import number


@dataclasses.dataclass(frozen=True)
class Residual(UnitMemory):
    """Error feedback: p = beta * e + gamma * g is sent as Q(p), and e = p - Q(p) is kept.

    Seide et al., "1-bit SGD", Interspeech 2014; Stich et al., "Sparsified SGD with memory", NeurIPS 2018;
    beta and gamma as in GRACE (Xu et al., ICDCS 2021). Makes biased compressors converge. It costs one
    tensor of the size of the unit: `p` is formed in the place of `e`, and the payload is decoded straight into it.
    A unit that is sent exactly costs nothing: it has no `e`, or sends it and is without from then on.
    """

    name: ClassVar[str] = "residual"
    withheld: ClassVar[str] = "residual"
    remembers: ClassVar[tuple[str, ...]] = ("residual",)

    beta: float = number(1.0, low=0, high=10)
    gamma: float = number(1.0, low=0, high=10**6, above=True)

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        gradient = gradient.detach()
        if unit not in self.unit_tensors and _nothing_is_left(gradient, lossless):
            return gradient if self.gamma == 1.0 else gradient.float() * self.gamma
        (residual,) = self.tensors(unit, gradient, "residual")
        if self.beta != 1.0:
            residual.mul_(self.beta)
        return residual.add_(gradient, alpha=self.gamma)

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        if _nothing_is_left(x, compressor.is_exact(x.shape, key)):
            self.unit_tensors.pop(key.unit, None)
        else:
            compressor.remove_sent(payload, self.unit_tensors[key.unit]["residual"], key)


def _nothing_is_left(x: torch.Tensor, lossless: bool) -> bool:
    """Tell whether a lossless compressor sends `x` exactly: float64 is rounded when it is sent."""
    return lossless and x.dtype != torch.float64


@dataclasses.dataclass(frozen=True)
class ScaledResidual(UnitMemory):
    """Error feedback scaled by learning rates: p = (lr of the last step / lr) * e + g, e = p - Q(p).

    Zheng, Huang and Kwok, "Communication-efficient distributed blockwise momentum SGD with error-feedback"
    (dist-EF-SGDM), NeurIPS 2019, Algorithm 1; BytePS does the same. The residual was meant for a step of
    the old learning rate: without scaling, a drop of the rate to a tenth shrinks its effect to a tenth too. With it,
    the sum of lr * Q(p) over the steps, plus the last lr * e, is the sum of lr * g.

    In a step with the learning rate 0 nothing moves the model: the gradient goes as it is, and the residual
    waits for the next step. With a constant rate it is `residual`, at the same cost.

    `decay` multiplies e in every other step: p = decay * (lr of the last step / lr) * e + g. lr * p is then DeMo's
    momentum, delta <- beta delta + lr g, for the decay beta.
    """

    name: ClassVar[str] = "scaled_residual"
    withheld: ClassVar[str] = "residual"
    remembers: ClassVar[tuple[str, ...]] = ("residual", "lr")

    decay: float = number(1.0, low=0, high=1)

    @functools.cached_property
    def _step(self) -> SimpleNamespace:
        """The learning rate `lr` of the current step."""
        return SimpleNamespace(lr=1.0)

    def begin(self, lr: float, workers: int, norm: Callable[[], float]) -> None:
        self._step.lr = lr

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        gradient = gradient.detach()
        lr: float = self._step.lr
        if lr == 0.0 or (unit not in self.unit_tensors and _nothing_is_left(gradient, lossless)):
            return gradient
        (residual,) = self.tensors(unit, gradient, "residual")
        last_lr = self.unit_tensors[unit].setdefault("lr", torch.tensor(lr, dtype=torch.float64))
        factor = self.decay * (float(last_lr) / lr)
        if factor != 1.0:
            residual.mul_(factor)
        last_lr.fill_(lr)
        return residual.add_(gradient)

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        if self._step.lr == 0.0:
            return
        if _nothing_is_left(x, compressor.is_exact(x.shape, key)):
            self.unit_tensors.pop(key.unit, None)
        else:
            compressor.remove_sent(payload, self.unit_tensors[key.unit]["residual"], key)


@dataclasses.dataclass(frozen=True)
class EF21(UnitMemory):
    """EF21: sends the compressed change of an estimate: c = Q(gradient - h), h += c; the mean of the h is the mean
    gradient.

    Richtarik, Sokolov and Fatkhullin, "EF21: a new, simpler, theoretically better, and practically faster error
    feedback", NeurIPS 2021, Algorithm 2, from h = 0. For contractions: as gradients settle, so does what is sent,
    and the error of the estimate vanishes. A method that may enlarge x (unbiased, with a variance above 1)
    can make the estimates diverge.

    Every worker adds the decoded mean of the c to the same sum, which `finish` puts in the place of the mean. It
    costs three tensors of the size of the unit: h, the mean of all h, and gradient - h, of which what the payload
    carries is taken off, so that the norm of what was withheld is known.

    The sum is the mean of the h only as long as the mean of the c that arrives is the mean of what the workers have
    added to their h. Sums that the network rounds to 16 bits are not: their errors would stay in the sum for good.
    """

    name: ClassVar[str] = "ef21"
    withheld: ClassVar[str] = "difference"
    remembers: ClassVar[tuple[str, ...]] = ("estimate", "difference", "mean")
    optional: ClassVar[tuple[str, ...]] = ("mean",)

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        gradient = gradient.detach()
        estimate, difference = self.tensors(unit, gradient, "estimate", "difference")
        return torch.sub(gradient, estimate, out=difference)

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        named = self.unit_tensors[key.unit]
        compressor.decompress_add(payload, named["estimate"], key, 1.0)
        compressor.decompress_add(payload, named["difference"], key, -1.0)

    def finish(self, unit: int, mean: torch.Tensor) -> None:
        (total,) = self.tensors(unit, mean, "mean")
        mean.copy_(total.add_(mean))
