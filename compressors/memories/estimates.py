"""Memories that send the compressed change of an estimate of the gradient: ef21 and econtrol."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from compressors.base import Compressor
from compressors.lazy import torch
from compressors.memories.base import UnitMemory
from compressors.random_key import Key
from gradsweep.options.parameters import boolean, number


@dataclasses.dataclass(frozen=True)
class EstimateMemory(UnitMemory):
    """Keeps an estimate h of the gradient, from h = 0, and sends its compressed change c: h += c.

    Every worker adds the decoded mean of the c to the same sum, which `finish` puts in the place of the mean: the mean
    of the h of all workers is the mean gradient. `compensate` leaves in the tensor `withheld` what would be withheld if
    nothing was sent, and `update` takes c off it.

    The sum is the mean of the h only as long as the mean of the c that arrives is the mean of what the workers have
    added to their h. Sums that the network rounds to 16 bits are not: their errors would stay in the sum for good.
    """

    optional: ClassVar[tuple[str, ...]] = ("mean",)

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        named = self.unit_tensors[key.unit]
        compressor.decompress_add(payload, named["estimate"], key, 1.0)
        compressor.decompress_add(payload, named[self.withheld], key, -1.0)

    def finish(self, unit: int, mean: torch.Tensor) -> None:
        (total,) = self.tensors(unit, mean, "mean")
        mean.copy_(total.add_(mean))


@dataclasses.dataclass(frozen=True)
class EF21(EstimateMemory):
    """EF21: c = Q(g - h), h += c; the mean of the h is the mean gradient.

    Richtarik, Sokolov and Fatkhullin, "EF21: a new, simpler, theoretically better, and practically faster error
    feedback", NeurIPS 2021, Algorithm 2, from h = 0. For contractions: as gradients settle, so does what is sent,
    and the error of the estimate vanishes. A method that may enlarge x (unbiased, with a variance above 1)
    can make the estimates diverge.

    The gradients of small batches do not settle, and the estimates follow their noise. With `gradient_weight` = a below
    1, the momentum v = (1 - a) v + a g is estimated in place of g: c = Q(v - h). That is EF21-SGDM of Fatkhullin,
    Tyurin and Richtarik, "Momentum provably improves error feedback!", NeurIPS 2023; `double_momentum` is their
    EF21-SGD2M, where u = (1 - a) u + a v is estimated. v and u begin with the first gradient.

    It costs three tensors of the size of the unit, and one for each momentum: h, the mean of all h, and g - h, of which
    what the payload carries is taken off, so that the norm of what was withheld is known.
    """

    name: ClassVar[str] = "ef21"
    withheld: ClassVar[str] = "difference"
    remembers: ClassVar[tuple[str, ...]] = ("estimate", "difference", "mean", "momentum", "second_momentum")
    optional: ClassVar[tuple[str, ...]] = ("mean", "momentum", "second_momentum")

    gradient_weight: float = number(1.0, low=0, high=1, above=True)
    double_momentum: bool = boolean(False)

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        target = gradient.detach()
        if self.gradient_weight < 1.0:
            for name in ("momentum", "second_momentum") if self.double_momentum else ("momentum",):
                target = self._average(unit, name, target)
        estimate, difference = self.tensors(unit, target, "estimate", "difference")
        return torch.sub(target, estimate, out=difference)

    def _average(self, unit: int, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return the momentum called `name` after it has taken `value`; the first value is its beginning."""
        is_first = name not in self.unit_tensors.get(unit, {})
        (momentum,) = self.tensors(unit, value, name)
        if is_first:
            return momentum.copy_(value)
        return momentum.mul_(1.0 - self.gradient_weight).add_(value, alpha=self.gradient_weight)


@dataclasses.dataclass(frozen=True)
class EControl(EstimateMemory):
    """EControl: c = Q(control * e + g - h), h += c, and the error e += g - h; the mean of the h is the mean gradient.

    Gao, Islamov and Stich, "EControl: fast distributed optimization with compression and error control", ICLR 2024,
    from h = 0. The sum of the h over the steps, plus e, is the sum of the g, as with a residual, so that noise averages
    out; and as with `ef21`, what is sent vanishes as gradients settle.

    With an error of at most q ||x||, q = sqrt(1 - delta), and a constant gradient, the norms of e and of the x that is
    sent go in a step to at most (1 - control) ||e|| + q ||x|| and control^2 ||e|| + (1 + control) q ||x||. Both vanish
    if `control` < (1 - q) / (2 q). The theorems take two thirds of that: delta / (3 q (1 + q)).

    It costs three tensors of the size of the unit: h, the mean of all h, and e.
    """

    name: ClassVar[str] = "econtrol"
    withheld: ClassVar[str] = "error"
    remembers: ClassVar[tuple[str, ...]] = ("estimate", "error", "mean")

    control: float = number(0.01, low=0, high=1, above=True)

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        gradient = gradient.detach()
        estimate, error = self.tensors(unit, gradient, "estimate", "error")
        x = torch.sub(gradient, estimate).add_(error, alpha=self.control)
        error.mul_(1.0 - self.control).add_(x)
        return x
