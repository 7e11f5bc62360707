"""Training steps of one worker on synthetic data: the model alone, and the trainer's step with compressors.

The trainer's step is that of exchange.transport=torch with a process group of one: gradients are encoded, pass through
NCCL, and are decoded, but nothing leaves the GPU.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks.gpu_parts import hooks, timing
from benchmarks.gpu_parts.results import Context, compute_spread
from compressors.base import Compressor
from compressors.commands.method_specs import parse
from gradsweep.errors import get_first_line
from trainers import models
from trainers.advise.mirror import Mirror
from trainers.config.run_config import RunConfig, build_member
from trainers.data.feeds import Batch
from trainers.devices import choose
from trainers.devices.stopwatch import StepTimes
from trainers.optimizers import schedules
from trainers.optimizers.update import hide_package
from trainers.options.sections import Batch as BatchOptions
from trainers.replica.replica import Replica
from trainers.rules.compressors import choose_exchange
from trainers.training.assembly import StepOutcome, Worker, build_algorithm

METHODS = ("none", "fp16", "powersgd,rank=2", "topk,ratio=0.01", "qsgd", "sign", "demo")
_LR = 1e-3


@dataclasses.dataclass(frozen=True)
class Work:
    """A model with its data, and how it is trained.

    Attributes:
        epoch_steps: of the 24 epochs whose time is a target; 0: there is none.
    """

    name: str
    model: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    batch: int
    optimizer: dict[str, Any]
    epoch_steps: int = 0

    @property
    def is_text(self) -> bool:
        return len(self.shape) == 1

    def draw_batch(self, device: str, workers: int = 1) -> Batch:
        """Return a random batch of one of so many workers that lies on `device`."""
        generator = torch.Generator().manual_seed(0)
        if self.is_text:
            tokens = torch.randint(self.classes, (self.batch, self.shape[0] + 1), generator=generator)
            inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        else:
            inputs = torch.randn(self.batch, *self.shape, generator=generator)
            labels = torch.randint(self.classes, (self.batch,), generator=generator)
        return Batch(inputs.to(device), labels.to(device), workers * labels.numel())

    def configure(
        self, device: str, compressor: Compressor, compiled: bool, workers: int = 1, transport: str = "torch"
    ) -> RunConfig:
        """Return the config of a run, of one worker unless another number is given."""
        memory = {"name": "residual" if compressor.needs_memory else "none"}
        options = dataclasses.asdict(compressor) | {"name": compressor.name}
        names: dict[str, Any] = {
            "trainer": "sgd",
            "dataset": "pydoc" if self.is_text else "cifar10",
            **{"task": "auto", "algorithm": "sgd", "topology": "none", "schedule": "constant", "network": "none"},
            **{"model": self.model, "optimizer": self.optimizer, "compressor": options, "memory": memory},
            "exchange": {"name": choose_exchange([compressor]), "transport": transport},
        }
        members = {
            group: build_member(group, {"name": value} if isinstance(value, str) else value)
            for group, value in names.items()
        }
        return RunConfig(
            workers=workers,
            device=device,
            precision="bf16",
            channels_last=not self.is_text,
            compile=compiled,
            batch=BatchOptions(size=self.batch),
            **members,
        )


_SGD = {"name": "sgd"}
RESNET9 = Work("resnet9", {"name": "resnet9"}, (3, 32, 32), 10, 512, _SGD, 24 * 98)
_TINY: dict[str, Any] = {"model": {"name": "mlp"}, "shape": (3, 8, 8), "classes": 10, "batch": 2}
TINY_RESNET9 = dataclasses.replace(RESNET9, **_TINY)
RESNET50 = Work("resnet50", {"name": "resnet50"}, (3, 56, 56), 1000, 256, _SGD)
_GPT2 = {"name": "gpt", "layers": 12, "heads": 12, "width": 768, "bias": True}
_ADAMW = {"name": "adam", "decoupled": True, "lr": 1e-3, "beta2": 0.95, "weight_decay": 0.1, "decay_1d": False}
GPT2 = Work("gpt2", _GPT2, (1024,), 50_304, 16, _ADAMW)


def run_resnet9(context: Context) -> None:
    _run(context, RESNET9, TINY_RESNET9)


def compile_resnet9(device: str) -> None:
    """Take steps of ResNet-9 with torch.compile."""
    with hooks.connect_alone(device):
        config = RESNET9.configure(device, parse("none"), compiled=True)
        Trainer(RESNET9, config, Alone(), torch.device(device)).take_steps(2)


def run_resnet50(context: Context) -> None:
    """Measure ResNet-50: torchvision's on 224 x 224 pixels, or ours, whose groups see the same shapes."""
    work = RESNET50
    try:
        import torchvision  # noqa: F401

        model = {"name": "torchvision", "arch": "resnet50"}
        work = dataclasses.replace(work, model=model, shape=(3, 224, 224))
    except (ImportError, RuntimeError):
        pass
    _run(context, work, dataclasses.replace(RESNET50, **_TINY))


