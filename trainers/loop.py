"""Training with compressed SGD, as one rank does it."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compressors.kernels import backend
from compressors.parameters import InvalidParameter
from compressors.policy import Selector
from sweep.run import DIVERGED, DONE, FORMAT, bad_value
from trainers import algorithms, data, exchange, optimizers
from trainers.algorithms.base import Algorithm, Parts
from trainers.config import RunConfig
from trainers.data.feeds import Feed
from trainers.recorder import Diverged, Recorder
from trainers.replica import Replica
from trainers.schedules import Schedule
from trainers.stopwatch import MEASURE, Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI


def train(config: RunConfig, comm: MPI.Comm, directory: Path) -> dict[str, Any]:
    """Train one run to its end; returns the content of result.json.

    Args:
        config: of the run, the same on all ranks.
        comm: one rank a worker.
        directory: of the run; rank 0 writes steps.csv and epochs.csv there.
    """
    began = time.perf_counter()
    feed = data.feed(config, comm.rank, comm.size)
    steps = config.steps(feed.samples)
    backend.choose(config.kernels)
    replica = Replica(config, feed.shape, feed.classes, comm)
    watch = Stopwatch()
    algorithm = _algorithm(config, comm, replica, feed, steps, watch)
    schedule = Schedule(config.schedule, config.optimizer.lr, steps, feed.steps_per_epoch)
    recorder = Recorder(comm, directory, replica.flat.gradients.nbytes, config.warmup_steps)

    step, reason = 0, None
    try:
        for epoch in range(1, config.epochs + 1):
            replica.model.train()
            batches = itertools.islice(feed.epoch(epoch), steps - step)
            for batch in watch.steps("data", batches):
                step += 1
                measure = (step - 1) % config.measure_every == 0
                lr = schedule.rate(step)
                algorithm.begin(step, epoch, lr, measure)
                loss, accuracy = replica.gradient(batch, watch, algorithm.ready)
                traffic = algorithm.finish()
                with watch(MEASURE):
                    withheld = config.memory.norm() if measure else None
                recorder.step(step, epoch, lr, batch.total, loss, accuracy, watch, traffic, withheld)
            recorder.combine()
            started = time.perf_counter()
            test_loss, test_accuracy = replica.evaluate(feed)
            recorder.epoch(epoch, step, lr, test_loss, test_accuracy, time.perf_counter() - started)
            schedule.observe(test_loss)
            if step == steps:
                break
    except Diverged as error:
        reason = str(error)
    return {
        "format": FORMAT,
        "status": DIVERGED if reason else DONE,
        "reason": reason,
        "parameters": len(replica.flat),
        "kernels": dict(sorted(backend.used.items())),
        **recorder.figures(),
        "total_s": time.perf_counter() - began,
    }


def _algorithm(
    config: RunConfig, comm: MPI.Comm, replica: Replica, feed: Feed, steps: int, watch: Stopwatch
) -> Algorithm:
    """The algorithm with its exchange and optimizer, ready for the first step."""
    flat = replica.flat
    units = flat.units(config.exchange.granularity, config.exchange.bucket_mib)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    try:
        config.policy.check_length(math.ceil(steps / feed.steps_per_epoch), steps)
        selector = Selector(config.policy, config.compressor, described, comm.size)
    except InvalidParameter as error:  # only now the names of the tensors and the number of samples are known
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error
    with hidden("scipy"):  # numba would load scipy's BLAS, which no kernel calls: a quarter of a second of CPU
        selector.warm_up(flat.gradients.device)
    exchanger = exchange.build(config.exchange, comm, units, selector, config.memory, config.seed, watch)
    parts = Parts(comm, flat, units, exchanger, optimizers.build(config.optimizer, flat), watch)
    return algorithms.build(config.algorithm, parts)


@contextlib.contextmanager
def hidden(package: str) -> Iterator[None]:
    """Make imports of an optional package fail within the block, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
