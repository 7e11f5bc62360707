"""Encode and decode of every method against a device copy, the torch reference, and torch's own hooks."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import compressors
from benchmarks.gpu_parts import hooks, timing
from benchmarks.gpu_parts.results import Context
from compressors import flags
from compressors.base import Compressor
from compressors.commands.bench_timing import Gradients, Worker
from compressors.commands.method_specs import parse
from compressors.kernels import backend
from compressors.random_key import Key
from gradsweep.errors import get_first_line

FLAT = 25_600_000
Shapes = list[tuple[int, ...]]

WITHIN_2 = ("sign", "sign_norm", "signum", "int8", "fp8", "randomk,ratio=0.01")
WITHIN_4 = ("qsgd", "terngrad", "topk,ratio=0.01", "dgc", "onebit", "powersgd,rank=2")
FIRST = (
    "none",
    "fp16",
    *("sign", "int8", "qsgd", "topk,ratio=0.01", "terngrad", "fp8", "randomk,ratio=0.01", "dgc", "powersgd,rank=2"),
    *("sign_norm", "onebit", "natural", "signum", "topk,ratio=0.01,indices=int32"),
)
LAST = ("atomo", "dion", "chunk_topk", "demo")
"""Methods with many launches or kernels for a model of many shapes."""
SLOW = ("svd", "truncated_svd")
"""Methods whose arithmetic is done on the CPU, for seconds: only measured by --full."""


def run(context: Context) -> None:
    """Measure every method at 25.6 M elements: as one unit, or where it is for matrices as ResNet-50's layers."""
    flat: Shapes = [(5_000,)] if context.dry else [(FLAT,)]
    _measure_all(context, list_methods(context), {"": flat, "layers": list_resnet50(dry=context.dry)})


def run_hooks(context: Context) -> None:
    """Measure torch's own hooks on the same gradients, in a group of this process alone."""
    layers = list_resnet50(dry=context.dry)
    with hooks.connect_alone(context.device):
        for name, (operation, copy) in hooks.build(layers, context.device).items():
            cost = timing.measure(operation, copy, context.device)
            values = timing.describe_cost(cost, timing.profile(operation, context.device))
            context.write(name, f"{cost.copies:.2f} copies, host {values['host_ms']:.2f} ms", **values)


def run_large(context: Context) -> None:
    """Measure the methods that the targets name at the 124 M elements of GPT-2; with --full all of them."""
    names = list_methods(context)
    if not context.full and not context.dry:
        names = list(dict.fromkeys(["none", *WITHIN_2, *WITHIN_4]))
    shapes = list_gpt2(dry=context.dry)
    flat: Shapes = [(sum(math.prod(shape) for shape in shapes),)]
    _measure_all(context, names, {"": flat, "layers": shapes}, eager=context.full)


def list_methods(context: Context) -> list[str]:
    """Return all methods with their defaults, the most used ones first."""
    if context.dry and not context.full:
        return ["none", "qsgd", "topk,ratio=0.01", "powersgd,rank=2"]
    first = {parse(name) for name in FIRST}
    known = [name for name in compressors.registry() if name not in SLOW or context.full]
    return [*FIRST, *(name for name in known if name not in LAST and parse(name) not in first), *LAST]


def list_resnet50(classes: int = 1000, dry: bool = False) -> Shapes:
    """Return the shapes of the 161 parameters of ResNet-50 (He et al., 2016), 25.6 M elements; dry: of its first 7."""
    shapes: Shapes = [*_list_convolution(3, 64, 7)]
    fan_in = 64
    for width, blocks in zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True):
        for block in range(blocks):
            shapes += [*_list_convolution(fan_in, width, 1), *_list_convolution(width, width, 3)]
            shapes += _list_convolution(width, 4 * width, 1)
            if block == 0:
                shapes += _list_convolution(fan_in, 4 * width, 1)
            fan_in = 4 * width
    return shapes[:7] if dry else [*shapes, (classes, fan_in), (classes,)]


def _list_convolution(fan_in: int, fan_out: int, kernel: int) -> Shapes:
    return [(fan_out, fan_in, kernel, kernel), (fan_out,), (fan_out,)]


def list_gpt2(
    words: int = 50_257, width: int = 768, layers: int = 12, context: int = 1024, dry: bool = False
) -> Shapes:
    """Return the shapes of the parameters of GPT-2 with 124 M elements."""
    if dry:
        words, width, layers, context = 40, 8, 1, 16
    block: Shapes = [(width,), (3 * width, width), (width, width), (width,), (4 * width, width), (width, 4 * width)]
    return [(words, width), (context, width), *layers * block, (width,)]


