"""Training with compressed SGD on one rank: a gradient's way from the batch to the new parameters."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep.run_directory import DIVERGED, DONE, PREEMPTED
from trainers.checkpoint.keeper import Position
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch
from trainers.devices.stopwatch import MEASURE
from trainers.mpi.stopping import NOTHING, STOP
from trainers.recording.recorder import Diverged
from trainers.replica.hidden_state import keep_hidden_state
from trainers.replica.precision import ScaleExhausted
from trainers.training.assembly import Assembly, assemble
from trainers.training.evaluation import evaluate

if TYPE_CHECKING:
    from mpi4py import MPI


class Stopped(Exception):
    """The run was asked to stop and has been saved; raised on all workers."""


def train(config: RunConfig, comm: MPI.Comm, directory: Path) -> dict[str, Any]:
    """Train one run to its end, from its newest checkpoint if any, and return the content of result.json.

    After SIGUSR1 the run is saved and ends early, with the status `preempted`.

    Args:
        config: of the run, the same on all ranks.
        comm: one rank for each worker, and behind them one for a dedicated server.
        directory: of the run; rank 0 writes its CSVs there, and all ranks write checkpoints.

    Raises:
        UsageError: the checkpoint cannot be used, or the one that SIGUSR1 asked for could not be written.
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
        while position.step < run.steps or position.start:  # also finish an epoch that a checkpoint was taken in
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
    run.recorder.finish()
    run.agreement.close()
    run.exchange.close()
    if run.trackers is not None:
        run.trackers.finish(status)
    return run.build_result(status, reason)


def _train_epoch(run: Assembly, position: Position) -> Position:
    """Train the rest of an epoch, evaluate when due, and return the position of the next epoch."""
    epoch, lr = position.epoch, run.schedule.rate(max(position.step, 1))
    every_steps = run.config.evaluate_every_steps
    if not position.start:
        run.replica.model.train()  # resets a hidden state that was carried to the end of the text
    batches = itertools.islice(run.feed.read_epoch(epoch, position.start), run.steps - position.step)
    for batch in run.watch.time_steps("data", batches):
        position = Position(epoch, position.start + 1, position.step + 1)
        lr = run.schedule.rate(position.step)
        wanted = _train_step(run, position, batch, lr)
        if every_steps is not None and position.step % every_steps == 0 and position.step != run.steps:
            with keep_hidden_state(run.replica.model):
                _evaluate(run, position, lr)
        _save_or_stop(run, position, wanted, run.keeper.is_due(position.step))
    run.recorder.combine()
    if position.step == run.steps or (every_steps is None and epoch % run.config.evaluate_every == 0):
        _evaluate(run, position, lr)
    position = Position(epoch + 1, 0, position.step)
    if position.step < run.steps:
        run.agreement.ask(run.keeper.is_overdue())
        _save_or_stop(run, position, run.agreement.answer_all(), run.keeper.is_due_after(epoch))
    return position


def _evaluate(run: Assembly, position: Position, lr: float) -> None:
    """Evaluate the model after a step, and record it."""
    run.recorder.combine()
    epoch, started = position.epoch, time.perf_counter()
    loss, accuracy, metrics, local = evaluate(run.config.algorithm, run.algorithm, run.replica, run.feed, epoch)
    took_s = time.perf_counter() - started
    run.recorder.record_epoch(epoch, position.step, lr, loss, accuracy, took_s, local, metrics)
    run.schedule.observe(loss)


def _train_step(run: Assembly, position: Position, batch: Batch, lr: float) -> int:
    """Take one optimizer step and record it; return what the workers agreed on (trainers/mpi/stopping.py)."""
    step = position.step
    run.agreement.ask(run.keeper.is_overdue())
    measure = (step - 1) % run.config.measure_every == 0 or run.replica.owes_measurement
    taken = run.take_step(step, position.epoch, batch, lr, measure)
    wanted = run.agreement.answer()
    with run.watch(MEASURE):
        withheld = run.algorithm.measure_withheld() if measure else None
        if run.algorithm.replicated and run.config.check_every and step % run.config.check_every == 0:
            run.replica.require_same(f"step {step}: the weights")
    shares, traffic = taken
    have_met = run.recorder.record_step(
        step, position.epoch, lr, batch.total, shares.read, run.watch.end_step(), traffic, withheld
    )
    # MPI has gone on with all questions meanwhile; only the newest may still have to wait for the network.
    return max(wanted, run.agreement.answer_all(but=1)) if have_met else wanted


def _save_or_stop(run: Assembly, position: Position, wanted: int, due: bool) -> None:
    """Save a checkpoint if the workers agreed to or it is `due`, and stop if they agreed to.

    Args:
        wanted: what the workers agreed on (trainers/mpi/stopping.py).

    Raises:
        Stopped: the workers agreed to stop.
        UsageError: they agreed to stop, and the checkpoint could not be written.
    """
    if wanted != NOTHING or due:
        run.keeper.save(position, required=wanted == STOP)
        run.agreement.note_save()
    if wanted == STOP:
        raise Stopped(f"SIGUSR1: saved at step {position.step}; a resume goes on from there")
