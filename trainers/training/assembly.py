"""Builds the objects with which a worker trains, from the config of a run."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from compressors.kernels import backend
from gradsweep.errors import UsageError
from gradsweep.run_directory import FORMAT
from trainers import algorithms, data, tasks, topology
from trainers.algorithms.base import Algorithm, AlgorithmSetup
from trainers.checkpoint.keeper import Keeper
from trainers.checkpoint.state import Training
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch, Feed
from trainers.devices import choose
from trainers.devices.memory import MemoryMeter
from trainers.devices.stopwatch import Stopwatch
from trainers.devices.yardstick import Yardstick
from trainers.exchange.base import Exchange, Traffic
from trainers.exchange.build import build_exchange
from trainers.mpi.stopping import Agreement
from trainers.optimizers import schedules
from trainers.optimizers.base import Optimizer
from trainers.optimizers.schedules import Schedule
from trainers.optimizers.update import build_update_setup
from trainers.options.algorithms import Synchronous
from trainers.options.optimizers import ZeroOneAdam
from trainers.recording.progress import Progress
from trainers.recording.recorder import Listener, Recorder
from trainers.replica.replica import Replica, Shares
from trainers.rules import training
from trainers.trackers import Trackers
from trainers.training.code_loading import load_code
from trainers.training.memory_cost import explain_shortage, measure_cost, measure_parts

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.lanes.server.server_link import Link


class StepOutcome(NamedTuple):
    """The result of a worker's step: its shares of the mean loss and accuracy, which may not be computed yet, and its
    traffic."""

    shares: Shares
    traffic: Traffic


NOTHING_SENT = Traffic(0.0, 0.0, None)
"""The traffic of a step that is skipped because its gradient overflowed."""


@dataclasses.dataclass(frozen=True)
class Worker:
    """All objects with which one worker computes its steps; `steps` is their number in the whole run."""

    config: RunConfig
    device: torch.device
    feed: Feed
    steps: int
    replica: Replica
    watch: Stopwatch
    algorithm: Algorithm
    schedule: Schedule

    def take_step(self, step: int, epoch: int, batch: Batch, lr: float, measure: bool) -> StepOutcome:
        """Execute an optimizer step, from the batch to the new parameters. All workers call this.

        Args:
            step: from 1.
            epoch: from 1.
            lr: learning rate of the step.
            measure: compute the compression error, too.

        Raises:
            UsageError: a GPU has too little memory.
        """
        try:
            return self._take_step(step, epoch, batch, lr, measure)
        except torch.OutOfMemoryError as error:
            parts = measure_parts(self.replica, self.algorithm)
            pieces = self.config.batch.accumulate
            raise UsageError(explain_shortage(self.device, parts, batch.rows, pieces)) from error

    def _take_step(self, step: int, epoch: int, batch: Batch, lr: float, measure: bool) -> StepOutcome:
        self.optimizer.adjust(**self.schedule.settings(step))
        self.algorithm.begin(step, epoch, lr, measure)
        shares = self.replica.compute_gradient(batch, self.watch, self.algorithm.on_last_backward)
        usable = self.replica.check_usable(self.watch, measure)
        traffic = self.algorithm.finish() if usable else NOTHING_SENT
        sent_bytes = traffic.sent_bytes + self.replica.take_extra_bytes()
        return StepOutcome(shares, dataclasses.replace(traffic, sent_bytes=sent_bytes))

    def change_exchange(self, config: RunConfig, comm: MPI.Comm) -> Worker:
        """Return a worker with the exchange of `config` that shares data, model and stopwatch with this one.

        Its memory, optimizer and other state are its own. All workers call this.
        """
        algorithm = build_algorithm(config, comm, self.replica, self.watch)
        return dataclasses.replace(self, config=config, algorithm=algorithm)

    @property
    def exchange(self) -> Exchange:
        """The exchange by which the algorithm sends gradients or parameters."""
        return self.algorithm.setup.exchange

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer by which the algorithm updates parameters."""
        return self.algorithm.setup.optimizer


@dataclasses.dataclass(frozen=True)
class Assembly(Worker):
    """A worker's objects for a whole run: those that compute steps, and those that record, save and stop the run."""

    recorder: Recorder
    keeper: Keeper
    agreement: Agreement
    trackers: Trackers | None
    meter: MemoryMeter

    def build_result(self, status: str, reason: str | None) -> dict[str, Any]:
        """Return the content of result.json. All workers call this."""
        scaler = self.replica.scaler
        return {
            "format": FORMAT,
            "status": status,
            "reason": reason,
            "parameters": len(self.replica.flat),
            **choose.describe(self.device),
            **self.exchange.transport.described,
            "precision": self.config.precision,
            **({} if scaler is None else {"skipped_steps": scaler.skipped}),
            "kernels": dict(sorted(backend.used.items())),
            **self.recorder.figures(),
            **self.exchange.calls(self.recorder.steps_since_start),
            **(self.algorithm.figures() if self.recorder.comm.rank == 0 else {}),
            **measure_cost(self.meter, self.device, measure_parts(self.replica, self.algorithm), self.recorder.comm),
            "total_s": self.keeper.total_s,
        } | self._describe_text()

    def _describe_text(self) -> dict[str, Any]:
        """Return what result.json has of a text: tokens are its samples, and the least loss may be known."""
        if self.feed.kind != "text":
            return {}
        rate = self.recorder.figures()["samples_per_second"]
        least = self.feed.least_loss
        return {"tokens_per_second": rate, **({} if least is None else {"least_loss": least})}


