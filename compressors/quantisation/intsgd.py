"""Quantise to integers that the network can add, with a scale that all workers know."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import ClassVar

from compressors.base import Compressor, CorruptPayload, Law, count_elements
from compressors.kernels import backend, buffers
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.unit_state import Stateful
from gradsweep.options.parameters import Valid, field, is_integer, number


@dataclasses.dataclass(frozen=True)
class IntSGD(Compressor, Stateful):
    """Integers on an adaptive scale (Mishchenko et al., "IntSGD: Adaptive Floatless Compression of Stochastic
    Gradients", ICLR 2022).

    The scale is that of the paper's Algorithm 1, computed for every unit by itself. In the paper, Algorithm 1 has one
    scale for the whole model, and Algorithm 2 one for each block, with eps^2 d_l / d for a block of d_l of the model's
    d elements in place of the eps^2 below.

    Q(x) = Int(alpha x) / alpha, where Int rounds to one of the two neighbouring integers at random, without
    bias. Integers are clipped to [-c, c], c = floor((2^(bits - 1) - 1) / n) for n workers (or the float32
    below), so that the sum over the workers fits. alpha does not travel: for a unit of d elements and the
    learning rate eta of this step,

        alpha = eta sqrt(d) / sqrt(2 n r + eta^2 eps^2),  r <- beta r + (1 - beta) ||x^k - x^(k-1)||^2,

    where r begins with the first movement. Replicas that are equal move alike and know the same alpha.
    Where it can't be had (in the first step, where nothing has moved yet, the learning rate is 0, or nobody
    tells it) the workers agree on the largest magnitude M among them and alpha = c / M, as in Sapio et al.,
    "Scaling distributed machine learning with in-network aggregation", NSDI 2021: nothing is clipped then.
    A worker that is alone takes its own M.

    Payload: n little-endian int8 or int32, Int(alpha x); the network can add those of several workers. It is
    decoded with the alpha that this compressor has last used for the unit.

    With an agreed alpha Q is unbiased. With alpha from the movement it is as long as no |alpha x| exceeds
    c. At 32 bits that takes an element some 10^5 times as large as the whole mean gradient lately; at 8 bits
    clipping is a part of the method (c is 15 for 8 workers). So no law holds for every x.

    NaN or Inf in x raises FloatingPointError: on all workers where they agree on M, else on that worker.
    float64 is rounded to float32 first.
    """

    name: ClassVar[str] = "intsgd"
    paper: ClassVar[str] = "Mishchenko et al., IntSGD, ICLR 2022"
    needs_movement: ClassVar[bool] = True
    sends_scale: ClassVar[bool] = False
    remembers: ClassVar[tuple[str, ...]] = ("movement", "lr", "alpha", "step")
    optional: ClassVar[tuple[str, ...]] = remembers

    bits: int = field(Valid("one of 8, 32", lambda value: is_integer(value) and value in (8, 32)), default=8)
    beta: float = number(0.9, low=0, high=1, below=True)
    eps: float = number(1e-8, low=0, high=10**6)

    @property
    def sum_dtype(self) -> str:  # type: ignore[override]
        """The integer type in which payloads are added."""
        return f"int{self.bits}"

    @functools.cached_property
    def _group(self) -> SimpleNamespace:
        """The group of workers whose payloads are added: `workers` is their number."""
        return SimpleNamespace(workers=1)

    @property
    def limit(self) -> int:
        """The largest integer c that a worker may send; it is a float32 value."""
        limit: int = (2 ** (self.bits - 1) - 1) // self._group.workers
        spare = max(0, limit.bit_length() - 24)
        return limit >> spare << spare

    def join(self, workers: int) -> None:
        if not 1 <= workers < 2 ** (self.bits - 1):
            raise ValueError(f"intsgd with {self.bits} bits adds for 1 to {2 ** (self.bits - 1) - 1} workers")
        self._group.workers = workers

    @property
    def needs_memory(self) -> bool:
        return False  # rounds at random; only clipping is biased

    def law(self, shape: Sequence[int]) -> Law:
        return Law()

    def payload_bound(self, shape: Sequence[int]) -> int:
        return self.bits // 8 * count_elements(shape)

    def observe_movement(self, unit: int, squared: float, lr: float) -> None:
        if not math.isfinite(squared):
            raise FloatingPointError(f"intsgd: the parameters of unit {unit} have moved by {squared}")
        named = self.unit_tensors.setdefault(unit, {})
        before = named.get("movement")
        mean = squared if before is None else self.beta * float(before) + (1.0 - self.beta) * squared
        named["movement"] = torch.tensor(mean, dtype=torch.float64)
        named["lr"] = torch.tensor(lr, dtype=torch.float64)

    def _compute_alpha_from_movement(self, key: Key, count: int) -> float | None:
        """Return alpha by the paper's rule; None if the rule gives no number."""
        named = self.unit_tensors.get(key.unit, {})
        if "movement" not in named:
            return None
        movement, lr = float(named["movement"]), float(named["lr"])
        if not (movement > 0.0 and lr > 0.0):
            return None
        alpha = lr * math.sqrt(count) / math.sqrt(2.0 * self._group.workers * movement + (lr * self.eps) ** 2)
        return min(max(alpha, 2.0**-150), 2.0**190)

    def needs_agreement(self, key: Key) -> bool:
        return self._compute_alpha_from_movement(key, 1) is None

    def statistics(self, x: torch.Tensor, key: Key) -> torch.Tensor:
        """Return (1,) with the largest magnitude; Inf also for NaN, which a maximum over workers might lose."""
        values = buffers.as_float32(x)
        low, high = torch.aminmax(values) if values.numel() else (values.new_zeros(()), values.new_zeros(()))
        largest = torch.maximum(high, -low)
        return torch.where(largest.isfinite(), largest, math.inf).view(1)

    def agree(self, key: Key, largest: torch.Tensor) -> None:
        named = self.unit_tensors.setdefault(key.unit, {})
        named["alpha"] = torch.tensor(self._compute_alpha(float(largest)), dtype=torch.float64)
        named["step"] = torch.tensor(key.step)

    def _compute_alpha(self, largest: float) -> float:
        if not math.isfinite(largest):
            raise FloatingPointError("intsgd: a gradient holds NaN or Inf")
        return self.limit / largest if largest > 0.0 else 1.0

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        values = buffers.as_float32(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        named = self.unit_tensors.setdefault(key.unit, {})
        alpha = self._compute_alpha_from_movement(key, values.numel())
        if alpha is None and "step" in named and int(named["step"]) == key.step:
            alpha = float(named["alpha"])
        elif alpha is None:
            if self._group.workers > 1:
                raise ValueError(f"intsgd: the workers have not agreed on a scale for unit {key.unit}")
            alpha = self._compute_alpha(float(self.statistics(values, key)))
        # As a float32 times a power of two, which is 1 but for gradients near the ends of float32's range.
        power = 2.0**64 if alpha > 2.0**96 else 2.0**-64 if alpha < 2.0**-96 else 1.0
        factor = float(torch.tensor(alpha / power, dtype=torch.float32))
        kernels = backend.load("intsgd", x.device)
        if not kernels.encode(values, key.mix(), power, factor, self.limit, self.bits, payload):
            raise FloatingPointError("intsgd: a gradient holds NaN or Inf")
        named["alpha"] = torch.tensor(power * factor, dtype=torch.float64)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_bound(out.shape))
        alpha = self.unit_tensors.get(key.unit, {}).get("alpha")
        if alpha is None:
            raise CorruptPayload(f"the scale of unit {key.unit} is not known: nothing has been compressed yet")
        with buffers.accumulator(out) as total:
            backend.load("intsgd", out.device).decode_add(payload, weight / float(alpha), self.bits, total)

    def kernel_modules(self) -> tuple[str, ...]:
        return ("intsgd",)
