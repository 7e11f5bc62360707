"""Take steps of ours, or of torch's DistributedDataParallel, as a process of benchmarks/trainer.py asks for them.

    python -m benchmarks.trainer_ranks ours|ddp|exchange|memory ADDRESS

Every process connects to the benchmark, is told what to set up, answers with the CPU seconds that it has taken until
it was ready, and then does so many steps as it is told, again and again. In between it sleeps in a read, so that the
two sides that are compared don't disturb each other.
"""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import compressors
from benchmarks.measuring import read_memory
from compressors import Key
from trainers import models
from trainers.algorithms.base import Algorithm
from trainers.config import groups
from trainers.config import run_config as configs
from trainers.data.feeds import Batch
from trainers.devices.memory import MemoryMeter
from trainers.devices.stopwatch import Stopwatch
from trainers.gradients.flat import Unit
from trainers.lanes.gathering import GatherLane
from trainers.lanes.parcel import Parcel
from trainers.lanes.summing import SumLane
from trainers.mpi.group import MpiGroup
from trainers.replica.replica import Replica
from trainers.training import assembly
from trainers.training.memory_cost import measure_parts

SHAPE, CLASSES = (3, 32, 32), 10
"""The shape of an image and the number of classes of CIFAR."""
CONTEXT, TOKENS = (64,), 65
"""The shape of a text and the number of tokens in nanoGPT's training on a CPU."""
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")

Answer = dict[str, Any]
Step = Callable[[int], Answer]
"""Does so many steps; returns the seconds by name."""


class Shapes(nn.Module):
    """The parameters of a model without the model.

    The outputs are a sum of all parameters, each times a fixed number: gradients of the shapes of the model at the cost
    of one look at each of them. So a step is little but exchange and update.
    """

    def __init__(self, model: nn.Module, classes: int = CLASSES) -> None:
        super().__init__()
        self.classes = classes
        self.weights = nn.ParameterList(model.parameters())
        self.factors = [torch.randn_like(weight) for weight in self.weights]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        total = sum(torch.dot(w.flatten(), f.flatten()) for w, f in zip(self.weights, self.factors, strict=True))
        scores = total * torch.arange(self.classes, dtype=torch.float32) * 1e-3
        places = inputs.shape[:1] if inputs.is_floating_point() else inputs.shape
        return scores.expand(*places, self.classes)


def build_model(asked: dict[str, Any], config: configs.RunConfig) -> nn.Module:
    """Build the model of a config; with a batch of 0 only the shapes of its parameters."""
    torch.manual_seed(config.seed)
    shape, classes = get_shape(config)
    model = models.build(config.model, shape, classes)
    return model if asked["batch"] else Shapes(model, classes)


def get_shape(config: configs.RunConfig) -> tuple[tuple[int, ...], int]:
    """Return the shape of a sample, and the number of classes or tokens."""
    return (CONTEXT, TOKENS) if config.dataset.kind == "text" else (SHAPE, CLASSES)


def ours(asked: dict[str, Any]) -> Step:
    """Set up steps as trainers/training/loop.py takes them, on one batch that lies in memory."""
    from mpi4py import MPI

    comm, config = MPI.COMM_WORLD, configs.parse(asked["config"])
    samples = asked["batch"] or 1
    inputs, targets = draw_batch(samples, comm.rank, *get_shape(config))
    batch = Batch(inputs, targets, targets.numel() * comm.size)
    model = build_model(asked, config)
    models.build = lambda *_: model
    replica, watch = Replica(config, *get_shape(config), comm), Stopwatch()
    algorithm = assembly.build_algorithm(config, comm, replica, watch)
    numbers = itertools.count(1)

    def steps(count: int) -> Answer:
        seconds: Answer = {}
        began, used = time.perf_counter(), time.process_time()
        for _ in watch.time_steps("data", itertools.repeat(batch, count)):
            algorithm.begin(next(numbers), 1, 0.001, False)
            replica.compute_gradient(batch, watch, algorithm.on_last_backward)
            algorithm.finish()
            for phase, passed in watch.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + passed
        return {**seconds, "all": time.perf_counter() - began, "CPU": time.process_time() - used}

    return steps


def ddp(asked: dict[str, Any]) -> Step:
    """Set up steps of DistributedDataParallel over gloo, with one of its own communication hooks."""
    import torch.distributed
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    torch.distributed.init_process_group("gloo")
    config = configs.parse(asked["config"])
    name = groups.get_name(config.compressor)
    # With several buckets torch's PowerSGD starts sums from callbacks, whose order differs between the ranks: gloo then
    # ends with "received data size doesn't match expected size". So it gets one bucket.
    buckets: dict[str, Any] = {"bucket_cap_mb": 4096} if name == "powersgd" else {}
    model = DistributedDataParallel(build_model(asked, config), gradient_as_bucket_view=True, **buckets)
    if name == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=config.compressor.rank, start_powerSGD_iter=2, min_compression_rate=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = build_optimizer(config.optimizer, model)
    inputs, labels = draw_batch(asked["batch"] or 1, torch.distributed.get_rank(), *get_shape(config))
    model.train()

    def steps(count: int) -> Answer:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
            loss.backward()
            if config.clip.norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), config.clip.norm)
            optimizer.step()
            loss.item()  # as every training loop looks at it
        return {"all": time.perf_counter() - began, "CPU": time.process_time() - used}

    return steps