def run_gpt2(context: Context) -> None:
    small = {"name": "gpt", "layers": 1, "heads": 2, "width": 16}
    _run(context, GPT2, dataclasses.replace(GPT2, model=small, shape=(8,), classes=50, batch=2))


_BARE = "model in bare torch"


class Case(NamedTuple):
    """A row of a table of steps: a compressor or _BARE, with torch.compile or not, and where the batch lies."""

    name: str
    compiled: bool = False
    batch_on_device: bool = False

    @property
    def label(self) -> str:
        extras = ", compiled" * self.compiled + ", batch on the GPU" * self.batch_on_device
        return f"{self.name}{extras}"


def _run(context: Context, work: Work, tiny: Work) -> None:
    """Measure all methods without torch.compile, then with it `none` and the model alone; --full: the others, too."""
    names = METHODS[:5:2] if context.dry else METHODS
    cases = [Case(_BARE), *map(Case, names), Case("none", batch_on_device=True)]
    if not context.dry or context.full:
        cases[2:2] = [Case("none", compiled=True)]
        cases += [Case(_BARE, compiled=True)]
        cases += [Case(name, compiled=True) for name in METHODS[1:] if context.full]
    with hooks.connect_alone(context.device):
        for place, case in enumerate(cases):
            if not context.has_time(cases[place:]):
                return
            _measure(context, tiny if context.dry else work, case)


def _measure(context: Context, work: Work, case: Case) -> None:
    try:
        values = (measure_model if case.name == _BARE else measure_method)(context, work, case)
    except Exception as error:  # one that fails costs only its own line
        text = f"failed: {type(error).__name__}: {get_first_line(error)}"
        context.write(case.label, text, error=repr(error)[:300])
    else:
        context.write(case.label, describe(values), **values)
    if case.compiled:
        torch.compiler.reset()
    if context.device == "cuda":
        torch.cuda.empty_cache()


