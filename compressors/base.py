"""The interface of a compressor, which encodes a tensor into bytes and decodes the bytes into a tensor.

A compressor knows no network, no model and no file. Its caller (an exchange) owns the buffers: `compress` can write
straight into an outgoing message, `decompress_add` accumulates straight into the mean gradient.

Importing this module, or any module that defines a compressor, loads neither torch nor numba,
so that configs can be checked at once; kernels are imported when the first tensor arrives.

    Compressor      one payload per worker and unit; the workers' payloads are decoded or summed
    Cooperative     a method that needs several rounds of communication for one mean (PowerSGD, gTop-k)
    Law             the promises of a method about Q, with their constants; the conformance suite checks them
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from compressors.lazy import torch
from compressors.message import Decode, Message
from compressors.random_key import Key
from compressors.unit_state import Stateless
from gradsweep.options.parameters import Checked


class CorruptPayload(ValueError):
    """A payload that `compress` cannot have written for a tensor of the expected shape."""


@dataclasses.dataclass(frozen=True)
class Law:
    """The promises of a method about Q for tensors of one shape; None and False promise nothing.

    E is over the method's own random numbers; if a method draws none, its promises hold for every x. All promises hold
    up to the rounding of float32, for tensors whose elements are zero or between `smallest` and `largest` of the
    method. Below 1.2e-38, in float32's denormals, rounding is absolute: 7e-46 for each operation.
    """

    unbiased: bool = False
    """E[Q(x)] = x."""
    omega: float | None = None
    """Variance: E ||Q(x) - x||^2 <= omega ||x||^2."""
    delta: float | None = None
    """Contraction: E ||Q(x) - x||^2 <= (1 - delta) ||x||^2, 0 < delta <= 1."""
    kappa: float | None = None
    """Absolute error: ||Q(x) - x|| <= kappa."""


EXACT = Law(unbiased=True, omega=0.0, delta=1.0)
"""Q(x) = x."""
ROUNDING = 0.01
"""Relative variance below which a method is rounding, which needs no memory."""


@dataclasses.dataclass(frozen=True)
class Compressor(Checked, Stateless, ABC):
    """Q: encodes a tensor into a payload, and decodes the payload.

    Subclasses are frozen dataclasses whose fields are the hyper-parameters; a value out of range
    raises `parameters.InvalidParameter` with the range when the compressor is constructed.
    Tensors may have any shape (also zero elements) and any floating dtype, contiguous or not.
    NaN and Inf are never silently turned into numbers: they are carried through to the receiver
    or raise FloatingPointError, as the docstring of each method says.

    The state of a method from step to step is kept per unit (`Key.unit`), outside of the fields
    (see `unit_state.Stateful`): two compressors are equal if their hyper-parameters are.
    """

    name: ClassVar[str]
    """How configs and tables call the method: the name used in the literature."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that the method goes by."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Names that others have for the method with certain options: the options by name."""
    paper: ClassVar[str] = ""
    """Where the method comes from: authors, title, venue and year."""
    reported: ClassVar[str] = ""
    """The accuracy that others report, in brackets without compression, and the source; not inherited."""
    sum_dtype: ClassVar[str | None] = None
    """The dtype as which payloads of several workers may be added by the network itself ("float32",
    "float16", "bfloat16", "int8", "int32"); None where they may not. A method whose options decide this
    overrides it with a property."""
    needs_matrix: ClassVar[bool] = False
    """Works on the shape of a layer; a contiguous piece of a flat buffer has no such shape."""
    scale_free: ClassVar[bool] = False
    """Of x only directions are kept (signs): Q(x) is not of the size of x."""
    knows_rest: ClassVar[bool] = False
    """With `scale_free`: the sender itself knows what has not been sent (`remove_sent`)."""
    shared_draws: ClassVar[bool] = False
    """All workers draw the same random numbers: a key's worker does not matter."""
    shared_rotation: ClassVar[bool] = False
    """All workers draw the same random rotation: for the same x a part of their errors is the same."""
    sends_scale: ClassVar[bool] = True
    """A payload has all that its decoder needs but the key. If not, a scale is known only to those who agreed on it, or
    have seen the parameters move. A method whose options decide this overrides it with a property."""
    sparse: ClassVar[bool] = False
    """Elements of x are sent or not, and Q(x) is zero where they are not: a sparsifier."""
    lossless: ClassVar[bool] = False
    """Q(x) = x: a memory has nothing to keep."""
    joins: ClassVar[bool] = False
    """The payloads of two tensors, one behind the other, are that of both tensors joined to one vector."""
    needs_movement: ClassVar[bool] = False
    """Wants `observe_movement` called before every step."""
    follows_mean: ClassVar[bool] = False
    """`finish` takes from the mean how the next step is encoded, so all workers must finish with the same mean."""
    averages: ClassVar[bool] = False
    """The workers' mean is not the mean of what their payloads decode to: `average` forms it from all of them."""
    largest: ClassVar[float] = math.inf
    """Elements of a larger magnitude may arrive as Inf."""
    smallest: ClassVar[float] = 0.0
    """Elements of a smaller magnitude, but zero, may arrive with an error that the law does not cover."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        own = vars(cls)
        cls.reported = own.get("reported", "")
        if "build_decoder" not in own and ("decompress_add" in own or "decompress_to" in own):
            # An inherited one decodes something else.
            cls.build_decoder = Compressor.build_decoder  # type: ignore[method-assign]

    @property
    def summable(self) -> bool:
        """Whether the network itself may add the payloads of several workers."""
        return self.sum_dtype is not None

    @property
    def unbiased(self) -> bool:
        """Whether E[Q(x)] = x for every x (of a size that is worth compressing)."""
        return self.law((1024, 1024)).unbiased

    @property
    def needs_memory(self) -> bool:
        """Whether training needs error feedback: Q is biased, by more than rounding.

        Methods whose bias is small override it.
        """
        if self.scale_free:
            return self.knows_rest
        law = self.law((1024, 1024))
        return not (law.unbiased or self.lossless or (law.omega is not None and law.omega < ROUNDING))

    @abstractmethod
    def law(self, shape: Sequence[int]) -> Law:
        """Return the promises of the method for tensors of `shape`."""

    def is_exact(self, shape: Sequence[int], key: Key) -> bool:
        """Tell whether Q(x) = x for tensors of `shape` in the step of `key`, as may hold even without `lossless`."""
        return self.lossless

    @abstractmethod
    def payload_bound(self, shape: Sequence[int]) -> int:
        """Return the maximum number of bytes of a payload for tensors of `shape`."""

    def payload_size(self, shape: Sequence[int]) -> int | None:
        """Return the number of bytes of a payload for tensors of `shape`; None if it depends on the tensor's values."""
        return self.payload_bound(shape)

    @abstractmethod
    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        """Encode `x`; return the payload, a 1-D uint8 tensor on the device of `x`.

        With `out` (1-D uint8, at least `payload_bound(x.shape)` long, on any device) the payload is written to its
        beginning and a view of that part is returned. `x` is not changed. The same `x`, `key` and state
        give the same bytes, whatever the kernels and the number of threads.
        """

    @abstractmethod
    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        """Compute out += weight * Q(x), in place and on any device; `payload` encodes an `x` with the shape of `out`.

        `key` is the key that `compress` was given, but its worker may be any, so that sums of payloads can be decoded.

        Raises:
            CorruptPayload: the payload's length or content cannot belong to that shape. `out` may
                then hold a part of the sum, but nothing outside of it has been written.
        """

    def remove_sent(self, payload: torch.Tensor, out: torch.Tensor, key: Key) -> None:
        """Take from `out`, which `payload` encodes, what has been sent, in place: Q(x), if the method says no other."""
        self.decompress_add(payload, out, key, -1.0)

    def decompress_to(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        """Compute out = weight * Q(x), overwriting `out` in place; else as `decompress_add`."""
        out.detach().zero_()
        self.decompress_add(payload, out, key, weight)

    def build_decoder(self, out: torch.Tensor, *, replace: bool = False) -> Decode:
        """Return a function that decodes many payloads into `out`: it adds them, or with `replace` overwrites `out`.

        Results and errors are the same as those of `decompress_add` or `decompress_to`. Subclasses override it to
        decode faster.
        """
        decode = self.decompress_to if replace else self.decompress_add

        def plainly(message: Message, start: int, size: int, key: Key, weight: float) -> None:
            decode(message.payload(start, size), out, key, weight)

        return plainly

    def average(self, payloads: Sequence[torch.Tensor], out: torch.Tensor, key: Key) -> None:
        """Replace `out` by the mean of the payloads of all workers, for methods with `averages`.

        The mean has the same bits for the same payloads in the same order. `key` is as in `decompress_add`.

        Raises:
            CorruptPayload: as in `decompress_add`.
        """
        raise NotImplementedError(f"the mean of {self.name} is that of what payloads decode to")

    def decompress(self, payload: torch.Tensor, like: torch.Tensor, key: Key) -> torch.Tensor:
        """Return Q(x) as a new tensor with the shape and dtype of `like`."""
        out = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
        self.decompress_add(payload, out, key)
        return out

    def kernel_modules(self) -> tuple[str, ...]:
        """Return the names of the kernel modules that the method uses."""
        return ()

    def load_modules(self) -> None:
        """Import the libraries that the method needs besides its kernels; compute nothing and start no thread."""
        return None

    def warm_up_libraries(self, device: torch.device | str) -> None:
        """Call libraries on `device` that prepare themselves in their first call, such as LAPACK."""
        return None

    # What methods can ask of the exchange that carries their payloads. The order of a step is: `observe_movement`,
    # `needs_agreement`, and where that is true `statistics` and `agree`; `compress`; after the mean of the
    # decoded payloads has been formed, `finish`.

    def join(self, workers: int) -> None:
        """Set the number of workers whose payloads are combined; called once, before the first step.

        Raises:
            ValueError: the method cannot combine that many; configs are checked by calling this on a copy.
        """
        return None

    def observe_movement(self, unit: int, squared: float, lr: float) -> None:
        """Record how far a unit's parameters have moved; called before every step for methods with `needs_movement`.

        Args:
            squared: ||x^k - x^(k-1)||^2 of its parameters x over the last step.
            lr: the learning rate of the coming step.
        """
        return None

    def needs_agreement(self, key: Key) -> bool:
        """Tell whether `agree` must be called before `compress`; the answer is the same on all workers."""
        return False

    def statistics(self, x: torch.Tensor, key: Key) -> torch.Tensor:
        """Return the statistics that the workers agree on: (m,) float32; `agree` gets their elementwise maximum."""
        raise NotImplementedError(f"{self.name} agrees on nothing")

    def agree(self, key: Key, largest: torch.Tensor) -> None:
        """Accept the elementwise maximum of the `statistics` of all workers; a single worker passes its own."""
        return None

    def finish(self, mean: torch.Tensor, key: Key, workers: int) -> None:
        """Change the decoded mean in place if the method requires this (a majority vote replaces it by its sign)."""
        return None


@dataclasses.dataclass(frozen=True)
class Sum:
    """A round of a cooperative method: `tensor` (1-D contiguous float32) is replaced by the sum over the workers."""

    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Swap:
    """A round of a cooperative method: send `payload` (1-D uint8) to `partner` and receive the partner's payload.

    The partner has a swap with this worker in the same round. If `partner` is None, this worker sends and receives
    nothing.
    """

    partner: int | None
    payload: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The result of a cooperative method's rounds for one unit.

    `mean`, decoded and multiplied by `weight`, is the mean over the workers, with the same bits on all of them. `own`
    is the contribution of this worker to it, which its memory need not keep.
    """

    own: torch.Tensor
    mean: torch.Tensor
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Cooperative(Compressor):
    """A method that needs several rounds of communication for a mean.

    `compress` gives the result of the rounds for a single worker.
    """

    @abstractmethod
    def rounds(
        self, batch: Sequence[tuple[torch.Tensor, Key]], worker: int, workers: int
    ) -> Generator[Sum | Swap, torch.Tensor, list[Reduction]]:
        """Reduce all units of `batch` together: yield each round's communication, and return a Reduction for each unit.

        Each yield is a round, and all workers have the same rounds in the same order. The caller answers a Sum with the
        summed tensor, and a Swap with the partner's payload (an empty one if there is no partner). The tensors of
        `batch` are only read.
        """

    def decompress_together(
        self, reductions: Sequence[Reduction], units: Sequence[tuple[torch.Tensor, Key]], *, replace: bool = False
    ) -> None:
        """Add the mean of each unit to its tensor, or with `replace` overwrite it.

        It is the same as decoding one by one; subclasses override it to decode all units of a step in fewer launches.
        """
        decode = self.decompress_to if replace else self.decompress_add
        for reduction, (out, key) in zip(reductions, units, strict=True):
            decode(reduction.mean, out, key, reduction.weight)

    def reduce_alone(self, batch: Sequence[tuple[torch.Tensor, Key]]) -> list[Reduction]:
        """Run all rounds as a single worker, and return the reduction of each unit."""
        rounds = self.rounds(batch, 0, 1)
        try:
            request = next(rounds)
            while True:
                request = rounds.send(request.tensor if isinstance(request, Sum) else request.payload[:0])
        except StopIteration as result:
            reductions: list[Reduction] = result.value
        return reductions


def count_elements(shape: Sequence[int]) -> int:
    """Return the number of elements of a tensor of `shape`."""
    return math.prod(shape)


def compute_packed_size(count: int, width: int) -> int:
    """Return the number of bytes of `count` codes of `width` bits, packed without gaps."""
    return (count * width + 7) // 8
