"""The exchange of a model's gradient by one worker: all its layers are encoded and decoded as in a training step."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from typing import Any

import torch
from torch import nn

from benchmarks.gpu_parts import hooks, timing
from benchmarks.gpu_parts.methods import Shapes, list_gpt2, list_methods, list_resnet50
from benchmarks.gpu_parts.results import Context
from benchmarks.gpu_parts.steps import RESNET50, Alone
from compressors.commands.method_specs import parse
from compressors.commands.sample_tensors import GRADIENT
from compressors.memories import NoMemory
from compressors.policy.policy import Selector
from gradsweep.errors import get_first_line
from trainers.devices import choose
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Flat
from trainers.gradients.units import cut_units


def run(context: Context) -> None:
    """Measure the exchange of ResNet-50's gradient with every method, with --full that of GPT-2's, too."""
    with hooks.connect_alone(context.device):
        _run(context, "", list_resnet50(dry=context.dry))
        if context.full:
            _run(context, "gpt2: ", list_gpt2(dry=context.dry))


def _run(context: Context, prefix: str, shapes: Shapes) -> None:
    names = list_methods(context)
    for place, name in enumerate(names):
        if not context.has_time(names[place:]):
            return
        case = f"{prefix}{name}"
        try:
            values = measure(name, shapes, context.device)
        except Exception as error:  # of any method: the others are measured all the same
            context.write(case, f"failed: {type(error).__name__}: {get_first_line(error)}", error=repr(error)[:300])
        else:
            phases = " ".join(f"{phase} {taken:.2f}" for phase, taken in values["phases_ms"].items())
            counts = f"launches {values['launches']}, waits {values['waits']}, " if "launches" in values else ""
            context.write(case, f"{values['copies']:7.2f} copies, {values['ms']:.2f} ms, {counts}{phases}", **values)


def measure(name: str, shapes: Shapes, device: str) -> dict[str, Any]:
    """Measure a step of the exchange without the copy by which it gets its gradient."""
    compressor = parse(name)
    config = RESNET50.configure(device, compressor, compiled=False)
    config = dataclasses.replace(config, memory=NoMemory())
    flat = Flat(nn.ParameterList(nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes))
    gradients = [torch.randn(len(flat), device=device) * GRADIENT for _ in range(2)]
    units, comm = cut_units(config, flat), Alone()
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    selector = Selector(config.policy, config.compressor, described, 1)
    selector.warm_up(flat.gradients.device)
    watch = choose.create_stopwatch(torch.device(device))
    exchange = build_exchange(config.exchange, comm, units, selector, config.memory, 0, watch)  # type: ignore[arg-type]
    numbers = itertools.count(1)

    def step() -> None:
        number = next(numbers)
        flat.gradients.copy_(gradients[number % 2])
        if compressor.needs_movement:
            flat.values.add_(gradients[0], alpha=1e-3 if number % 2 else -1e-3)
        watch.take()
        exchange.begin(number, lr=1e-3)
        for unit in reversed(units):
            exchange.submit(unit)
        exchange.finish()

    def copy() -> None:
        flat.gradients.copy_(gradients[0])

    cost = timing.measure(step, copy, device)
    values = timing.describe_cost(cost, timing.profile(step, device))
    peak = timing.measure_peak(step, device)
    phases: dict[str, list[float]] = {}
    for _ in range(5):
        step()
        watch.measure_step()
        for phase, seconds in watch.seconds.items():
            phases.setdefault(phase, []).append(1e3 * seconds)
    values |= {"copies": cost.copies - 1, "units": len(units), "elements": len(flat)}
    values["phases_ms"] = {phase: statistics.median(taken) for phase, taken in phases.items()}
    values["peak"] = None if peak is None else peak / flat.gradients.nbytes
    return values
