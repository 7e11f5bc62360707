"""Training with compressed SGD, as one rank does it."""

from __future__ import annotations

import contextlib
import dataclasses
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
from sweep.run import DIVERGED, DONE, FORMAT, PREEMPTED, bad_value
from trainers import algorithms, data, devices, exchange, optimizers, schedules, training_rules
from trainers.algorithms.base import Algorithm, Parts
from trainers.checkpoint.keeper import Keeper, Position
from trainers.checkpoint.state import Training
from trainers.clipping import Clipping
from trainers.config import RunConfig, name_of
from trainers.data.feeds import Feed
from trainers.exchange import Traffic
from trainers.precision import ScaleExhausted
from trainers.progress import Progress
from trainers.recorder import Diverged, Recorder
from trainers.replica import Replica
from trainers.stopping import NOTHING, STOP, Agreement
from trainers.stopwatch import MEASURE, Stopwatch
from trainers.trackers import Trackers

if TYPE_CHECKING:
    from mpi4py import MPI

NOTHING_SENT = Traffic(0.0, 0.0, None)
"""What the gradient of a step that is left out puts on the wire."""


def train(config: RunConfig, comm: MPI.Comm, directory: Path) -> dict[str, Any]:
    """Train one run to its end, from its newest checkpoint on where it has one; returns the content of result.json.

    Where SIGUSR1 has asked for it, the run is saved and ends before: the status is then `preempted`.

    Args:
        config: of the run, the same on all ranks.
        comm: one rank a worker.
        directory: of the run; rank 0 writes steps.csv and epochs.csv there, and all write checkpoints.

    Raises:
        UsageError: the checkpoint cannot be used, or one that SIGUSR1 has asked for could not be written.
    """
    began = time.monotonic()
    feed = data.feed(config, comm.rank, comm.size)
    steps = config.steps(feed.samples)
    backend.choose(config.kernels)
    device = devices.choose(config, comm)
    replica = Replica(config, feed.shape, feed.classes, comm, device)
    watch = devices.stopwatch(device)
    algorithm = _algorithm(config, comm, replica, feed, steps, watch)
    schedule = schedules.build(config, steps, feed.steps_per_epoch)
    recorder = Recorder(comm, directory, replica.flat.gradients.nbytes, config.warmup_steps)
    trackers = _listeners(config, directory, recorder, replica, steps) if comm.rank == 0 else None
    keeper = Keeper(config, comm, directory, Training(replica, algorithm, schedule, recorder), began)
    after_step = Agreement(comm)

    position = keeper.restore()
    status, reason = DONE, None
    try:
        while position.step < steps or position.start:  # an epoch that was begun is evaluated
            epoch, lr = position.epoch, schedule.rate(max(position.step, 1))
            replica.model.train()
            batches = itertools.islice(feed.epoch(epoch, position.start), steps - position.step)
            for batch in watch.steps("data", batches):
                position = Position(epoch, position.start + 1, position.step + 1)
                step = position.step
                after_step.ask(keeper.overdue())
                measure = (step - 1) % config.measure_every == 0
                lr = schedule.rate(step)
                algorithm.parts.optimizer.adjust(**schedule.settings(step))
                algorithm.begin(step, epoch, lr, measure)
                loss, accuracy = replica.gradient(batch, watch, algorithm.ready)
                traffic = algorithm.finish() if replica.usable(watch) else NOTHING_SENT
                traffic = dataclasses.replace(traffic, sent_bytes=traffic.sent_bytes + replica.extra_bytes())
                with watch(MEASURE):
                    withheld = config.memory.norm() if measure else None
                wanted = after_step.answer()
                if algorithm.replicated and config.check_every and step % config.check_every == 0:
                    with watch(MEASURE):
                        replica.require_same(f"step {step}: the weights")
                recorder.step(step, epoch, lr, batch.total, loss, accuracy, watch, traffic, withheld)
                _pause(keeper, position, wanted, keeper.due(step))
            recorder.combine()
            started = time.perf_counter()
            with algorithm.evaluated():
                test_loss, test_accuracy = replica.evaluate(feed)
            recorder.epoch(epoch, position.step, lr, test_loss, test_accuracy, time.perf_counter() - started)
            schedule.observe(test_loss)
            position = Position(epoch + 1, 0, position.step)
            if position.step < steps:
                after_step.ask(keeper.overdue())
                _pause(keeper, position, after_step.answer(), keeper.due_after(epoch))
        if config.checkpoint.final:
            keeper.save(position)
    except (Diverged, ScaleExhausted) as error:
        status, reason = DIVERGED, str(error)
        with contextlib.suppress(Diverged):
            recorder.combine()
    except Stopped as error:
        status, reason = PREEMPTED, str(error)
    if trackers is not None:
        trackers.finish(status)
    return {
        "format": FORMAT,
        "status": status,
        "reason": reason,
        "parameters": len(replica.flat),
        **devices.described(device),
        "precision": config.precision,
        **({} if replica.scaler is None else {"skipped_steps": replica.scaler.skipped}),
        "kernels": dict(sorted(backend.used.items())),
        **recorder.figures(),
        "total_s": keeper.total_s,
    }


class Stopped(Exception):
    """The run was asked to stop and has been saved; raised on all workers alike."""


def _pause(keeper: Keeper, position: Position, wanted: int, due: bool) -> None:
    """Save where the workers want it or it is `due`.

    Raises:
        Stopped: they want to stop.
        UsageError: they want to stop, and it could not be saved.
    """
    if wanted != NOTHING or due:
        keeper.save(position, required=wanted == STOP)
    if wanted == STOP:
        raise Stopped(f"SIGUSR1: saved at step {position.step}; a resume goes on from there")


def _listeners(config: RunConfig, directory: Path, recorder: Recorder, replica: Replica, steps: int) -> Trackers:
    """What rank 0 tells others while it trains: a line now and then, and the trackers that the config asks for."""
    progress = Progress(config.epochs, steps)
    progress.begin(
        f"{name_of(config.model)} on {name_of(config.dataset)}: {len(replica.flat):,} parameters, "
        f"{config.workers} worker{'s' * (config.workers > 1)} on {replica.device.type}, {config.precision}, "
        f"compressor {name_of(config.compressor)}, {steps} steps"
    )
    trackers = Trackers(config, directory)
    recorder.listeners += [progress, trackers]
    return trackers


def _algorithm(
    config: RunConfig, comm: MPI.Comm, replica: Replica, feed: Feed, steps: int, watch: Stopwatch
) -> Algorithm:
    """The algorithm with its exchange and optimizer, ready for the first step."""
    flat = replica.flat
    pieces = exchange.pieces(config.exchange, comm.size)
    units = flat.units(config.exchange.granularity, config.exchange.bucket_mib, pieces)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    training_rules.check_length(config, steps)
    try:
        config.policy.check_length(math.ceil(steps / feed.steps_per_epoch), steps)
        selector = Selector(config.policy, config.compressor, described, comm.size)
    except InvalidParameter as error:  # only now the names of the tensors and the number of samples are known
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error
    with hidden("scipy"):  # numba would load scipy's BLAS, which no kernel calls: a quarter of a second of CPU
        selector.warm_up(flat.gradients.device)
        optimizer = optimizers.build(config.optimizer, flat)
        clipping = Clipping(config.clip, flat.gradients)
    exchanger = exchange.build(config.exchange, comm, units, selector, config.memory, config.seed, watch)
    parts = Parts(comm, flat, units, exchanger, optimizer, clipping, watch)
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