def find_lag(config: RunConfig) -> int:
    """Return how many steps the allreduce of `Agreement` may take, so that no worker waits for it.

    That is 0 if all workers exchange by MPI in every step. Otherwise (local steps, neighbours, torch.distributed), they
    would wait for the network here alone. Open MPI sums a byte along a tree and back, in 2 log2(workers) rounds, and
    begins a round when it is called. So a round may take a step.
    """
    exchange_all = isinstance(config.algorithm, Synchronous) and not isinstance(config.optimizer, ZeroOneAdam)
    exchange_all &= getattr(config.exchange, "transport", "mpi") == "mpi"
    return 0 if exchange_all or config.workers == 1 else 1 + 2 * (config.workers - 1).bit_length()


def build_worker(config: RunConfig, comm: MPI.Comm, link: Link | None = None) -> Worker:
    """Build the objects with which a worker computes its steps, ready for the first step.

    Args:
        comm: the workers, without a dedicated server, to which `link` leads.

    Raises:
        UsageError: the data set, the device or an option does not go with the others.
    """
    feed = data.build_feed(config, comm.rank, comm.size)
    lengths = config.compute_epochs(feed.samples)
    training.check_length(config, feed.samples)
    backend.choose(config.kernels)
    device = choose.choose(config, comm)
    if comm.rank == 0 and (line := explain_kernels(config, device)) is not None:
        print(line, file=sys.stderr, flush=True)
    task = tasks.build(config.task, feed.kind, feed.task, feed.characters_per_token)
    replica = Replica(config, feed.shape, feed.classes, comm, device, task)
    watch = choose.create_stopwatch(device)
    algorithm = build_algorithm(config, comm, replica, watch, link)
    return Worker(config, device, feed, lengths.steps, replica, watch, algorithm, schedules.build(config, lengths))


def explain_kernels(config: RunConfig, device: torch.device) -> str | None:
    """Return a line about kernels that torch executes on a GPU, as there are none in Triton; None without any."""
    possible = config.policy.list_possible(config.compressor)
    modules = {module for compressor in possible for module in compressor.kernel_modules()}
    return backend.explain_lacking(modules.union(config.memory.kernel_modules()), device)


def assemble(config: RunConfig, comm: MPI.Comm, directory: Path, link: Link | None = None) -> Assembly:
    """Build all objects of a worker's training, ready for the first step or for a checkpoint's restoration.

    Args:
        comm: the workers, without a dedicated server, to which `link` leads.

    Raises:
        UsageError: the data set, the device or an option does not go with the others.
    """
    began = time.monotonic()
    if not choose.may_use_gpu(config):
        load_code(config)  # libraries do not count as memory of the run: in a packed world they are there already
    meter = MemoryMeter()
    worker = build_worker(config, comm, link)
    replica, algorithm = worker.replica, worker.algorithm
    trackers = Trackers(config, directory) if comm.rank == 0 else None
    listeners: list[Listener] = []
    if trackers is not None:
        listeners = [_build_progress(config, replica, worker.steps), trackers]
    recorder = Recorder(
        comm,
        directory,
        replica.flat.gradients.nbytes,
        config.warmup_steps,
        yardstick=Yardstick(comm, config.threads_per_worker, served=link is not None),
        whole_epochs=config.exchange.asynchronous,
        late=int(worker.device.type == "cuda"),
        listeners=listeners,
    )
    keeper = Keeper(config, comm, directory, Training(replica, algorithm, worker.schedule, recorder), began)
    agreement = Agreement(comm, max(algorithm.setup.exchange.may_lag, find_lag(config)))
    return Assembly(
        **vars(worker), recorder=recorder, keeper=keeper, agreement=agreement, trackers=trackers, meter=meter
    )


def build_algorithm(
    config: RunConfig, comm: MPI.Comm, replica: Replica, watch: Stopwatch, link: Link | None = None
) -> Algorithm:
    """Build the algorithm with its exchange and optimizer, ready for the first step."""
    units, selector, optimizer, clipping = build_update_setup(config, replica.flat)
    mixing = topology.build(config.topology, config.workers) if config.decentralised else None
    exchanger = build_exchange(
        config.exchange, comm, units, selector, config.memory, config.seed, watch, link=link, mixing=mixing
    )
    setup = AlgorithmSetup(comm, replica.flat, units, exchanger, optimizer, clipping, watch)
    return algorithms.build(config.algorithm, setup, asynchronous=config.exchange.asynchronous)


def _build_progress(config: RunConfig, replica: Replica, steps: int) -> Progress:
    """Return the printer of progress lines, after it has printed the first line."""
    progress = Progress(config.epochs, steps)
    progress.begin(
        f"{_name(config.model)} on {_name(config.dataset)}: {len(replica.flat):,} parameters, "
        f"{config.workers} worker{'s' * (config.workers > 1)} on {replica.device.type}, {config.precision}, "
        f"compressor {get_name(config.compressor)}, {steps} steps"
    )
    return progress


def _name(part: Any) -> str:
    """Return the name of a model or data set; of one of the user's own, its target."""
    return getattr(part, "target", None) or get_name(part)
