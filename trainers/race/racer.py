"""A run in a race, which takes its steps in blocks; in between, the other runs of its heat take theirs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from compressors.kernels import backend
from gradsweep.csv_columns import PHASES
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch
from trainers.devices import core_time, memory
from trainers.devices.generators import get_generators, set_generators
from trainers.options.algorithms import LocalSGD
from trainers.options.optimizers import ZeroOneAdam
from trainers.training.assembly import build_worker

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.config.epochs import Epochs


FREE = 0.1
"""Part of the free memory that stays free."""


def find_first_step(config: RunConfig, epochs: Epochs) -> int:
    """Return the first step (from 1) from which on the cost of a step no longer changes.

    Before it, a warm-up of the policy or of a compressor (PowerSGD's start_step) may send more, images may be smaller,
    and post-local SGD synchronises.
    """
    policy = config.policy
    warmup = {"none": 0, "exponential": policy.warmup_epochs, "list": len(policy.warmup_ratios)}[policy.warmup]
    epoch = max(warmup, config.completed_phases[-1].epoch)
    local = config.algorithm.from_step if isinstance(config.algorithm, LocalSGD) else 1
    late = max(getattr(one, "start_step", 0) for one in policy.list_possible(config.compressor))
    return max(round(epochs.count_steps_until(epoch)) + 1, policy.start_step, late, local)


def has_room(comm: MPI.Intracomm, device: torch.device, size: float) -> bool:
    """Tell whether `size` more bytes of every rank fit into the memory that ranks share. All workers call this.

    Ranks with the same kernel share the memory of its machine, also those on different emulated hosts or in different
    containers; ranks with the same GPU share its memory.
    """
    from mpi4py import MPI

    place = core_time.read_kernel_id() or MPI.Get_processor_name(), memory.identify_gpu(device)
    wanted = sum(more for other, more in comm.allgather((place, size)) if other == place)
    return bool(comm.allreduce(wanted < (1 - FREE) * memory.measure_free_bytes(device), MPI.LAND))


def explain_unraceable(config: RunConfig) -> str | None:
    """Return the setting that prevents a run from racing, and why; None if the run can race."""
    if config.exchange.asynchronous:
        return "exchange.mode=asynchronous: its workers do not take turns"
    if config.exchange.servers:
        return "exchange.placement=dedicated: its server has a rank of its own"
    if getattr(config.exchange, "backup", 0):
        return f"exchange.backup={config.exchange.backup}: its workers may be in different steps"
    if isinstance(config.optimizer, ZeroOneAdam):
        return "optimizer=zero_one_adam: what it exchanges depends on how far the training is"
    if config.policy.accordion.option is not None:
        return "policy.accordion: how it compresses depends on the course of a whole training"
    if config.policy.lgreco.option is not None:
        return "policy.lgreco: how it compresses depends on the course of a whole training"
    return None


class Racer:
    """One run of a race on this worker, which takes turns with other runs.

    It computes the same as alone, to the bit: it has its own replica, memories, data and communicator, and during its
    turns also its own state of the process (torch's generators, the choice of kernels). All workers call each method
    together.

    Args:
        config: of the run.
        comm: one rank for each worker.
        like: a racer of the same run with another exchange, whose data and model this one shares. Its parameters are
            then not those of the run, but its steps take the same time.
        rate: factor of the learning rate.

    Raises:
        UsageError: the run cannot be built.
    """

    def __init__(self, config: RunConfig, comm: MPI.Intracomm, *, like: Racer | None = None, rate: float = 1.0) -> None:
        self.config, self._comm, self._rate, self._shares = config, comm.Dup(), rate, like is not None
        self._generators: dict[str, torch.Tensor] = {}
        self._bytes_before = memory.measure_used_bytes()
        with self._turn():
            if like is None:
                self.worker = build_worker(config, self._comm)
            else:
                self.worker = like.worker.change_exchange(config, self._comm)
        self._period = getattr(config.algorithm, "steps", 1)
        self.step = find_first_step(config, self.worker.schedule.epochs) - 1
        """The last step that was taken."""
        self.is_lost = False
        """Whether this worker's share of a loss was not finite."""
        self.warm_step_s = 0.0
        self.bytes = 0
        """Of the memory of its device that it takes, about."""
        self._taken = 0
        self._sums = np.zeros(3)
        """Sums over the steps that were taken: samples, bytes of messages, bytes that were sent."""
        self._batches: Generator[tuple[int, Batch]] = self._read_batches() if like is None else like._batches
        self._steps = self._take_steps()

    def count_timed_steps(self, least: int) -> int:
        """Return the number of timed steps in a block: at least `least`, and a multiple of the steps between two
        exchanges."""
        return -(-least // self._period) * self._period

    def warm_up(self, steps: int = 4) -> None:
        """Take untimed steps, which load kernels and allocate memory, and then time `steps` steps."""
        if not self._shares:
            self.take_block(max(self.config.warmup_steps - 6, 1) if steps > 1 else 1)
        self.warm_step_s = float(self.take_block(steps)[0])
        kind = self.worker.device.type
        self.bytes = memory.measure_used_bytes()[kind] - self._bytes_before[kind]

    def take_block(self, timed: int, settling: int = 1) -> np.ndarray:
        """Take `settling` steps that do not count and `timed` more; return the mean of the latter, (1 + phases,).

        The first column is the seconds of a step, the others are those of its phases, in the order of PHASES.
        """
        with self._turn():
            for _ in range(settling):
                next(self._steps)
            return np.mean([next(self._steps) for _ in range(timed)], axis=0)

    def _read_batches(self) -> Generator[tuple[int, Batch]]:
        """Yield batches with their epochs, even beyond the end of the run; each starts a step of the stopwatch."""
        step, worker = self.step, self.worker
        epochs = worker.schedule.epochs
        while True:
            epoch = epochs.count_done(step + 1) + 1
            start = step - round(epochs.count_steps_until(epoch - 1))
            for batch in worker.watch.time_steps("data", worker.feed.read_epoch(epoch, start)):
                step += 1
                yield epoch, batch

    def _take_steps(self) -> Generator[list[float]]:
        """Take steps; yield the seconds of each step and of its phases."""
        worker = self.worker
        for epoch, batch in self._batches:
            self.step += 1
            lr = self._rate * worker.schedule.rate(min(self.step, worker.steps))
            taken = worker.take_step(self.step, epoch, batch, lr, measure=False)
            seconds = worker.watch.measure_step()
            self.is_lost |= not math.isfinite(taken.shares.read()[0])
            self._taken += 1
            self._sums += batch.total / self._comm.size, taken.traffic.payload_bytes, taken.traffic.sent_bytes
            yield [seconds, *(worker.watch.seconds.get(phase, 0.0) for phase in PHASES)]

    def measure_traffic(self) -> dict[str, Any]:
        """Return parameters, and per step a worker's samples, bytes and calls, with the names of result.json.

        They are means over steps and workers. All workers call this.
        """
        from mpi4py import MPI

        sums = self._sums.copy()
        self._comm.Allreduce(MPI.IN_PLACE, sums, MPI.SUM)
        means = sums / max(self._taken, 1) / self._comm.size
        return {
            "parameters": len(self.worker.replica.flat),
            **dict(zip(("samples", "payload_bytes", "sent_bytes"), means.tolist(), strict=True)),
            **self.worker.exchange.calls(self._taken),
        }

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Within the block, use the state of the process with which this run's last turn ended."""
        if self._generators:
            set_generators(self._generators, self.worker.device)
        with backend.use(self.config.kernels):
            yield
        self._generators = get_generators(self.worker.device)

    def close(self) -> None:
        """Free the memory, threads and communicator of the run."""
        self._steps.close()
        self.worker.algorithm.close()
        self.worker.exchange.close()
        if not self._shares:
            self._batches.close()
            self.worker.feed.close()
        del self.worker, self._batches
        self._comm.Free()