def _measure_all(context: Context, names: Sequence[str], gradients: dict[str, Shapes], eager: bool = True) -> None:
    rooms: dict[str, Gradients] = {}
    for place, name in enumerate(names):
        if not context.has_time(names[place:]):
            return
        try:
            compressor = parse(name)
            kind = "layers" if compressor.needs_matrix or "" not in gradients else ""
            if kind not in rooms:
                rooms[kind] = Gradients(gradients[kind], context.device)
            _measure(context, name, compressor, rooms[kind], eager)
        except Exception as error:  # of any method: the others are measured all the same
            context.write(name, f"failed: {type(error).__name__}: {get_first_line(error)}", error=repr(error)[:300])


def _measure(context: Context, name: str, compressor: Compressor, room: Gradients, eager: bool) -> None:
    device = context.device
    worker = Worker(compressor, room)
    cost = {"encode": _measure_part(worker.encode, worker.encode, room)}
    cost["decode"] = _measure_part(
        functools.partial(_decode, worker, flags.unread), functools.partial(_decode, worker, flags.read_together), room
    )
    copies = sum(one["copies"] for one in cost.values())
    values: dict[str, Any] = {**cost, "copies": copies, "spread": max(one["spread"] for one in cost.values())}
    values["asked"] = 2 if name in WITHIN_2 else 4 if name in WITHIN_4 else None
    values |= {"bits": 8 * worker.payload_bytes / room.elements, "error_of_method": worker.error}
    values |= {"kernels": "+".join(worker.kernels), "units": len(room.shapes), "elements": room.elements}
    if type(compressor).finish is not Compressor.finish:
        values["finish"] = timing.measure(lambda: _finish(worker), room.copy, device, 3).copies
    if eager and "triton" in worker.kernels and context.seconds_left > 0:
        values["torch"] = _measure_torch(compressor, room, device)
    context.write(name, _describe(values), **values)


def _measure_part(operation: timing.Operation, in_step: timing.Operation, room: Gradients) -> dict[str, Any]:
    """Measure encoding or decoding; launches and waits are those of `in_step`."""
    device = str(room.device)
    profiled = timing.profile(in_step, device)
    launches = 1 if profiled is None else profiled.launches
    return {
        **timing.describe_cost(timing.measure(operation, room.copy, device, launches=launches), profiled),
        "peak": _divide(timing.measure_peak(operation, device), room.bytes),
    }


def _decode(worker: Worker, reading: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """Decode without reading flags, or with one wait for all, as at the end of a step."""
    with reading():
        worker.decode()


def _measure_torch(compressor: Compressor, room: Gradients, device: str) -> float:
    """Return the copies of the reference in torch, which runs on the same device."""
    with backend.use("torch"):
        worker = Worker(compressor, room)
        return sum(timing.measure(one, room.copy, device, 1).copies for one in (worker.encode, worker.decode))


def _finish(worker: Worker) -> None:
    for unit, mean in enumerate(worker.gradients.means):
        worker.compressor.finish(mean, Key(0, 0, worker.step, unit), 1)


def _divide(count: int | None, by: int) -> float | None:
    return None if count is None else count / by


def _describe(values: dict[str, Any]) -> str:
    encode, decode = values["encode"], values["decode"]
    parts = [f"{values['copies']:7.2f} copies ({encode['copies']:.2f} + {decode['copies']:.2f})"]
    if "launches" in encode:
        parts.append(f"busy {encode['busy']:.2f} + {decode['busy']:.2f}")
        parts.append(f"launches {encode['launches']} + {decode['launches']}")
        parts.append(f"waits {encode['waits']} + {decode['waits']}")
    parts.append(f"host {encode['host_ms']:.2f} + {decode['host_ms']:.2f} ms")
    if "finish" in values:
        parts.append(f"finish {values['finish']:.2f}")
    if "torch" in values:
        parts.append(f"torch {values['torch']:.1f}")
    if encode.get("peak") is not None:
        parts.append(f"peak {encode['peak']:.2f} + {decode['peak']:.2f}")
    if values["asked"]:
        parts.append(f"asked {values['asked']}{': missed' if values['copies'] > values['asked'] else ''}")
    return ", ".join([*parts, values["kernels"]])