def build_optimizer(options: Any, model: nn.Module) -> torch.optim.Optimizer:
    """Build torch's SGD, or its AdamW without weight decay of vectors."""
    weights = list(model.parameters())
    if groups.get_name(options) == "sgd":
        momentum, nesterov, decay = options.momentum, options.nesterov, options.weight_decay
        return torch.optim.SGD(weights, 0.001, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    matrices = {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": options.weight_decay}
    vectors = {"params": [weight for weight in weights if weight.dim() == 1], "weight_decay": 0.0}
    return torch.optim.AdamW([matrices, vectors], 0.001, betas=(options.beta1, options.beta2), eps=options.eps)


def exchange(asked: dict[str, Any]) -> Step:
    """Set up sums or gatherings of an encoded message, by a lane and by bare mpi4py on the same memory."""
    from mpi4py import MPI

    comm, watch, compressor = MPI.COMM_WORLD, Stopwatch(), compressors.build("none")
    x = torch.zeros(int(asked["mib"] * 2**18))
    group = MpiGroup(comm)
    lane = SumLane(group, watch, "float32") if asked["kind"] == "allreduce" else GatherLane(group, watch)
    lane.reserve(x.nbytes)
    everyone = torch.empty(0 if asked["kind"] == "allreduce" else comm.size * x.numel())
    parcel = Parcel(Unit(0, "message", x, x), compressor, Key(0, 0, 1, 0), x)

    def bare() -> None:
        message = lane.message.numpy()[: x.nbytes].view("float32")
        if asked["kind"] == "allreduce":
            comm.Allreduce(MPI.IN_PLACE, message)
        else:
            comm.Allgather(message, everyone.numpy())

    def by_lane() -> None:
        for _ in lane.communicate():
            pass

    def steps(count: int) -> Answer:
        seconds: dict[str, list[float]] = {"bare": [], "all": []}
        sides = (("bare", bare), ("all", by_lane))
        for number in range(count):
            for name, communicate in sides if number % 2 else sides[::-1]:
                lane.begin()
                lane.add(parcel)
                comm.Barrier()
                began = time.perf_counter()
                communicate()
                seconds[name].append(time.perf_counter() - began)
        return {name: statistics.median(times) for name, times in seconds.items()}

    return steps


def memory(asked: dict[str, Any]) -> Step:
    """Set up steps without forward and backward, which measure the memory of a rank beside its payloads."""
    from mpi4py import MPI

    comm, config = MPI.COMM_WORLD, configs.parse(asked["config"])

    def build(config: configs.RunConfig) -> tuple[Replica, Algorithm]:
        replica = Replica(config, SHAPE, CLASSES, comm)
        return replica, assembly.build_algorithm(config, comm, replica, Stopwatch())

    def step(replica: Replica, algorithm: Algorithm, number: int) -> float:
        algorithm.begin(number, 1, 0.001, False)
        replica.flat.gradients.uniform_(-1, 1)
        return algorithm.finish().payload_bytes

    replica, algorithm = build(configs.parse(asked["small"]))  # what libraries take once
    step(replica, algorithm, 1)
    del replica, algorithm

    def steps(count: int) -> Answer:
        before, meter = read_memory()["VmRSS"], MemoryMeter()  # which makes the kernel forget the peak so far
        replica, algorithm = build(config)
        payload = max(step(replica, algorithm, number) for number in range(1, count + 1))
        received = 0.0 if groups.get_name(config.exchange) == "allreduce" else payload * comm.size
        flat = replica.flat
        kept = sum(tensor.nbytes for tensor in algorithm.setup.optimizer.kept.values())
        withheld = sum(t.nbytes for named in getattr(config.memory, "kept", {}).values() for t in named.values())
        expected = flat.values.nbytes + flat.gradients.nbytes + kept + withheld + payload + received
        recorded, parts = meter.measure(flat.values.device), measure_parts(replica, algorithm)
        figures = {"peak": read_memory()["VmHWM"] - before, "expected": expected}
        return {"all": 1.0, **figures, "recorded": recorded.peak_host, "parts": sum(parts.values())}

    return steps


def draw_batch(
    samples: int, rank: int, shape: tuple[int, ...] = SHAPE, classes: int = CLASSES
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw images of normal noise with any labels, or texts of any tokens, each position with any next one."""
    generator = torch.Generator().manual_seed(rank)
    if len(shape) == 1:
        inputs, targets = torch.randint(classes, (2, samples, *shape), generator=generator)
        return inputs, targets
    inputs = torch.randn(samples, *shape, generator=generator)
    return inputs, torch.randint(classes, (samples,), generator=generator)


def serve(benchmark: Connection, side: str) -> None:
    """Set up what the benchmark asks for, then do as many steps as it says until it hangs up."""
    torch.set_num_threads(1)
    benchmark.send((side, int(next(os.environ[name] for name in RANKS if name in os.environ))))
    set_up = {"ours": ours, "ddp": ddp, "exchange": exchange, "memory": memory}[side]
    steps = set_up(benchmark.recv())
    used = resource.getrusage(resource.RUSAGE_SELF)
    benchmark.send({"cpu": used.ru_utime + used.ru_stime})
    while (count := benchmark.recv()) is not None:
        benchmark.send(steps(count))


if __name__ == "__main__":
    with Client(sys.argv[2]) as connection:
        serve(connection, sys.argv[1])
    from trainers.training.rank import exit_rank

    exit_rank(0)
