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
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

SHAPE, CLASSES = (3, 32, 32), 10
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")

Answer = dict[str, Any]
Step = Callable[[int], Answer]
"""Does so many steps; the seconds by name."""


def built(told: dict[str, Any], config: Any) -> Any:
    """The model of a config; with a batch of 0 no more than the shapes of its parameters.

    Then what is computed is a sum of all parameters, each times a fixed number, for one sample: gradients of the
    shapes of the model at the cost of one look at each of them. So a step is little but exchange and update.
    """
    import torch
    from torch import nn

    from trainers import models

    torch.manual_seed(config.seed)
    model = models.build(config.model, SHAPE, CLASSES)
    if told["batch"]:
        return model

    class Shapes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(model.parameters())
            self.factors = [torch.randn_like(weight) for weight in self.weights]

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            total = sum(torch.dot(w.flatten(), f.flatten()) for w, f in zip(self.weights, self.factors, strict=True))
            return total * torch.arange(CLASSES, dtype=torch.float32) * 1e-3 + inputs.flatten(1)[:, :CLASSES]

    return Shapes()


def ours(told: dict[str, Any]) -> Step:
    """Steps as trainers/training/loop.py does them, on one batch that lies in memory."""
    from trainers.config import run_config as configs
    from trainers.mpi.process import limit_threads

    limit_threads(1)
    import torch
    from mpi4py import MPI

    from trainers import models
    from trainers.data.feeds import Batch, Feed
    from trainers.devices.stopwatch import Stopwatch
    from trainers.replica.replica import Replica
    from trainers.training import assembly

    torch.set_num_threads(1)
    comm, config = MPI.COMM_WORLD, configs.parse(told["config"])
    samples = told["batch"] or 1
    batch = Batch(*_batch(samples, comm.rank), samples * comm.size)

    class InMemory(Feed):
        shape, classes, samples, steps_per_epoch = SHAPE, CLASSES, batch.total * 10**6, 10**6

        def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
            return itertools.repeat(batch)

        def read_test_set(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            return iter(())

    model = built(told, config)
    models.build = lambda *_: model
    replica, watch, feed = Replica(config, SHAPE, CLASSES, comm), Stopwatch(), InMemory()
    algorithm = assembly.build_algorithm(config, comm, replica, watch)
    replica.model.train()
    numbers = itertools.count(1)

    def steps(count: int) -> Answer:
        seconds: Answer = {}
        began, used = time.perf_counter(), time.process_time()
        for one in watch.time_steps("data", itertools.islice(feed.read_epoch(1), count)):
            algorithm.begin(next(numbers), 1, 0.001, False)
            replica.compute_gradient(one, watch, algorithm.on_last_backward)
            algorithm.finish()
            for phase, passed in watch.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + passed
        return {**seconds, "all": time.perf_counter() - began, "CPU": time.process_time() - used}

    return steps


def ddp(told: dict[str, Any]) -> Step:
    """Steps of DistributedDataParallel over gloo, with one of its own communication hooks."""
    import torch
    import torch.distributed
    import torch.nn.functional as F
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    from trainers.config import groups
    from trainers.config import run_config as configs

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    config = configs.parse(told["config"])
    name, sgd = groups.get_name(config.compressor), config.optimizer
    # With several buckets torch's PowerSGD starts sums from callbacks, whose order differs between the ranks: gloo then
    # ends with "received data size doesn't match expected size". So it gets one bucket.
    buckets: dict[str, Any] = {"bucket_cap_mb": 4096} if name == "powersgd" else {}
    model = DistributedDataParallel(built(told, config), gradient_as_bucket_view=True, **buckets)
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
    inputs, labels = _batch(told["batch"] or 1, torch.distributed.get_rank())
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


def exchange(told: dict[str, Any]) -> Step:
    """A sum and a gathering of a message that is encoded already, by a lane and by bare mpi4py on the same memory."""
    import torch
    from mpi4py import MPI

    import compressors
    from compressors import Key
    from trainers.devices.stopwatch import Stopwatch
    from trainers.gradients.flat import Unit
    from trainers.lanes.gathering import GatherLane
    from trainers.lanes.parcel import Parcel
    from trainers.lanes.summing import SumLane

    comm, watch, compressor = MPI.COMM_WORLD, Stopwatch(), compressors.build("none")
    x = torch.zeros(int(told["mib"] * 2**18))
    lane = SumLane(comm, watch, "float32") if told["kind"] == "allreduce" else GatherLane(comm, watch)
    lane.reserve(x.nbytes)
    everyone = torch.empty(0 if told["kind"] == "allreduce" else comm.size * x.numel())
    parcel = Parcel(Unit(0, "message", x, x), compressor, Key(0, 0, 1, 0), x)

    def bare() -> None:
        message = lane.message.numpy()[: x.nbytes].view("float32")
        if told["kind"] == "allreduce":
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
        return {name: sorted(each)[count // 2] for name, each in seconds.items()}

    return steps


def memory(told: dict[str, Any]) -> Step:
    """Steps without a forward and a backward: what the buffers of a rank and everything around a payload take."""
    import torch
    from mpi4py import MPI

    from benchmarks.measuring import read_memory
    from trainers.algorithms.base import Algorithm
    from trainers.config import groups
    from trainers.config import run_config as configs
    from trainers.devices.stopwatch import Stopwatch
    from trainers.replica.replica import Replica
    from trainers.training import assembly

    torch.set_num_threads(1)
    comm, config = MPI.COMM_WORLD, configs.parse(told["config"])

    def ready(config: configs.RunConfig) -> tuple[Replica, Algorithm]:
        replica = Replica(config, SHAPE, CLASSES, comm)
        return replica, assembly.build_algorithm(config, comm, replica, Stopwatch())

    def step(replica: Replica, algorithm: Algorithm, number: int) -> float:
        algorithm.begin(number, 1, 0.001, False)
        replica.flat.gradients.uniform_(-1, 1)
        return algorithm.finish().payload_bytes

    replica, algorithm = ready(configs.parse(told["small"]))  # what libraries take once
    step(replica, algorithm, 1)
    del replica, algorithm

    def steps(count: int) -> Answer:
        before = read_memory()["VmRSS"]
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        replica, algorithm = ready(config)
        payload = max(step(replica, algorithm, number) for number in range(1, count + 1))
        received = 0.0 if groups.get_name(config.exchange) == "allreduce" else payload * comm.size
        flat = replica.flat
        kept = sum(tensor.nbytes for tensor in algorithm.setup.optimizer.kept.values())
        withheld = sum(t.nbytes for named in getattr(config.memory, "kept", {}).values() for t in named.values())
        expected = flat.values.nbytes + flat.gradients.nbytes + kept + withheld + payload + received
        return {"all": 1.0, "peak": read_memory()["VmHWM"] - before, "expected": expected}

    return steps


def gossip(told: dict[str, Any]) -> Step:
    """A mixing step of a decentralised algorithm, and on the same message what it is made of: encoding it, sending it
    to all neighbours by bare mpi4py, decoding one that has come, and what the algorithm does with its own parameters
    and its own message (of CHOCO-SGD the difference to the estimate, the estimate, and the step)."""
    import torch
    from mpi4py import MPI

    from trainers.algorithms.gossiping import Gossiping
    from trainers.config import run_config as configs
    from trainers.devices.stopwatch import Stopwatch
    from trainers.exchange.gossip import Shadow
    from trainers.replica.replica import Replica
    from trainers.training import assembly

    torch.set_num_threads(1)
    comm, config = MPI.COMM_WORLD, configs.parse(told["config"])
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

    def alone(part: Callable[[], None]) -> float:
        """Seconds of a part without neighbours, after which all is as before."""
        remembered = [algorithm.values, *algorithm.kept.values()]
        before, others = [each.clone() for each in remembered], lane.others
        lane.others = []
        seconds = timed(part)
        lane.others = others
        for each, values in zip(remembered, before, strict=True):
            each.copy_(values)
        return seconds

    def timed(part: Callable[[], None]) -> float:
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
                seconds[name].append(timed(part))
            with torch.no_grad():
                seconds["own"].append(alone(own))
        return {name: sorted(each)[count // 2] for name, each in seconds.items()}

    return steps


def _batch(samples: int, rank: int) -> tuple[Any, Any]:
    """Normal noise of CIFAR's shape with any labels."""
    import torch

    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(samples, *SHAPE, generator=generator)
    return inputs, torch.randint(CLASSES, (samples,), generator=generator)


def serve(told: Connection, side: str) -> None:
    """Set up what is asked for, then do steps until the benchmark hangs up."""
    told.send((side, int(next(os.environ[name] for name in RANKS if name in os.environ))))
    steps = {"ours": ours, "ddp": ddp, "exchange": exchange, "memory": memory, "gossip": gossip}[side](told.recv())
    used = resource.getrusage(resource.RUSAGE_SELF)
    told.send({"cpu": used.ru_utime + used.ru_stime})
    while (count := told.recv()) is not None:
        told.send(steps(count))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    with Client(sys.argv[2]) as connection:
        serve(connection, sys.argv[1])
    from trainers.training.rank import exit_rank

    exit_rank(0)
