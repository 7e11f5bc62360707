"""The base classes of sparsifiers, which send some elements as positions and values; the others are zero."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from compressors import aliases, registry
from compressors.base import EXACT, Compressor, CorruptPayload, Law, count_elements
from compressors.kernels import backend, buffers, half_floats
from compressors.lazy import torch
from compressors.quantisation.elementwise import Elementwise
from compressors.random_key import Key, splitmix64
from compressors.sparsification import counts, positions
from compressors.sparsification.blocks.grids import Blocks
from compressors.unit_state import Stateful
from gradsweep.options.parameters import InvalidParameter, Valid, choice, field, from_mapping, mapping

_PLAIN = {"fp32": 4, "fp16": 2}
_NOT_CHAINED = (*_PLAIN, "mean")
_CHAINED_DRAWS = 0x6368_6169_6E65_6421
_HALF_ERROR = 2.0**-21


def _find_chained(name: Any) -> type[Elementwise] | None:
    """Return the method `name` if it codes elements independently, and so can encode the kept values; else None.

    Options may still make it ask other workers, which is not checked here.
    """
    if not isinstance(name, str):
        return None
    method = registry().get(aliases().get(name, name))
    if method is None or not issubclass(method, Elementwise) or issubclass(method, Stateful):
        return None
    if method.scale_free or method.needs_movement or method.finish is not Compressor.finish:
        return None
    return method


_VALUES = Valid(
    "fp32, fp16, mean, or the name of a compressor that codes every element on its own, such as qsgd",
    lambda value: value in _NOT_CHAINED or _find_chained(value) is not None,
    lambda: [*_NOT_CHAINED, *(name for name in (*registry(), *aliases()) if _find_chained(name) is not None)],
)


@dataclasses.dataclass(frozen=True)
class Sparsifier(Compressor):
    """A method that sends the elements that `select` chooses; all other elements of Q(x) are zero.

    Options of all sparsifiers:
        values    how the kept values travel: `fp32` exactly; `fp16` rounded; `mean` as one number for all of
                  them, RedSync's same-sign quantisation; or by any compressor that codes every element on
                  its own, which then works on the vector of the kept values: one that asks the other workers
                  for nothing, so terngrad without its `share_scale`, and no signs without a size
        values_options    options of that compressor which are not at their default, such as {levels: 3}
        indices   the coding of their positions (see `positions`): `auto` takes the smallest
        mean      what the workers' mean of an element divides by: the number of workers (`all`), or of those that
                  have sent it (`senders`), as the code of DeMo and SparseLoCo does; what none has sent is 0.
                  With `senders`, the mean is not that of the workers' Q(x), of which laws and theory speak: where few
                  send the same elements, it is longer, up to as many times as there are workers

    Payload, for k kept of n elements:
        8 bytes       the header of `positions`: coding, parameter, k; the highest byte is `extra`
        index part    nothing if k = n, nor where n values without positions are shorter than k with them (but with
                      mean=senders, for which positions are needed)
        value part    fp32: k little-endian float32 (n of them in a dense payload), NaN as 0x7FC00000
                      fp16: as many IEEE half floats of v * 2^(14 - e); e + 127, at least 1, is `extra`, and 2^e
                      the power of two not above the largest finite magnitude: no unit is too small or too
                      large for half floats
                      mean: one float32
                      others: the payload that the compressor gives for the (k,) kept values

    `mean` (Fang et al., "RedSync", JPDC 2019): values of one sign travel as their mean, in steps with an
    odd number the positive ones, in the others the negative ones. A NaN or Inf
    anywhere makes the mean NaN, which makes every element NaN at the receiver.
    With the other values a kept NaN or Inf arrives as the coding lets it arrive: exactly in fp32 and fp16.
    Selections take NaN for the largest magnitude and Inf for the next, so that at least one arrives. What they do
    not keep is zero at the receiver, whatever it was, and stays in the memory where there is one. float64 is
    rounded to float32 first.
    """

    sparse: ClassVar[bool] = True

    values: str = field(_VALUES, default="fp32")
    values_options: dict[str, Any] = mapping("a mapping with options of the compressor that `values` names")
    indices: str = choice("auto", *positions.OPTIONS)
    mean: str = choice("all", "all", "senders")

    @property
    def averages(self) -> bool:  # type: ignore[override]
        """Whether the mean of an element is that over its senders."""
        return self.mean == "senders"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values_options and self.values in _NOT_CHAINED:
            raise InvalidParameter("values_options", self.values_options, f"empty with values={self.values}")
        try:
            chained = self.chained
        except InvalidParameter as error:
            raise error.prefix("values_options") from error
        if chained is not None and chained.needs_agreement(Key(0, 0, 0, 0)):
            words = f"options with which {chained.name} has nothing to agree on with other workers"
            raise InvalidParameter("values_options", self.values_options, words)

    @abstractmethod
    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        """Return the positions of the elements of `x` to keep: ascending int64, on the device of `x`.

        `x` is 1-D contiguous float32 with at least one element, and must not be changed. With a `side`, only elements
        above zero (1) or below (-1) will be sent, and all of `x` is finite: a method can select among these alone, or
        ignore `side`.
        """

    def bound_kept(self, n: int) -> int:
        """Return the maximum number of elements sent of n."""
        return n

    def count_kept(self, n: int) -> int | None:
        """Return how many of n elements `select` keeps, if that is the same for every x; else None."""
        return None

    @abstractmethod
    def selection_law(self, n: int) -> Law:
        """Return the law for tensors of n elements whose kept values are sent exactly."""

    def selection_law_of(self, shape: Sequence[int]) -> Law:
        """Return the same for tensors of `shape`."""
        return self.selection_law(count_elements(shape))

    @property
    def chained(self) -> Elementwise | None:
        """The compressor that encodes the kept values; None if `values` names no compressor."""
        method = None if self.values in _NOT_CHAINED else _find_chained(self.values)
        chained: Elementwise | None = from_mapping(method, self.values_options) if method else None
        return chained

    @property
    def smallest(self) -> float:  # type: ignore[override]
        """The size of elements below which the coding of values errs more than its law says."""
        return 0.0 if self.chained is None else self.chained.smallest

    def law(self, shape: Sequence[int]) -> Law:
        n = count_elements(shape)
        return self.law_of_values(self.selection_law_of(shape), n, self.bound_kept(n), self.count_kept(n))

    def law_of_values(self, law: Law, n: int, most: int, count: int | None) -> Law:
        """Return the law for n elements where `law` holds if kept values are sent exactly.

        At most `most` elements are kept, and always `count` if it is not None.
        """
        if self.values == "fp32" or n == 0:
            return law
        if self.values == "mean":  # a step can find nothing of its sign
            return Law()
        if self.values == "fp16":
            # Rounding costs 2^-11 of a value, or 2^-39 of the largest where it is below half float's normal
            # numbers: at most 2^-21 of the energy of the kept.
            return Law(delta=law.delta * (1 - _HALF_ERROR)) if law.delta else Law()
        assert self.chained is not None
        inner = self.chained.law((most,))
        # ||x||^2 - ||y||^2 of the kept y is dropped, and E ||C(y) - y||^2 <= (1 - d) ||y||^2 is added: what is left
        # of x is at most ||x||^2 - d ||y||^2. Unbiased codings have d = 1 - omega, which must be above zero.
        delta = max(inner.delta or 0.0, 0.0 if inner.omega is None else 1.0 - inner.omega)
        unbiased = law.unbiased and inner.unbiased
        if most == n == count:
            return inner
        if unbiased and law.omega is not None and inner.omega is not None:
            # E ||C(y) - y||^2 <= omega_C E ||y||^2 = omega_C (1 + omega) ||x||^2, and the errors are uncorrelated.
            return Law(unbiased=True, omega=law.omega + inner.omega * (1.0 + law.omega))
        return Law(unbiased=unbiased, delta=law.delta * delta if law.delta and delta > 0 else None)

    def payload_bound(self, shape: Sequence[int]) -> int:
        n = count_elements(shape)
        return self.bound_payload(n, self.bound_kept(n), self.count_kept(n))

    def bound_payload(self, n: int, most: int, least: int | None, blocks: Sequence[Blocks] = ()) -> int:
        """Return the maximum number of bytes of a payload for n elements; see `law_of_values` and `positions.bound`."""
        width = _PLAIN.get(self.values)
        least = least if self.values != "mean" else None
        index = 0 if least == n else positions.bound(self.indices, n, most, blocks)
        if width is None:
            return positions.HEADER + index + (4 if self.chained is None else self.chained.payload_bound((most,)))
        size = positions.HEADER + index + width * most
        dense = self.indices == "auto" and not self.averages
        return min(size, positions.HEADER + width * n) if dense else size

    def payload_size(self, shape: Sequence[int]) -> int | None:
        n = count_elements(shape)
        if self.values == "mean":  # the elements of one sign can be any number
            return None if n else positions.HEADER + 4
        return self.size_payload(n, self.count_kept(n) if n else 0)

    def size_payload(self, n: int, count: int | None, blocks: Sequence[Blocks] = ()) -> int | None:
        """Return the number of bytes of a payload for n elements, of which `count` are kept; None if it varies."""
        index = None if count is None else positions.size(self.indices, n, count, blocks)
        if count is None or index is None:
            return None
        values = self.size_values(count)
        return None if values is None else positions.HEADER + index + values

    def size_values(self, count: int) -> int | None:
        """Return the number of bytes of the values of `count` kept elements; None if it varies."""
        if self.chained is not None:
            return self.chained.payload_size((count,))
        return 4 if self.values == "mean" else _PLAIN[self.values] * count

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        flat = buffers.as_float32(x)
        if self.values == "mean":
            return self._compress_mean(flat, key, out)
        kept = self.select(flat, key) if len(flat) else _no_positions(flat)
        return self.pack(kept, flat.index_select(0, kept), len(flat), key, out)

    def pack(
        self,
        kept: torch.Tensor,
        values: torch.Tensor,
        n: int,
        key: Key,
        out: torch.Tensor | None = None,
        *,
        with_positions: bool = False,
        blocks: Sequence[Blocks] = (),
    ) -> torch.Tensor:
        """Return the payload of a tensor of n elements with `values` at the positions `kept` and zeros elsewhere.

        With `with_positions` or mean=senders, only codings are used from which `kept` can be told, even if sending all
        n values is shorter. With `blocks`, positions may be packed.
        """
        kernels = backend.load("sparse", values.device)
        width = _PLAIN.get(self.values)
        with_positions = with_positions or self.averages
        plan = positions.plan(kernels, kept, n, self.indices, None if with_positions else width, blocks)
        inner = self.chained
        values = torch.where(values.isnan(), torch.nan, values)
        if plan.is_dense and plan.count < n:
            values = torch.zeros(n, dtype=torch.float32, device=values.device).index_copy_(0, kept, values)
        start = positions.HEADER + plan.size
        length = len(values) * width if width else inner.payload_bound((len(values),)) if inner else 0
        payload = buffers.prepare(out, start + length, values.device)
        extra = 0
        if inner is not None:
            coded = inner.compress(values, _derive_chained_key(key), payload[start:])
            payload = payload[: start + len(coded)]
        elif self.values == "fp16":
            extra = half_floats.write(values, payload[start:])
        else:
            buffers.write_floats(values, payload[start:])
        begin(kernels, kept, plan, extra, payload, blocks)
        return buffers.deliver(payload, out)

    def _compress_mean(self, x: torch.Tensor, key: Key, out: torch.Tensor | None) -> torch.Tensor:
        kernels = backend.load("sparse", x.device)
        finite = bool(backend.load("selection", x.device).is_finite(x))
        kept, mean = _no_positions(x), 0.0 if finite else float("nan")
        if finite and len(x):
            side = 1 if key.step % 2 else -1
            kept = self.select(x, key, side)
            values = x.index_select(0, kept)
            kept = kept[values > 0 if side > 0 else values < 0]
        if len(kept):
            mean = backend.load("sums", x.device).moments(x.index_select(0, kept))[0] / len(kept)
        plan = positions.plan(kernels, kept, len(x), self.indices, None)
        payload = buffers.prepare(out, positions.HEADER + plan.size + 4, x.device)
        buffers.write_floats(torch.tensor([mean], dtype=torch.float32, device=x.device), payload[-4:])
        begin(kernels, kept, plan, 0, payload)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        kept, values = self.unpack_at(payload, out.shape, out.device, key)
        with buffers.accumulator(out) as total:
            _add_kept(kept, values, weight, total)

    def average(self, payloads: Sequence[torch.Tensor], out: torch.Tensor, key: Key) -> None:
        out.detach().zero_()
        with buffers.accumulator(out) as total:
            self.average_kept((self.unpack_at(payload, out.shape, out.device, key) for payload in payloads), total)

    def average_kept(
        self, contributions: Iterable[tuple[torch.Tensor | None, torch.Tensor]], total: torch.Tensor
    ) -> None:
        """Replace zeros (n,) float32 by the mean of each element over its senders; the sums are in the given order.

        Args:
            contributions: of each worker: positions and values, as from `unpack`.
        """
        counts = torch.zeros_like(total)
        for kept, values in contributions:
            _add_kept(kept, values, 1.0, total)
            _add_kept(kept, torch.ones((), device=total.device), 1.0, counts)
        total.div_(counts.clamp_(min=1.0))

    def find_sent(self, payload: torch.Tensor, count: int, key: Key) -> torch.Tensor | None:
        """Return the positions in `payload`, for a tensor of `count` elements; None if it has no positions.

        Raises:
            CorruptPayload: as in `unpack`.
        """
        return self.unpack(buffers.receive(payload, payload.device), count, key)[0]

    def unpack_at(
        self, payload: torch.Tensor, shape: Sequence[int], device: torch.device, key: Key
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Decode a payload of a tensor of `shape`, in whose memory positions are counted; else as `unpack`."""
        return self.unpack(buffers.receive(payload, device), count_elements(shape), key)

    def unpack(
        self, payload: torch.Tensor, n: int, key: Key, blocks: Sequence[Blocks] = ()
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Decode a payload; return the positions (None: all elements) and the values; a mean is a tensor without
        dimensions.

        Raises:
            CorruptPayload: `compress` cannot have written it for a tensor of n elements.
        """
        kernels = backend.load("sparse", payload.device)
        plan, kept, extra = positions.read(kernels, payload, n, blocks, self.size_values)
        rest = payload[positions.HEADER + plan.size :]
        count = n if plan.is_dense else plan.count
        inner, width = self.chained, _PLAIN.get(self.values)
        if extra and self.values != "fp16":
            raise CorruptPayload(f"the header's last byte is {extra}")
        if plan.is_dense and width is None and plan.count != n:
            raise CorruptPayload(f"values of all {n} elements, of which {plan.count} are kept")
        if inner is not None:
            return kept, inner.decompress(rest, torch.empty(count, device=payload.device), _derive_chained_key(key))
        if len(rest) != (count * width if width else 4):
            raise CorruptPayload(f"{len(rest)} bytes are not the values of {count} elements")
        if self.values == "fp16":
            return kept, half_floats.read(rest, extra)
        values = buffers.read_floats(rest)
        if width is None and bool(values.isinf()):
            raise CorruptPayload("the mean of the kept values is infinite")
        return kept, values if width else values[0]

    def kernel_modules(self) -> tuple[str, ...]:
        mean = ("sums",) if self.values == "mean" else ()
        return ("sparse", "selection", *mean, *(self.chained.kernel_modules() if self.chained is not None else ()))


@dataclasses.dataclass(frozen=True)
class RatioSparsifier(Sparsifier):
    """A sparsifier that keeps exactly or about k elements; k is `ratio` of their number by the rule `count` (see
    `counts`).
    """

    ratio: float = counts.ratio(0.001)
    count: str = counts.rule("ceil")

    def compute_k(self, n: int) -> int:
        """Return k, the number of elements to keep out of n."""
        return counts.count_kept(n, self.ratio, self.count)

    def count_kept(self, n: int) -> int | None:
        return n if self.compute_k(n) == n else None

    def selection_law(self, n: int) -> Law:
        # The largest is always kept, and has at least the mean square.
        return EXACT if self.count_kept(n) == n else Law(delta=1.0 / max(1, n))


def _derive_chained_key(key: Key) -> Key:
    """Return a key for the compressor of kept values, with other random numbers than those of the selection."""
    return dataclasses.replace(key, seed=splitmix64(key.seed ^ _CHAINED_DRAWS))


def _add_kept(kept: torch.Tensor | None, values: torch.Tensor, weight: float, total: torch.Tensor) -> None:
    """Add `weight` times the values at the positions `kept` (None: all) to `total`; a NaN for all makes all NaN."""
    if values.dim() == 0 and bool(values.isnan()):
        total += values
    elif kept is None:
        total += values * weight
    else:
        backend.load("sparse", total.device).add_at(kept, values.expand(len(kept)).contiguous(), weight, total)


def _no_positions(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.int64, device=x.device)


def begin(
    kernels: Any,
    kept: torch.Tensor,
    plan: positions.Plan,
    extra: int,
    payload: torch.Tensor,
    blocks: Sequence[Blocks] = (),
) -> None:
    """Write the header and the positions of a payload."""
    header, data = payload[: positions.HEADER], plan.header(extra)
    if buffers.is_aligned(header, positions.HEADER):  # as a number: a copy from main memory would wait for a GPU
        header.view(torch.int64).fill_(int.from_bytes(data, "little", signed=True))
    else:
        header.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    positions.write(kernels, kept, plan, payload[positions.HEADER : positions.HEADER + plan.size], blocks)
