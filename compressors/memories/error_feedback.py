"""Error feedback: memories that keep the parts of a gradient that were not sent, and send them later."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

from compressors.base import Compressor
from compressors.kernels import backend, buffers
from compressors.lazy import torch
from compressors.memories.base import UnitMemory
from compressors.random_key import Key
from gradsweep.options.parameters import integer, number


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
class LoCo(UnitMemory):
    """LoCo: h = g + e is sent as Q(h), and e = beta * e + (1 - beta) * (h - Q(h)) is kept in 8 bits.

    Xie, Lin, Toh and Zhou, "LoCo: low-bit communication adaptor for large-scale model training", 2024 (arXiv
    2407.04480), with the defaults of DeepSpeed. For quantisers of few bits. In a step e grows by
    (1 - beta) * (g - Q(h)): it is 1 - beta times a residual, which is not used up when that part of it is added.

    After `reset` exchanges of a unit, its e is lost and 0 again. (DeepSpeed's counter counts tensors, not steps.)

    e is stored as the payload of int8 with scheme=symmetric: 8 bits for each element, and a scale for each 512. It
    costs a quarter of a residual, and in each step for a while a tensor of the size of the unit. A unit that has always
    been sent exactly costs nothing.
    """

    name: ClassVar[str] = "loco"
    withheld: ClassVar[str] = "error"
    remembers: ClassVar[tuple[str, ...]] = ("error", "age")

    beta: float = number(0.8, low=0, high=1, below=True)
    reset: int = integer(1024, low=1)

    def kernel_modules(self) -> tuple[str, ...]:
        return ("integers",)

    def compensate(self, unit: int, gradient: torch.Tensor, lossless: bool = False) -> torch.Tensor:
        gradient = gradient.detach()
        if unit not in self.unit_tensors and _nothing_is_left(gradient, lossless):
            return gradient
        dtype = torch.promote_types(gradient.dtype, torch.float32)
        x = gradient.to(dtype, copy=True, memory_format=torch.contiguous_format)
        self._add_error(unit, x, 1.0)
        return x

    def update(self, key: Key, x: torch.Tensor, payload: torch.Tensor, compressor: Compressor) -> None:
        if key.unit not in self.unit_tensors and _nothing_is_left(x, compressor.is_exact(x.shape, key)):
            return
        compressor.remove_sent(payload, x, key)  # x is the tensor that `compensate` has made
        x.mul_(1.0 - self.beta)
        self._add_error(key.unit, x, self.beta)
        named = self.unit_tensors.setdefault(key.unit, {})
        if not named:
            named["error"] = torch.empty(_count_bytes(x.numel()), dtype=torch.uint8, device=x.device)
            named["age"] = torch.tensor(0)
        values = buffers.as_float32(x)
        kernels = backend.load("integers", x.device)
        kernels.encode(values, 0, _BITS, _get_bucket(len(values)), False, False, named["error"])
        named["age"] += 1
        if int(named["age"]) >= self.reset:
            del self.unit_tensors[key.unit]

    def _add_error(self, unit: int, out: torch.Tensor, weight: float) -> None:
        """Add the error of a unit, times `weight`, to `out`.

        Raises:
            ValueError: `out` has another number of elements than the unit, or the error is damaged.
        """
        if unit not in self.unit_tensors:
            return
        error = self.unit_tensors[unit]["error"]
        if error.numel() != _count_bytes(out.numel()):
            raise ValueError(f"unit {unit} has shape {tuple(out.shape)}, its error ({_count_elements(error)},)")
        kernels, bucket = backend.load("integers", out.device), _get_bucket(out.numel())
        with buffers.accumulator(out) as total:
            if not kernels.decode_add(error, _BITS, bucket, False, weight, total):
                raise ValueError(f"unit {unit}: the error that memory=loco keeps is damaged")

    def norm(self) -> float:
        norms = []
        for unit, named in self.unit_tensors.items():
            error = torch.zeros(_count_elements(named["error"]), device=named["error"].device)
            self._add_error(unit, error, 1.0)
            norms.append(float(torch.linalg.vector_norm(error, dtype=torch.float64)))
        return math.hypot(*norms)


_BITS, _BUCKET = 8, 512
_SCALE_BYTES = 4


def _get_bucket(count: int) -> int:
    """Return the number of elements of a full bucket of an error of `count` elements."""
    return max(1, min(count, _BUCKET))


def _count_bytes(count: int) -> int:
    """Return the number of bytes in which an error of `count` elements is stored."""
    return count + _SCALE_BYTES * -(-count // _BUCKET)


def _count_elements(error: torch.Tensor) -> int:
    """Return the number of elements of a stored error."""
    return error.numel() - _SCALE_BYTES * -(-error.numel() // (_BUCKET + _SCALE_BYTES))