def measure_model(context: Context, work: Work, case: Case) -> dict[str, Any]:
    """Measure forward, backward and a fused SGD in bare torch, with the batch on the device and no wait in a step."""
    device = context.device
    torch.manual_seed(0)
    member = build_member("model", work.model)
    model = models.build(member, work.shape, work.classes).to(device)
    if not work.is_text:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, _LR, momentum=0.9, fused=True)
    called: Callable[..., Any] = torch.compile(model) if case.compiled else model
    batch = work.draw_batch(device)
    inputs = batch.inputs if work.is_text else batch.inputs.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = called(inputs)
        F.cross_entropy(outputs.float().flatten(0, -2), batch.labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return _time_steps(context, work, lambda count: _repeat(step, count), step)


def measure_method(context: Context, work: Work, case: Case) -> dict[str, Any]:
    """Measure the trainer's step, as trainers/training/loop.py takes it, with the batch in main memory as in a run."""
    config = work.configure(context.device, parse(case.name), case.compiled)
    trainer = Trainer(work, config, Alone(), torch.device(context.device))
    if case.batch_on_device:
        trainer.batch = work.draw_batch(context.device)
    values = _time_steps(context, work, trainer.take_steps, trainer.take_step)
    values["phases_ms"] = trainer.list_phases()
    values["waits_of"] = find_waits(trainer.take_step, context.device)
    trainer.algorithm.close()
    return values


class Trainer:
    """One worker that takes steps on one batch."""

    def __init__(self, work: Work, config: RunConfig, comm: Any, device: torch.device) -> None:
        self.watch = choose.create_stopwatch(device)
        self.replica = Replica(config, work.shape, work.classes, comm, device)
        with hide_package("scipy"):
            self.algorithm = build_algorithm(config, comm, self.replica, self.watch)
        schedule = schedules.build(config, config.compute_epochs(50_000))
        no_feed: Any = None
        self._worker = Worker(config, device, no_feed, 1, self.replica, self.watch, self.algorithm, schedule)
        self.batch = work.draw_batch("cpu", comm.size)
        self._numbers = itertools.count(1)
        self._phases: dict[str, list[float]] = {}

    def take_step(self) -> StepOutcome:
        return self._worker.take_step(next(self._numbers), 1, self.batch, _LR, measure=False)

    def take_steps(self, count: int) -> None:
        """Take steps, and read the figures of each when the next one is under way, as loop and recorder do."""
        unread: list[tuple[Callable[[], object], Callable[[], StepTimes]]] = []
        for _ in self.watch.time_steps("data", itertools.repeat(self.batch, count)):
            unread.append((self.take_step().shares.read, self.watch.end_step()))
            if len(unread) > 1:
                self._read(*unread.pop(0))
        self._read(*unread.pop())

    def _read(self, read_shares: Callable[[], object], read_times: Callable[[], StepTimes]) -> None:
        for phase, seconds in read_times().phases.items():
            self._phases.setdefault(phase, []).append(seconds)
        read_shares()

    def list_phases(self) -> dict[str, float]:
        """Return the median milliseconds of each phase."""
        return {phase: 1e3 * statistics.median(seconds) for phase, seconds in self._phases.items()}


def _repeat(step: Callable[[], None], count: int) -> None:
    for _ in range(count):
        step()


def _time_steps(
    context: Context, work: Work, take_steps: Callable[[int], None], step: Callable[[], object]
) -> dict[str, Any]:
    """Return the time of a step: the median over rows of steps after a few that are not counted."""
    device = context.device
    began = time.perf_counter()
    take_steps(1)
    timing.wait(device)
    first = time.perf_counter() - began
    take_steps(1 if context.dry else 3)
    once = timing.time_once(lambda: take_steps(1), device)
    peak = timing.measure_peak(step, device)
    total = work.epoch_steps if context.full and work.epoch_steps else 200 if work.epoch_steps else 30
    seconds = max(0.5, min(2.0, context.seconds_left / 10))
    count = 1 if context.dry else max(1, min(total, int(seconds / once)) // 5)
    rows = [timing.time_once(lambda: take_steps(count), device) / count for _ in range(5)]
    profiled = timing.profile(step, device)
    values: dict[str, Any] = {
        "step_ms": 1e3 * statistics.median(rows),
        "spread": compute_spread(rows),
        "first_s": first,
        "steps": 5 * count,
        "samples_per_s": work.batch / statistics.median(rows),
    }
    if work.epoch_steps:
        values["all_epochs_s"] = work.epoch_steps * statistics.median(rows)
    if profiled is not None:
        values |= {"busy_ms": 1e3 * profiled.busy_s, "launches": profiled.launches, "waits": profiled.waits}
        values["top"] = [(name, number, 1e3 * taken) for name, number, taken in profiled.top]
        values["peak_mb"] = (peak or 0) / 1e6
    return values


def find_waits(step: Callable[[], object], device: str) -> dict[str, int]:
    """Return the lines of code at which the host waits for the GPU in a step, by torch's warnings."""
    if device != "cuda":
        return {}
    import collections
    import warnings

    found: collections.Counter[str] = collections.Counter()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "synchroniz" in str(warning.message):
            found["/".join(warning.filename.split("/")[-2:]) + f":{warning.lineno}"] += 1
    return dict(found.most_common(12))


class Alone(Mirror):
    """The communicator of a single worker, without MPI."""

    def __init__(self) -> None:
        super().__init__(1)

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def bcast(self, value: Any) -> Any:
        return value

    def Barrier(self) -> None:
        return None


def describe(values: dict[str, Any]) -> str:
    """Return a line on a step."""
    return ", ".join(_list_words(values))


def _list_words(values: dict[str, Any]) -> Iterator[str]:
    yield f"{values['step_ms']:8.2f} ms a step"
    yield f"{values['samples_per_s']:.0f} samples/s"
    if "busy_ms" in values:
        yield f"GPU busy {values['busy_ms']:.2f} ms"
        yield f"launches {values['launches']}, waits {values['waits']}"
        yield f"peak {values['peak_mb']:.0f} MB"
    if "all_epochs_s" in values:
        yield f"24 epochs {values['all_epochs_s']:.1f} s"
    if "phases_ms" in values:
        yield " ".join(f"{phase} {taken:.2f}" for phase, taken in values["phases_ms"].items())
    yield f"first {values['first_s']:.1f} s"
    if values.get("waits_of"):
        yield " ".join(f"{place} x{count}" for place, count in values["waits_of"].items())
