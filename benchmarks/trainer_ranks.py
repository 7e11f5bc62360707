"""What the processes of benchmarks/trainer.py and decentralised.py do: a step of ours, or of torch's
DistributedDataParallel, when told to.

    python -m benchmarks.trainer_ranks ours|ddp|exchange|memory|gossip ADDRESS

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
from trainers.algorithms.gossiping import Gossiping
from trainers.config import groups
from trainers.config import run_config as configs
from trainers.data.feeds import Batch
from trainers.devices.memory import MemoryMeter
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.gossip import Shadow
from trainers.gradients.flat import Unit
from trainers.lanes.gathering import GatherLane
from trainers.lanes.parcel import Parcel
from trainers.lanes.summing import SumLane
from trainers.replica.replica import Replica
from trainers.training import assembly
from trainers.training.memory_cost import measure_parts

SHAPE, CLASSES = (3, 32, 32), 10
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")

Answer = dict[str, Any]
Step = Callable[[int], Answer]
"""Does so many steps; returns the seconds by name."""


class Shapes(nn.Module):
    """The parameters of a model without the model.

    The outputs are a sum of all parameters, each times a fixed number, for one sample: gradients of the shapes of the
    model at the cost of one look at each of them. So a step is little but exchange and update.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weights = nn.ParameterList(model.parameters())
        self.factors = [torch.randn_like(weight) for weight in self.weights]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        total = sum(torch.dot(w.flatten(), f.flatten()) for w, f in zip(self.weights, self.factors, strict=True))
        return total * torch.arange(CLASSES, dtype=torch.float32) * 1e-3 + inputs.flatten(1)[:, :CLASSES]


def build_model(asked: dict[str, Any], config: configs.RunConfig) -> nn.Module:
    """Build the model of a config; with a batch of 0 only the shapes of its parameters."""
    torch.manual_seed(config.seed)
    model = models.build(config.model, SHAPE, CLASSES)
    return model if asked["batch"] else Shapes(model)


def ours(asked: dict[str, Any]) -> Step:
    """Set up steps as trainers/training/loop.py takes them, on one batch that lies in memory."""
    from mpi4py import MPI

    comm, config = MPI.COMM_WORLD, configs.parse(asked["config"])
    samples = asked["batch"] or 1
    batch = Batch(*draw_batch(samples, comm.rank), samples * comm.size)
    model = build_model(asked, config)
    models.build = lambda *_: model
    replica, watch = Replica(config, SHAPE, CLASSES, comm), Stopwatch()
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
    name, sgd = groups.get_name(config.compressor), config.optimizer
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
    optimizer = torch.optim.SGD(
        model.parameters(), 0.001, momentum=sgd.momentum, nesterov=sgd.nesterov, weight_decay=sgd.weight_decay
    )
    inputs, labels = draw_batch(asked["batch"] or 1, torch.distributed.get_rank())
    model.train()

    def steps(count: int) -> Answer:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            loss.item()  # as every training loop looks at it
        return {"all": time.perf_counter() - began, "CPU": time.process_time() - used}

    return steps


def exchange(asked: dict[str, Any]) -> Step:
    """Set up sums or gatherings of an encoded message, by a lane and by bare mpi4py on the same memory."""
    from mpi4py import MPI

    comm, watch, compressor = MPI.COMM_WORLD, Stopwatch(), compressors.build("none")
    x = torch.zeros(int(asked["mib"] * 2**18))
    lane = SumLane(comm, watch, "float32") if asked["kind"] == "allreduce" else GatherLane(comm, watch)
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
    """Set up steps without forward and backward: what the buffers of a rank and everything around a payload take."""
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


def gossip(asked: dict[str, Any]) -> Step:
    """Set up mixing steps of a decentralised algorithm, and on the same message their parts: encoding it, sending it
    to all neighbours by bare mpi4py, decoding one that has come, and what the algorithm does with its own parameters
    and its own message (of CHOCO-SGD the difference to the estimate, the estimate, and the step)."""
    from mpi4py import MPI

    comm, config = MPI.COMM_WORLD, configs.parse(asked["config"])
    replica = Replica(config, SHAPE, CLASSES, comm)
    algorithm = assembly.build_algorithm(config, comm, replica, Stopwatch())
    assert isinstance(algorithm, Gossiping)
    algorithm.update = lambda: None  # type: ignore[method-assign]  # the optimizer's step is no part of it
    lane, numbers = algorithm.gossip.lane, itertools.count(1)
    mixing, units, size = algorithm.gossip.mixing, algorithm.setup.units, len(replica.flat)
    targets, sources = mixing.find_targets(comm.rank, 1), mixing.find_sources(comm.rank, 1)
    x = Shadow(units, torch.randn(size, generator=torch.Generator().manual_seed(comm.rank)))
    sum_of_all = Shadow(units, torch.zeros(size))

    def mix() -> None:
        algorithm.begin(next(numbers), 1, 0.001, False)
        algorithm.finish()

    def encode() -> None:
        algorithm.gossip.begin(1)
        for unit in reversed(x.units):
            algorithm.gossip.submit(unit)

    def send() -> None:
        message = lane.message[: lane.used].numpy()
        requests = [comm.Irecv(part.numpy(), one) for one, part in zip(sources, rooms, strict=True)]
        requests += [comm.Isend(message, one) for one in targets]
        MPI.Request.Waitall(requests)

    def decode() -> None:
        for unit in units:
            algorithm.gossip.add_own(sum_of_all, unit, 0.3)

    def own() -> None:
        for unit in reversed(units):
            algorithm.prepare_outgoing(unit)
            algorithm.on_encoded(unit)
            algorithm.mix(unit)

    def time_alone(part: Callable[[], None]) -> float:
        """Return the seconds of a part without neighbours; the state is restored afterwards."""
        state = [algorithm.values, *algorithm.kept.values()]
        before, others = [tensor.clone() for tensor in state], lane.others
        lane.others = []
        seconds = time_part(part)
        lane.others = others
        for tensor, values in zip(state, before, strict=True):
            tensor.copy_(values)
        return seconds

    def time_part(part: Callable[[], None]) -> float:
        comm.Barrier()
        began = time.perf_counter()
        part()
        return time.perf_counter() - began

    mix()
    rooms = [torch.zeros_like(lane.message) for _ in sources]

    def steps(count: int) -> Answer:
        seconds: dict[str, list[float]] = {"own": [], "all": [], "encode": [], "send": [], "decode": []}
        for _ in range(count):
            for name, part in (("all", mix), ("encode", encode), ("send", send), ("decode", decode)):
                seconds[name].append(time_part(part))
            with torch.no_grad():
                seconds["own"].append(time_alone(own))
        return {name: statistics.median(times) for name, times in seconds.items()}

    return steps


def draw_batch(samples: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw normal noise of CIFAR's shape with any labels."""
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(samples, *SHAPE, generator=generator)
    return inputs, torch.randint(CLASSES, (samples,), generator=generator)


def serve(benchmark: Connection, side: str) -> None:
    """Set up what the benchmark asks for, then do as many steps as it says until it hangs up."""
    torch.set_num_threads(1)
    benchmark.send((side, int(next(os.environ[name] for name in RANKS if name in os.environ))))
    set_up = {"ours": ours, "ddp": ddp, "exchange": exchange, "memory": memory, "gossip": gossip}[side]
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
