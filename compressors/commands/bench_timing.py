"""Time compressors so that other load on the machine does not bias them: interleaved, and as ratios to a memory copy.

Shared by `python -m compressors bench` and `benchmarks/compressors.py`.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from compressors.base import Compressor, Cooperative, Reduction
from compressors.commands import single_worker
from compressors.commands.sample_tensors import GRADIENT
from compressors.kernels import backend
from compressors.random_key import Key
from gradsweep.hardware import read_processor_name
from gradsweep.text import plural

Operation = Callable[[], object]

_RATE = 0.1  # of a plain SGD that has moved the parameters by the last gradient
_ALIGNED = 4  # bytes: where payloads begin in a message


@dataclasses.dataclass(frozen=True)
class Times:
    """The seconds of each counted repetition of an operation, and of a memory copy in the same repetition."""

    seconds: list[float]
    copy: list[float]

    @property
    def median(self) -> float:
        """The median over the repetitions, in seconds."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """The median over the repetitions of the operation's time divided by that of the copy."""
        return self.compare_with(self.copy)

    def compare_with(self, others: Sequence[float]) -> float:
        """Return the median over the repetitions of this operation's time divided by that of another operation."""
        return statistics.median(one / other for one, other in zip(self.seconds, others, strict=True))

    def __add__(self, other: Times) -> Times:
        return Times([one + more for one, more in zip(self.seconds, other.seconds, strict=True)], self.copy)


def time_interleaved(
    operations: Mapping[str, Operation], copy: Operation, repeats: int, device: torch.device | str = "cpu"
) -> dict[str, Times]:
    """Time the copy and all operations once in each repetition, so that other programs slow all of them alike.

    One repetition before these is not counted.
    """
    copies: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in operations}
    for repeat in range(repeats + 1):
        taken = _time(copy, device)
        if repeat:
            copies.append(taken)
        for name, operation in operations.items():
            taken = _time(operation, device)
            if repeat:
                seconds[name].append(taken)
    return {name: Times(taken, copies) for name, taken in seconds.items()} | {"copy": Times(copies, copies)}


def _time(operation: Operation, device: torch.device | str) -> float:
    _wait(device)
    start = time.perf_counter()
    operation()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def resnet18_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of the convolutions and the linear layer of ResNet-18 for 32 x 32 images: 11.2 M elements."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (10, 512)]
    before = 64
    for width in (64, 128, 256, 512):
        shapes += [(width, before, 3, 3)] + 3 * [(width, width, 3, 3)]
        if width != before:
            shapes.append((width, before, 1, 1))
        before = width
    return shapes


class Gradients:
    """The units of a model's gradient, filled with normal noise of realistic size, and the buffers to process them.

    Two gradients alternate, so that a method that compares steps sees a change. All measured methods share the buffers
    of mean and message, one after the other.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], device: torch.device | str = "cpu") -> None:
        self.shapes, self.device = list(shapes), device
        self.elements = sum(math.prod(shape) for shape in shapes)
        generator = torch.Generator().manual_seed(0)
        self.flat = [(torch.randn(self.elements, generator=generator) * GRADIENT).to(device) for _ in range(2)]
        self.steps = [self._split_views(flat) for flat in self.flat]
        self.mean = torch.zeros(self.elements, device=device)
        self.means = self._split_views(self.mean)
        self.squared = [[float(x.double().square().sum()) for x in units] for units in self.steps]
        self._message = torch.empty(0, dtype=torch.uint8, device=device)

    @property
    def bytes(self) -> int:
        """The bytes of the gradient as float32."""
        return 4 * self.elements

    def make_messages(self, compressor: Compressor) -> list[torch.Tensor]:
        """Return an empty buffer for the payload of every unit."""
        bounds = [-(-compressor.payload_bound(shape) // _ALIGNED) * _ALIGNED for shape in self.shapes]
        if len(self._message) < sum(bounds):
            self._message = torch.zeros(sum(bounds), dtype=torch.uint8, device=self.device)
        return list(self._message[: sum(bounds)].split(bounds))

    def copy(self) -> None:
        """Copy one gradient over the mean; other times are given relative to this copy."""
        self.mean.copy_(self.flat[0])

    def _split_views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = flat.split([math.prod(shape) for shape in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]


class Worker:
    """One worker that goes through the steps of an exchange with one compressor."""

    def __init__(self, compressor: Compressor, gradients: Gradients) -> None:
        self.compressor, self.gradients = single_worker.copy_without_state(compressor), gradients
        self.step = 0
        self.payloads: list[torch.Tensor] = []
        self.reductions: list[Reduction] = []
        with backend.record_used() as used:
            self.error = self._measure_error()
        self.kernels = sorted(set(used.values())) or ["torch"]

    def encode(self) -> None:
        """Encode all units of the next gradient into the message."""
        self.step += 1
        turn = self.step % 2
        batch = [(x, Key(0, 0, self.step, unit)) for unit, x in enumerate(self.gradients.steps[turn])]
        if self.compressor.needs_movement and self.step > 1:
            for unit, squared in enumerate(self.gradients.squared[turn]):
                self.compressor.observe_movement(unit, _RATE**2 * squared, _RATE)
        if isinstance(self.compressor, Cooperative):
            self.reductions = self.compressor.reduce_alone(batch)
            self.payloads = [one.mean for one in self.reductions]
            return
        messages = self.gradients.make_messages(self.compressor)
        self.payloads = [
            single_worker.encode(self.compressor, x, key, message)
            for (x, key), message in zip(batch, messages, strict=True)
        ]

    def decode(self) -> None:
        """Decode each payload and add it to the mean, once for every worker."""
        units = [(mean, Key(0, 0, self.step, unit)) for unit, mean in enumerate(self.gradients.means)]
        if isinstance(self.compressor, Cooperative):
            self.compressor.decompress_together(self.reductions, units)
            return
        for payload, (mean, key) in zip(self.payloads, units, strict=True):
            self.compressor.decompress_add(payload, mean, key)

    def decode_and_finish(self) -> None:
        """Decode the payloads of a single worker and finish the mean."""
        self.decode()
        for unit, mean in enumerate(self.gradients.means):
            self.compressor.finish(mean, Key(0, 0, self.step, unit), 1)

    @property
    def payload_bytes(self) -> int:
        """The bytes of the last step's payloads."""
        return sum(len(payload) for payload in self.payloads)

    def _measure_error(self) -> float:
        """Return ||x - Q(x)|| / ||x|| of the first step; the step also loads every kernel."""
        self.encode()
        self.gradients.mean.zero_()
        self.decode()
        x = self.gradients.flat[self.step % 2]
        error = float(torch.linalg.vector_norm(self.gradients.mean - x) / torch.linalg.vector_norm(x))
        self.gradients.mean.zero_()
        return error


def describe_machine(threads: int, device: torch.device | str = "cpu") -> str:
    """Return a line that describes the machine: processor, threads and versions."""
    what = (
        torch.cuda.get_device_name(device)
        if torch.device(device).type == "cuda"
        else read_processor_name() or platform.machine()
    )
    return f"{what}, {plural(threads, 'thread')}, Python {platform.python_version()}, torch {torch.__version__}"
