"""Quantise after a random rotation that all workers share, so that the network can add the payloads."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import ClassVar

from compressors.base import Compressor, CorruptPayload, Law, count_elements
from compressors.kernels import backend, buffers, hadamard_blocks, thc_tables
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.unit_state import Stateful
from gradsweep.options.parameters import InvalidParameter, boolean, integer, number

_INFINITY, _NAN = 0x7F800000, 0x7FC00000  # the bits of Inf, and of the NaN that is sent


@dataclasses.dataclass(frozen=True)
class THC(Compressor, Stateful):
    """Tensor homomorphic compression (Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher and Yu, "THC: Accelerating
    Distributed Deep Learning Using Tensor Homomorphic Compression", NSDI 2024, algorithm 3).

    The unit is cut into blocks as in `EDEN`. The workers agree on m, the largest of their norms of a block (a worker
    that has not been told, `agree`, takes its own). For a block x of P elements, z = H D x / m, with the same random
    signs D on all workers, has nearly normal elements, of a standard deviation up to 1. They are clamped to [-t, t],
    which a standard normal number leaves with the probability `overflow`. `granularity` + 1 evenly spaced levels lie
    between -t and t; z is rounded to one of the two nearest of the 2^bits of them that are in a table, at random and
    without bias. The table is the one with the least mean error for normal numbers (`kernels.thc_tables`).

    A level T counts from the one in the middle. It is an integer, and levels of W workers add up to that of the sum:
    the receiver computes 2 t / granularity m / P D H T, of a payload or of a sum of payloads. The paper counts from the
    lowest level, so its sums are larger by W granularity / 2, and fit in a byte for the same W.

    Clamping leaves a bias, which memory=residual takes up with the error of rounding. Its part of the error is the same
    on all workers with the same x; their errors of rounding are independent.

    Payload, for B blocks:
        with `sums` per block P bytes, the T as int8: the network can add them for up to 254 / granularity workers. They
        are decoded with the m that this compressor has last used for the unit
        without `sums` B little-endian float32: the m; NaN for a block that holds NaN or Inf; then per block
        P * bits / 8 bytes: the places in the table, `bits` bits each, least significant bit first
    Elements are in the order of `EDEN`.

    A NaN or Inf of any worker makes its whole block NaN at all receivers. A block of zeros stays exactly zero. float64
    is rounded to float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "thc"
    paper: ClassVar[str] = "Li et al., THC, NSDI 2024"
    shared_rotation: ClassVar[bool] = True
    remembers: ClassVar[tuple[str, ...]] = ("norms",)
    optional: ClassVar[tuple[str, ...]] = remembers

    bits: int = integer(4, low=1, high=6)
    granularity: int = integer(30, low=2, high=254)
    overflow: float = number(1 / 32, low=2.0**-20, high=0.5)
    block_size: int = hadamard_blocks.option()
    sums: bool = boolean(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        hadamard_blocks.check(self.block_size)
        if self.granularity % 2 or self.granularity < 2**self.bits:
            valid = f"an even number from {2**self.bits} to 254 with bits={self.bits}"
            raise InvalidParameter("granularity", self.granularity, valid)

    @property
    def sum_dtype(self) -> str | None:  # type: ignore[override]
        """The integer type in which payloads are added."""
        return "int8" if self.sums else None

    @property
    def sends_scale(self) -> bool:  # type: ignore[override]
        """Whether the norms are part of the payload."""
        return not self.sums

    @functools.cached_property
    def _group(self) -> SimpleNamespace:
        """The group of workers whose payloads are added: `workers` is their number."""
        return SimpleNamespace(workers=1)

    @functools.cached_property
    def _agreed(self) -> dict[int, tuple[int, torch.Tensor]]:
        """The last step in which the workers agreed on norms, and these norms, by unit."""
        return {}

    @property
    def _coding(self) -> thc_tables.Coding:
        return thc_tables.build_coding(self.bits, self.granularity, self.overflow, self.sums)

    def join(self, workers: int) -> None:
        most = 254 // self.granularity
        if self.sums and workers > most:
            least = 254 // workers // 2 * 2
            other = f"compressor.granularity of at most {least}, or " if least >= 2**self.bits else ""
            adds = f"thc with granularity={self.granularity} adds bytes for 1 to {most} workers"
            raise ValueError(f"{adds}; valid is {other}compressor.sums=false")
        self._group.workers = workers

    def law(self, shape: Sequence[int]) -> Law:
        # The agreed norm of several workers may be of any size beside this worker's elements. Alone, z has the mean
        # square 1. Beyond t, an element loses (|z| - t)^2; in proportion to z^2 most where |z| is largest, sqrt(P),
        # and there are at most P / z^2 of these. Rounding between levels at a distance d adds at most d^2 / 4.
        if self._group.workers > 1:
            return Law()
        clip = thc_tables.find_clip(self.overflow)
        table = thc_tables.find_table(self.bits, self.granularity, self.overflow)
        gap = max(high - low for low, high in zip(table, table[1:], strict=False)) * 2 * clip / self.granularity
        longest = hadamard_blocks.pad(min(self.block_size, count_elements(shape)))
        omega = max(0.0, 1 - clip / math.sqrt(longest)) ** 2 + gap**2 / 4
        return Law(omega=omega, delta=1 - omega if omega < 1 else None)

    def payload_bound(self, shape: Sequence[int]) -> int:
        count = count_elements(shape)
        padded = hadamard_blocks.count_padded(count, self.block_size)
        return padded if self.sums else 4 * self._count_blocks(shape) + padded * self.bits // 8

    def _count_blocks(self, shape: Sequence[int]) -> int:
        return hadamard_blocks.count_blocks(count_elements(shape), self.block_size)

    def needs_agreement(self, key: Key) -> bool:
        return True

    def statistics(self, x: torch.Tensor, key: Key) -> torch.Tensor:
        """Return the norms of this worker's blocks; Inf for one that holds NaN or Inf."""
        return self._compute_norms(buffers.as_float32(x)).nan_to_num(nan=math.inf)

    def _compute_norms(self, x: torch.Tensor) -> torch.Tensor:
        if not len(x):
            return x.new_zeros(0)
        norms: torch.Tensor = backend.load(self.name, x.device).compute_norms(x, self.block_size)
        return norms

    def agree(self, key: Key, largest: torch.Tensor) -> None:
        norms = torch.where(largest.isfinite(), largest, math.nan)
        self._agreed[key.unit] = key.step, norms
        if self.sums:
            self.unit_tensors.setdefault(key.unit, {})["norms"] = norms

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        values = buffers.as_float32(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        step, norms = self._agreed.get(key.unit, (None, values))
        if step != key.step:
            if self.sums and self._group.workers > 1:
                raise ValueError(f"thc: the workers have not agreed on the norms of unit {key.unit}")
            norms = self._compute_norms(values)
            if self.sums:
                self.unit_tensors.setdefault(key.unit, {})["norms"] = norms
        if values.numel():
            norms = norms.to(x.device)
            if not self.sums:
                buffers.write_floats(norms, payload[: 4 * len(norms)])
            rotation, coding = key.share().mix(), self._coding
            kernels = backend.load(self.name, x.device)
            kernels.encode(values, norms, key.mix(), rotation, self.block_size, coding, payload)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_bound(out.shape))
        if not payload.numel():
            return
        norms = self._read_norms(payload, key.unit, self._count_blocks(out.shape))
        with buffers.accumulator(out) as total:
            kernels = backend.load(self.name, out.device)
            kernels.decode_add(payload, norms, key.share().mix(), self.block_size, self._coding, weight, total)

    def _read_norms(self, payload: torch.Tensor, unit: int, count: int) -> torch.Tensor:
        """Return the norms with which a payload is to be decoded, (count,) float32."""
        if self.sums:
            norms = self.unit_tensors.get(unit, {}).get("norms")
            if norms is None or len(norms) != count:
                raise CorruptPayload(f"the norms of unit {unit} are not known: nothing has been compressed yet")
            return norms.to(payload.device)
        norms = buffers.read_floats(payload[: 4 * count])
        bits = norms.view(torch.int32)
        if bool((((bits < 0) | (bits >= _INFINITY)) & (bits != _NAN)).any()):
            raise CorruptPayload("a norm is negative or infinite")
        return norms

    def kernel_modules(self) -> tuple[str, ...]:
        return (self.name,)
