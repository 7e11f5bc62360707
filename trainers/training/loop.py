"""Training with compressed SGD, as one rank does it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep.run_directory import DIVERGED, DONE, PREEMPTED
from trainers.checkpoint.keeper import Position
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch
from trainers.devices.stopwatch import MEASURE
from trainers.exchange.base import Traffic
from trainers.mpi.stopping import NOTHING, STOP
from trainers.recording.recorder import Diverged
from trainers.replica.precision import ScaleExhausted
from trainers.training.assembly import Assembly, assemble
from trainers.training.evaluation import evaluate

if TYPE_CHECKING:
    from mpi4py import MPI

NOTHING_SENT = Traffic(0.0, 0.0, None)
"""What the gradient of a step that is left out puts on the wire."""


class Stopped(Exception):
    """The run was asked to stop and has been saved; raised on all workers alike."""


def train(config: RunConfig, comm: MPI.Comm, directory: Path) -> dict[str, Any]:
    """Train one run to its end, from its newest checkpoint on where it has one; returns the content of result.json.

    Where SIGUSR1 has asked for it, the run is saved and ends before: the status is then `preempted`.

    Args:
        config: of the run, the same on all ranks.
        comm: one rank a worker, and behind them that of a server where it is none of them.
        directory: of the run; rank 0 writes steps.csv and epochs.csv there, and all write checkpoints.

    Raises:
        UsageError: the checkpoint cannot be used, or one that SIGUSR1 has asked for could not be written.
    """
    if not config.exchange.servers:
        return _train(assemble(config, comm, directory))
    from trainers import servers

    workers = comm.Split(int(comm.rank >= config.workers), comm.rank)
    if comm.rank >= config.workers:
        return servers.serve(config, comm)
    link = servers.Link(comm, config.workers)
    result = _train(assemble(config, workers, directory, link))
    if comm.rank == 0:
        link.end(result)
    return result


def _train(run: Assembly) -> dict[str, Any]:
    status, reason = DONE, None
    position = run.keeper.restore()
    if run.trackers is not None:
        run.trackers.begin(position.step)
    try:
        while position.step < run.steps or position.start:  # an epoch that was begun is ended
            position = _train_epoch(run, position)
        if run.config.checkpoint.final:
            run.keeper.save(position)
        if run.replica.scaler is not None and run.replica.scaler.skipped == position.step:
            status, reason = DIVERGED, "the gradient overflowed in every step; valid is a smaller loss_scale.initial"
    except (Diverged, ScaleExhausted) as error:
        status, reason = DIVERGED, str(error)
        with contextlib.suppress(Diverged):
            run.recorder.combine()
    except Stopped as error:
        status, reason = PREEMPTED, str(error)
    run.agreement.close()
    run.algorithm.setup.exchange.close()
    if run.trackers is not None:
        run.trackers.finish(status)
    return run.build_result(status, reason)


def _train_epoch(run: Assembly, position: Position) -> Position:
    """What is left of an epoch, and its evaluation where it has one; returns where the next one begins."""
    epoch, lr = position.epoch, run.schedule.rate(max(position.step, 1))
    batches = itertools.islice(run.feed.epoch(epoch, position.start), run.steps - position.step)
    for batch in run.watch.steps("data", batches):
        position = Position(epoch, position.start + 1, position.step + 1)
        lr = run.schedule.rate(position.step)
        _train_step(run, position, batch, lr)
    run.recorder.combine()
    if epoch % run.config.evaluate_every == 0 or position.step == run.steps:
        started = time.perf_counter()
        found = evaluate(run.config.algorithm, run.algorithm, run.replica, run.feed, epoch)
        run.recorder.record_epoch(epoch, position.step, lr, *found[:2], time.perf_counter() - started, found.local)
        run.schedule.observe(found.test_loss)
    position = Position(epoch + 1, 0, position.step)
    if position.step < run.steps:
        run.agreement.ask(run.keeper.is_overdue())
        _save_or_stop(run, position, run.agreement.answer_all(), run.keeper.is_due_after(epoch))
    return position


def _train_step(run: Assembly, position: Position, batch: Batch, lr: float) -> None:
    """One optimizer step, written down."""
    config, step, scaler = run.config, position.step, run.replica.scaler
    run.agreement.ask(run.keeper.is_overdue())
    measure = (step - 1) % config.measure_every == 0 or (scaler is not None and scaler.unmeasured)
    run.algorithm.setup.optimizer.adjust(**run.schedule.settings(step))
    run.algorithm.begin(step, position.epoch, lr, measure)
    loss, accuracy = run.replica.compute_gradient(batch, run.watch, run.algorithm.on_last_backward)
    usable = run.replica.check_usable(run.watch)
    traffic = run.algorithm.finish() if usable else NOTHING_SENT
    if scaler is not None:
        scaler.unmeasured = measure and not usable
    traffic = dataclasses.replace(traffic, sent_bytes=traffic.sent_bytes + run.replica.take_extra_bytes())
    wanted = run.agreement.answer()
    with run.watch(MEASURE):
        withheld = run.algorithm.measure_withheld() if measure else None
        if run.algorithm.replicated and config.check_every and step % config.check_every == 0:
            run.replica.require_same(f"step {step}: the weights")
    run.recorder.record_step(step, position.epoch, lr, batch.total, loss, accuracy, run.watch, traffic, withheld)
    _save_or_stop(run, position, wanted, run.keeper.is_due(step))


def _save_or_stop(run: Assembly, position: Position, wanted: int, due: bool) -> None:
    """Save where the workers want it or it is `due`.

    Raises:
        Stopped: they want to stop.
        UsageError: they want to stop, and it could not be saved.
    """
    if wanted != NOTHING or due:
        run.keeper.save(position, required=wanted == STOP)
    if wanted == STOP:
        raise Stopped(f"SIGUSR1: saved at step {position.step}; a resume goes on from there")
