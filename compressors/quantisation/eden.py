"""Quantise after a random rotation, by which elements become nearly normal, whatever their distribution was."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

from compressors.base import Law, count_elements
from compressors.kernels import hadamard_blocks
from compressors.lazy import torch
from compressors.quantisation.elementwise import Elementwise
from compressors.random_key import Key
from gradsweep.options.parameters import choice, integer


@dataclasses.dataclass(frozen=True)
class EDEN(Elementwise):
    """EDEN (Vargaftik et al., "EDEN: Communication-efficient and robust distributed mean estimation for federated
    learning", ICML 2022); with 1 bit DRIVE (Vargaftik et al., NeurIPS 2021).

    The unit is cut into blocks of `block_size` elements. The last one is padded with zeros to a power of two, at least
    16. For a block x of P elements, D changes signs at random and H is the Hadamard matrix of +1 and -1. y = H D x /
    ||x|| has about standard normal elements. Each goes to the nearest of the 2^bits levels c that have the least
    squared error for normal numbers (Lloyd and Max). The receiver computes f D H c, with

    - `unbiased`: f = ||x|| / <y, c>, so that <Q(x), x> = ||x||^2. Over random rotations the mean of Q(x) is x; over
      random D it nearly is, but for x with a few nonzero elements.
    - `least_error`: f = ||x|| <y, c> / (P <c, c>), with which ||Q(x) - x|| is least.

    The error ||Q(x) - x||^2 / ||x||^2 of one worker tends to 0.571, 0.133, 0.0358 and 0.0096 for 1 to 4 bits and
    `unbiased`, for blocks of any distribution without a few dominant elements. It is worst where y has a single large
    element, as for constant x under a D without changes. Each payload has a rotation of its own, so the errors of
    several workers are independent.

    Payload, for B blocks:
        8 bytes: the key of the signs, little-endian
        B little-endian float32: the f; NaN for a block that holds NaN or Inf
        per block P * bits / 8 bytes: the codes, ranks of the levels, `bits` bits each, least significant bit first.
        Element i of y has place (i mod 8) P / 8 + i div 8

    A NaN or Inf makes its whole block NaN at the receiver. A block of zeros stays exactly zero. float64 is rounded to
    float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "eden"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"drive": {"bits": 1}}
    paper: ClassVar[str] = "Vargaftik et al., EDEN, ICML 2022"
    kernel: ClassVar[str] = "eden"
    takes_arrays: ClassVar[bool] = True
    flaw: ClassVar[str] = "a scale is negative or infinite"

    bits: int = integer(4, low=1, high=4)
    block_size: int = hadamard_blocks.option()
    scale: str = choice("unbiased", "unbiased", "least_error")

    def __post_init__(self) -> None:
        super().__post_init__()
        hadamard_blocks.check(self.block_size)

    def payload_bound(self, shape: Sequence[int]) -> int:
        count = count_elements(shape)
        if not count:
            return 0
        heads = 8 + 4 * hadamard_blocks.count_blocks(count, self.block_size)
        return heads + hadamard_blocks.count_padded(count, self.block_size) * self.bits // 8

    @property
    def needs_memory(self) -> bool:
        return self.scale != "unbiased"

    def law(self, shape: Sequence[int]) -> Law:
        # As levels grow with |y|, Chebyshev's sum inequality gives <y, c>^2 >= sum y^2 c^2 >= <c, c>, from which both
        # follow. It is reached by a y with a single nonzero element.
        longest = hadamard_blocks.pad(min(self.block_size, count_elements(shape)))
        if self.scale == "unbiased":
            return Law(omega=float(longest - 1))
        return Law(omega=1.0 - 1.0 / longest, delta=1.0 / longest)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        if x.numel():
            kernels.encode(x, key.mix(), self.bits, self.block_size, self.scale == "unbiased", payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        if not len(out):
            return True
        return bool(kernels.decode_add(payload, self.bits, self.block_size, weight, out))
