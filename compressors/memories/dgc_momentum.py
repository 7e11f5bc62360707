"""DGC's memory: error feedback whose own momentum also counts for the parts of gradients that are sent late."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import ClassVar

from compressors.base import Compressor
from compressors.kernels import norms
from compressors.lazy import torch
from compressors.memories.base import UnitMemory
from compressors.random_key import Key
from gradsweep.options.parameters import boolean, choice, number


@dataclasses.dataclass(frozen=True)
class DGC(UnitMemory):
    """Momentum correction of Deep Gradient Compression (Lin, Han, Mao, Wang and Dally, ICLR 2018, Algorithm 3).

    u = momentum * u + g;  v = v + u;  v is sent as Q(v), and v - Q(v) is kept. With `nesterov`, as the
    authors' code has it: u = momentum * (u + g);  v = v + u + g. Where something was sent, `momentum_masking` also
    clears u ("momentum factor masking"), against momentum that is out of date. The optimizer must have no momentum.

    `clip` bounds the norm of this worker's gradient before all that by clip / sqrt(workers) ("local gradient
    clipping"): of the whole gradient, or of every unit for itself (`clip_per`). A gradient with NaN is not clipped.

    A unit that is sent exactly keeps nothing back, and so needs neither v nor masking: its momentum is sent.
    What was sent is what `compressor.find_sent(payload, count, key)` names, where there is such a method and it does
    not answer None, else the elements that do not decode to zero, which takes one more tensor for a while. Values that
    are sent rounded leave their error in v. It costs two tensors of the size of the unit, u and v.

    Masking is made for sparsifiers (`Compressor.sparse`). Of a method that sends something of every element it would
    leave no momentum at all, in every step; with such a one, `momentum_masking` has to be false.
    """

    name: ClassVar[str] = "dgc"
    withheld: ClassVar[str] = "velocity"
    remembers: ClassVar[tuple[str, ...]] = ("momentum", "velocity")
    optional: ClassVar[tuple[str, ...]] = ("velocity",)

    momentum: float = number(0.9, low=0, high=1, below=True)
    nesterov: bool = boolean(False)
    momentum_masking: bool = boolean(True)
    clip: float | None = number(None, low=0, above=True, optional=True)
    clip_per: str = choice("model", "model", "unit")

    @functools.cached_property
    def _step(self) -> _Step:
        return _Step()

    @property
    def needs_norm(self) -> bool:
        return self.clip is not None and self.clip_per == "model"

    def kernel_modules(self) -> tuple[str, ...]:
        return () if self.clip is None else ("sums",)

    def begin(self, lr: float, workers: int, norm: Callable[[], float]) -> None:
        self._step.workers, self._step.norm = workers, functools.cache(norm)
        self._step.exact.clear()

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        gradient = gradient.detach()
        factor = self._factor(gradient)
        (momentum,) = self.tensors(unit, gradient, "momentum")
        if self.nesterov:
            momentum.add_(gradient, alpha=factor).mul_(self.momentum)
        else:
            momentum.mul_(self.momentum).add_(gradient, alpha=factor)
        if lossless:
            self._step.exact.add(unit)
            if "velocity" not in self.unit_tensors[unit]:
                return torch.add(momentum, gradient, alpha=factor) if self.nesterov else momentum
        (velocity,) = self.tensors(unit, gradient, "velocity")
        velocity.add_(momentum)
        return velocity.add_(gradient, alpha=factor) if self.nesterov else velocity

    def _factor(self, gradient: torch.Tensor) -> float:
        """Return the factor that scales the gradient down to the allowed norm; 1 if it is not clipped."""
        if self.clip is None:
            return 1.0
        limit = self.clip / math.sqrt(self._step.workers)
        norm = math.sqrt(norms.squares(gradient)) if self.clip_per == "unit" else self._step.norm()
        return limit / norm if norm > limit else 1.0

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        named = self.unit_tensors[key.unit]
        exact = key.unit in self._step.exact
        self._step.exact.discard(key.unit)
        if "velocity" not in named:
            return
        momentum, velocity = named["momentum"], named["velocity"]
        if exact or not self.momentum_masking:
            compressor.decompress_add(payload, velocity, key, -1.0)
            return
        tell = getattr(compressor, "find_sent", None)
        indices = None if tell is None else tell(payload, velocity.numel(), key)
        if indices is not None:
            compressor.decompress_add(payload, velocity, key, -1.0)
            momentum.view(-1).index_fill_(0, indices.long(), 0.0)
        else:
            sent = compressor.decompress(payload, velocity, key)
            velocity.sub_(sent)
            momentum.masked_fill_(sent != 0, 0.0)


def _no_norm() -> float:
    raise RuntimeError("begin must be called before every step: the whole gradient is clipped")


@dataclasses.dataclass
class _Step:
    """The state of a memory that lasts for the current step only."""

    workers: int = 1
    norm: Callable[[], float] = _no_norm
    """Returns the l2 norm of the whole gradient."""
    exact: set[int] = dataclasses.field(default_factory=set)
    """Units that are sent exactly."""
