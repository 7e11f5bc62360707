"""Compressors that send the sign of each element: one bit an element."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from compressors.base import Law, compute_packed_size, count_elements
from compressors.lazy import torch
from compressors.quantisation.elementwise import Elementwise
from compressors.random_key import Key
from compressors.unit_state import Stateful
from gradsweep.options.parameters import choice, number


@dataclasses.dataclass(frozen=True)
class _Votes(Elementwise):
    """A compressor that sends the sign of each element and two flags; decoding counts the votes of the workers."""

    kernel: ClassVar[str] = "signs"
    takes_arrays: ClassVar[bool] = True
    scale_free: ClassVar[bool] = True
    flaw: ClassVar[str] = "the bits behind the signs are not those of a vote, an abstention or a NaN"

    def payload_bound(self, shape: Sequence[int]) -> int:
        return compute_packed_size(count_elements(shape) + 2, 1)

    def law(self, shape: Sequence[int]) -> Law:
        return Law()  # nothing is known of the size of x

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        return bool(kernels.decode_add(payload, weight, out))

    def finish(self, mean: torch.Tensor, key: Key, workers: int) -> None:
        # Rounding gives the exact difference of the votes, without what 1 / workers was rounded by: a tie is 0.
        mean.mul_(workers).round_().clamp_(-1.0, 1.0)  # which, unlike a sign, leaves NaN


@dataclasses.dataclass(frozen=True)
class Sign(_Votes):
    """Signs and a majority vote (Bernstein et al., "signSGD", ICML 2018, Algorithm 3).

    Q(x) = sign(x), so the learning rate has to be that of a sign. The mean over the workers becomes its
    sign, and exactly 0 if the votes are equal. What is decoded before the vote is +1 or -1.

    With `aggregate` mean, the mean of the decoded signs stays as it is: one of W + 1 numbers from -1 to 1.

    A zero (of either sign) votes with a fair coin of its own, so E[Q(0)] = 0 and no direction is favoured.
    Only a worker whose whole tensor is zero abstains: it is decoded as zeros.

    Payload: n + 2 bits, least significant bit first, the rest of the last byte zero:
        n bits: 1 for minus
        one bit: 1 if all elements are zero; the signs are 0 then
        one bit: 1 if an element is NaN or Inf; the others are 0 then, and the receiver sees NaN
        everywhere, whatever the other workers vote.
    """

    name: ClassVar[str] = "sign"
    aliases: ClassVar[tuple[str, ...]] = ("signsgd", "majority_vote")
    paper: ClassVar[str] = "Bernstein et al., signSGD, ICML 2018"

    aggregate: str = choice("vote", "vote", "mean")

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, key.mix(), payload)

    def finish(self, mean: torch.Tensor, key: Key, workers: int) -> None:
        if self.aggregate == "vote":
            super().finish(mean, key, workers)
        else:
            mean.mul_(workers).round_().div_(workers)  # of the exact difference, too


@dataclasses.dataclass(frozen=True)
class Signum(_Votes, Stateful):
    """signSGD of a momentum that each worker keeps (Bernstein et al., "signSGD", ICML 2018, Algorithm 2).

    m <- beta m + (1 - beta) x, from m = 0 on, and Q = sign(m); vote, zeros and payload are those of `sign`,
    with m for x. The momentum takes one float32 tensor of the size of the unit.
    A NaN or Inf of x stays in m: the receiver sees NaN everywhere, from then on.
    """

    name: ClassVar[str] = "signum"
    paper: ClassVar[str] = "Bernstein et al., signSGD, ICML 2018"
    reported: ClassVar[str] = "ImageNet: as accurate as Adam; the paper's abstract"
    remembers: ClassVar[tuple[str, ...]] = ("momentum",)

    beta: float = number(0.9, low=0, high=1, below=True)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        named = self.unit_tensors.setdefault(key.unit, {})
        momentum = named.get("momentum")
        if momentum is None:
            momentum = named["momentum"] = torch.zeros_like(x)
        if momentum.shape != x.shape:
            raise ValueError(f"unit {key.unit} has {x.numel()} elements, its momentum {momentum.numel()}")
        kernels.encode_momentum(momentum, x, self.beta, key.mix(), payload)


@dataclasses.dataclass(frozen=True)
class SignNorm(Elementwise):
    """Signs times one magnitude (Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019).

    Q(x) = s sign(x), biased: it is meant to be used with error feedback. The magnitude s is the mean magnitude
    ||x||_1 / n with `scale` l1, or the root mean square ||x||_2 / sqrt(n) with l2, the operator of 1-bit Adam (Tang et
    al., ICML 2021). The mean magnitude has the smallest error of all s: 0.363 ||x||^2 for normal x, against 0.404.

    A zero (of either sign) gets the sign of a fair coin with `zeros` coin, so E[Q(0)] = 0, or +1 with plus, as in
    DeepSpeed; a tensor of zeros stays zero.

    Payload:
        1 little-endian float32: s; NaN if x holds NaN or Inf, and then Q(x) is NaN everywhere
        n bits, least significant bit first, the rest of the last byte zero: 1 for minus. All are 0 if
        the float32 is zero or NaN.

    s is summed in float64: it does not overflow, and is wrong by no more than the rounding to float32. In
    float32's denormals that is up to 7e-46 for every element, and an s of less is zero: then Q(x) = 0.
    float64 is rounded to float32 first, beyond 3.4e38 to Inf.
    """

    name: ClassVar[str] = "sign_norm"
    aliases: ClassVar[tuple[str, ...]] = ("efsignsgd", "scaled_sign")
    paper: ClassVar[str] = "Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019"
    reported: ClassVar[str] = (
        "ImageNet, ResNet-50, error feedback, sums compressed too: 76.3 % (76.9 %); documentation of BytePS"
    )
    kernel: ClassVar[str] = "signs"
    takes_arrays: ClassVar[bool] = True
    flaw: ClassVar[str] = "the mean magnitude is negative or infinite"

    scale: str = choice("l1", "l1", "l2")
    zeros: str = choice("coin", "coin", "plus")

    def payload_bound(self, shape: Sequence[int]) -> int:
        return 4 + compute_packed_size(count_elements(shape), 1)

    def layout(self, shape: Sequence[int]) -> tuple[None, int, int]:
        return None, 4, 1

    def law(self, shape: Sequence[int]) -> Law:
        # ||Q(x) - x||^2 = ||x||^2 - 2 s ||x||_1 + n s^2, whatever signs zeros get, and ||x||_1 >= ||x||; one-hot
        # vectors are the worst. For a given x and l1, delta is ||x||_1^2 / (n ||x||^2): 2 / pi for a normal one.
        count = max(1, count_elements(shape))
        if self.scale == "l1":
            return Law(delta=1.0 / count)
        omega = 2.0 - 2.0 / math.sqrt(count)
        return Law(omega=omega, delta=1.0 - omega if omega < 1.0 else None)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode_scaled(x, key.mix(), self.scale == "l2", self.zeros == "coin", payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        return bool(kernels.decode_add_scaled(payload, weight, out))
