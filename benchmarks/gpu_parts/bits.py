"""The Triton kernels against the reference in torch, to the bit, on large and unaligned tensors on the GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.gpu_parts.methods import FLAT, list_methods
from benchmarks.gpu_parts.results import Context
from compressors.base import Compressor, Cooperative
from compressors.commands import single_worker
from compressors.commands.method_specs import parse
from compressors.commands.sample_tensors import GRADIENT
from compressors.kernels import backend
from compressors.random_key import Key
from gradsweep.errors import get_first_line

STEPS = 2
PATHOLOGICAL = ("thresholdv",)
"""With its default it sends every element, for a second a step and 14 GB."""


def run(context: Context) -> None:
    """Compare payloads and decoded means of every method that has a Triton kernel."""
    size = 3_000 if context.dry else FLAT
    for offset in (0, 1):
        generator = torch.Generator().manual_seed(offset)
        room = torch.randn(size + 1, generator=generator).mul_(GRADIENT).to(context.device)
        x = room[offset : offset + size]
        names = [name for name in list_methods(context) if name not in PATHOLOGICAL]
        for place, name in enumerate(names):
            if not context.has_time(names[place:]):
                return
            case = f"{name}, offset {offset}"
            try:
                compressor = parse(name)
                if isinstance(compressor, Cooperative):
                    continue
                shape = (size // 50, 50) if compressor.needs_matrix else (size,)
                verdict = compare(compressor, x.view(shape))
            except Exception as error:  # of any method: the others are compared all the same
                said = f"failed: {type(error).__name__}: {get_first_line(error)}"
                context.write(case, said, equal=False, said=said)
                continue
            if verdict is not None:
                context.write(case, verdict or "equal", equal=not verdict, said=verdict or "equal", offset=offset)


def compare(compressor: Compressor, x: torch.Tensor, reference: bool = True) -> str | None:
    """Return what differs between the kernels of this device and the reference; None if there are none but those.

    Args:
        reference: without it, only the kernels of the device are run.
    """
    with backend.record_used() as used:
        ours = _take_steps(compressor, x, lambda: single_worker.copy_without_state(compressor))
    if set(used.values()) <= {"torch"} or not reference:
        return None
    with backend.use("torch"):
        theirs = _take_steps(compressor, x, lambda: single_worker.copy_without_state(compressor))
    different = [
        f"{what} of step {step}: {count_different(mine, other)}"
        for step, (ours_of_step, theirs_of_step) in enumerate(zip(ours, theirs, strict=True), 1)
        for what, mine, other in zip(("payload", "mean"), ours_of_step, theirs_of_step, strict=True)
        if count_different(mine, other)
    ]
    return "; ".join(different)


def _take_steps(
    compressor: Compressor, x: torch.Tensor, build: Callable[[], Compressor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the payload and the mean of each step; the mean lies at an offset of one element, too."""
    one, steps = build(), []
    for step in range(1, STEPS + 1):
        key = Key(0, 0, step, 0)
        payload = single_worker.encode(one, x, key).clone()
        mean = torch.full((x.numel() + 1,), 0.125, device=x.device)[1:].view(x.shape)
        one.decompress_add(payload, mean, key, 0.5)
        steps.append((payload, mean))
    return steps


def count_different(mine: torch.Tensor, other: torch.Tensor) -> str:
    """Return how many bytes or elements differ, in words; an empty text if none does."""
    if mine.shape != other.shape:
        return f"{tuple(mine.shape)} instead of {tuple(other.shape)}"
    if mine.dtype == torch.float32:
        mine, other = mine.contiguous().view(torch.int32), other.contiguous().view(torch.int32)
    count = int((mine != other).sum())
    return f"{count} of {mine.numel()} differ" if count else ""
