"""Training with and without overlap: `mpirun -n W python -m tests.trainers.ranks.overlap NAME [ARGUMENT...]`."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from mpi4py import MPI

from tests.trainers.arrays import random_arrays
from tests.trainers.configs import NO_MOMENTUM, compose_config
from tests.trainers.ranks import exchange as ranks
from tests.trainers.ranks.exchange import main
from trainers.config import run_config as options
from trainers.data.batches import Shard
from trainers.devices.stopwatch import MEASURE, Stopwatch
from trainers.lanes.collective_queue import ThreadCollectiveQueue
from trainers.mpi import message_sizes
from trainers.mpi.group import MpiGroup
from trainers.replica.replica import Replica
from trainers.rules.resolve import resolve
from trainers.training import assembly

COMM = MPI.COMM_WORLD
SAMPLES, BATCH, STEPS = 12 + 2, 12, 4  # the second batch of an epoch has 2 samples: some worker has none
SKETCHED = {"match": "weight", "compressor": {"name": "topk", "ratio": 0.1}}

KINDS: dict[str, dict[str, Any]] = {
    "none": {},
    "fp16": {"compressor": "fp16"},
    "bf16": {"compressor": "bf16"},
    "qsgd": {"compressor": "qsgd"},
    "elias": {"compressor": {"name": "qsgd", "coding": "elias"}},
    "topk": {"compressor": {"name": "topk", "ratio": 0.05}, "memory": "residual"},
    "dgc": {"compressor": {"name": "topk", "ratio": 0.05}, "memory": "dgc", "optimizer": NO_MOMENTUM},
    "dgc_clipped": {
        "compressor": {"name": "topk", "ratio": 0.05},
        "memory": {"name": "dgc", "clip": 0.1},
        "optimizer": NO_MOMENTUM,
    },
    "ef21": {"compressor": {"name": "topk", "ratio": 0.05}, "memory": "ef21"},
    "terngrad": {"compressor": "terngrad"},
    "intsgd": {"compressor": "intsgd"},
    "powersgd": {"compressor": "powersgd", "memory": "residual"},
    "dion": {"optimizer": "dion", "compressor": "dion", "memory": "residual"},
    "acp_sgd": {"compressor": {"name": "acp_sgd", "rank": 1}, "memory": "residual"},
    "gtopk": {"compressor": "gtopk", "memory": "residual"},
    "policy": {
        "compressor": "qsgd",
        "memory": "residual",
        "policy": {"dense_1d": True, "start_step": 3, "patterns": [SKETCHED]},
    },
    "buckets": {"compressor": "qsgd", "exchange": {"granularity": "bucket", "bucket_mib": 0.02}},
}


def same(left: Any, right: Any) -> bool:
    """Equal to the bit, whatever is nested in what."""
    if isinstance(left, torch.Tensor):
        return left.shape == right.shape and left.numpy().tobytes() == right.numpy().tobytes()
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def trained(kind: str, overlap: bool, monkeypatch: pytest.MonkeyPatch, transport: str = "mpi") -> dict[str, Any]:
    """All numbers of some steps, and what was sent."""
    changes = {**KINDS[kind]}
    changes["exchange"] = {"name": "auto", "overlap": overlap, "transport": transport, **changes.get("exchange", {})}
    run = compose_config(model={"name": "wideresnet", "depth": 10, "widen": 1}, workers=COMM.size, **changes)
    config = options.parse(resolve(run))
    feed, watch = Shard(random_arrays(SAMPLES), BATCH, 3, COMM.rank, COMM.size), Stopwatch()
    replica = Replica(config, feed.shape, feed.classes, COMM)
    algorithm = assembly.build_algorithm(config, COMM, replica, watch)
    units, early = algorithm.setup.units, algorithm.setup.exchange.takes_early
    assert early == (overlap and kind != "dgc_clipped")
    left: list[int] = []
    compensate = type(config.memory).compensate

    def counted(memory: Any, unit: int, *how: Any) -> torch.Tensor:
        left.append(unit)
        return compensate(memory, unit, *how)

    monkeypatch.setattr(type(config.memory), "compensate", counted)
    losses, sent, step = [], [], 0
    replica.model.train()
    for epoch in (1, 2):
        for batch in watch.time_steps("data", feed.read_epoch(epoch)):
            step += 1
            left.clear()
            algorithm.begin(step, epoch, 0.05, step % 2 == 1)
            losses.append(replica.compute_gradient(batch, watch, algorithm.on_last_backward).read())
            assert len(left) == (len(units) if early and len(batch.labels) else 0), (kind, overlap, left)
            sent.append(algorithm.finish())
            assert left == [unit.index for unit in reversed(units)]
            assert min(watch.seconds.values()) >= 0
            assert sum(watch.seconds.values()) - watch.seconds.get(MEASURE, 0.0) <= watch.measure_step()
    assert step == STEPS
    state = algorithm.state_dict()
    if isinstance(algorithm.setup.exchange.collectives, ThreadCollectiveQueue):
        algorithm.setup.exchange.collectives.close()
    algorithm.setup.exchange.close()
    return {"losses": losses, "sent": sent, "values": replica.flat.values.clone(), "state": state}


def small_parts() -> None:
    """Cut messages, and sums, into parts of a few units each."""
    message_sizes.PART_BYTES, message_sizes.SEGMENT_BYTES = 2**11, 2**10


def alike(*kinds: str) -> None:
    """With overlap a run has the same losses, parameters, memories, states and bytes."""
    small_parts()
    for kind in kinds or KINDS:
        runs = []
        for overlap in (False, True):
            with pytest.MonkeyPatch.context() as monkeypatch:
                runs.append(trained(kind, overlap, monkeypatch))
        without, with_overlap = runs
        for name, value in without.items():
            assert same(value, with_overlap[name]), (kind, name)
        assert not same(without["values"], torch.zeros_like(without["values"]))


def failing() -> None:
    """What goes wrong on the thread is raised where the step is completed, and nothing is done after it."""
    collectives, done = ThreadCollectiveQueue(MpiGroup(COMM), Stopwatch()), []

    def fail(comm: MPI.Comm) -> None:
        raise ValueError("no such message")

    collectives.post(lambda group: done.append(group.comm.allreduce(1)))
    collectives.post(fail)
    collectives.post(lambda group: done.append(group.comm.allreduce(1)))
    try:
        collectives.complete()
    except ValueError as error:
        assert str(error) == "no such message"
    else:
        raise AssertionError("the error was lost")
    assert done == [COMM.size]
    collectives.close()


def means(overlap: str, *names: str) -> None:
    """The mean is a mean, of units that leave early in parts."""
    os.environ["TESTED_OVERLAP"] = overlap
    small_parts()
    ranks.same_mean(*names)


def traffic(overlap: str, *names: str) -> None:
    """The bytes that are sent in parts."""
    os.environ["TESTED_OVERLAP"] = overlap
    small_parts()
    ranks.traffic(*names)


if __name__ == "__main__":
    main(globals())
