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

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from compressors.kernels import backend
from compressors.parameters import InvalidParameter
from compressors.policy import Selector
from sweep.run import DIVERGED, DONE, FORMAT, bad_value
from trainers import data, exchange, models, schedules
from trainers.config import RunConfig, name_of
from trainers.data.batches import Batch, Shard
from trainers.flat import Flat
from trainers.optimizers import SGD
from trainers.recorder import Diverged, Recorder
from trainers.stopwatch import MEASURE, Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI


class DifferentWeights(RuntimeError):
    """The workers did not start from the same parameters."""


def train(config: RunConfig, comm: MPI.Comm, directory: Path) -> dict[str, Any]:
    """Train one run to its end; returns the content of result.json.

    Args:
        config: of the run, the same on all ranks.
        comm: one rank a worker.
        directory: of the run; rank 0 writes steps.csv and epochs.csv there.
    """
    began = time.perf_counter()
    arrays = data.load(name_of(config.dataset), Path(config.data.root))
    shard = Shard(arrays, config.global_batch, config.seed, comm.rank, comm.size)
    steps = config.steps(len(arrays.train_y))

    backend.choose(config.kernels)
    torch.manual_seed(config.seed)
    model = models.build(config.model, arrays.shape, arrays.classes)
    flat = Flat(model)
    _require_same(comm, flat.digest())
    torch.manual_seed(config.seed + 1 + comm.rank)  # dropout differs between workers

    watch = Stopwatch()
    units = flat.units(config.exchange.granularity, config.exchange.bucket_mib)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    try:
        config.policy.check_length(math.ceil(steps / shard.steps_per_epoch), steps)
        selector = Selector(config.policy, config.compressor, described, comm.size)
    except InvalidParameter as error:  # only now the names of the tensors and the number of samples are known
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error
    with hidden("scipy"):  # numba would load scipy's BLAS, which no kernel calls: a quarter of a second of CPU
        selector.warm_up(flat.gradients.device)
    exchanger = exchange.build(config.exchange, comm, units, selector, config.memory, config.seed, watch)
    optimizer = SGD(flat.values, flat.gradients, config.optimizer)
    recorder = Recorder(comm, directory, flat.gradients.nbytes, config.warmup_steps)

    step, reason = 0, None
    try:
        for epoch in range(1, config.epochs + 1):
            model.train()
            batches = itertools.islice(shard.epoch(epoch), steps - step)
            for batch in watch.steps("data", batches):
                step += 1
                measure = (step - 1) % config.measure_every == 0
                lr = config.optimizer.lr * schedules.factor(config.schedule, step, steps, shard.steps_per_epoch)
                loss, accuracy = compute_gradient(model, flat, batch, comm.size, watch)
                traffic = exchanger.mean(step, epoch=epoch, lr=lr, measure=measure)
                with watch("update"):
                    optimizer.step(lr)
                with watch(MEASURE):
                    withheld = config.memory.norm() if measure else None
                recorder.step(step, epoch, lr, batch.total, loss, accuracy, watch, traffic, withheld)
            recorder.combine()
            started = time.perf_counter()
            test_loss, test_accuracy = evaluate(model, shard, comm)
            recorder.epoch(epoch, step, lr, test_loss, test_accuracy, time.perf_counter() - started)
            if step == steps:
                break
    except Diverged as error:
        reason = str(error)
    return {
        "format": FORMAT,
        "status": DIVERGED if reason else DONE,
        "reason": reason,
        "parameters": len(flat),
        "kernels": dict(sorted(backend.used.items())),
        **recorder.figures(),
        "total_s": time.perf_counter() - began,
    }


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


def compute_gradient(model: nn.Module, flat: Flat, batch: Batch, workers: int, watch: Stopwatch) -> tuple[float, float]:
    """Fill the flat gradient with this worker's part; returns its parts of the mean loss and accuracy.

    The part is scaled by workers / batch.total, so that the mean over the workers is the gradient of
    the global batch also where the workers' shares differ in size.
    """
    if not len(batch.labels):
        with watch("backward"):
            flat.gradients.zero_()
        return 0.0, 0.0
    with watch("forward"):
        logits = model(batch.images)
        loss = F.cross_entropy(logits, batch.labels, reduction="sum") / batch.total
    with watch("backward"):
        flat.gradients.zero_()
        (loss * workers).backward()
        correct = (logits.detach().argmax(1) == batch.labels).sum()
    return float(loss.detach()), float(correct) / batch.total


@torch.no_grad()
def evaluate(model: nn.Module, shard: Shard, comm: MPI.Comm) -> tuple[float, float]:
    """Mean loss and accuracy over the test set, which the workers share among them.

    The running statistics of batch normalisation, which each worker has of its own batches, are
    averaged over the workers first, so that all judge the same model.
    """
    _average_buffers(model, comm)
    model.eval()
    sums = np.zeros(3)
    for images, labels in shard.test():
        logits = model(images)
        sums += (
            float(F.cross_entropy(logits, labels, reduction="sum")),
            float((logits.argmax(1) == labels).sum()),
            len(labels),
        )
    total = np.empty_like(sums)
    comm.Allreduce(sums, total)
    return float(total[0] / total[2]), float(total[1] / total[2])


def _average_buffers(model: nn.Module, comm: MPI.Comm) -> None:
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if not buffers or comm.size == 1:
        return
    mine = torch.cat([buffer.flatten() for buffer in buffers]).numpy()
    total = np.empty_like(mine)
    comm.Allreduce(mine, total)
    mean = torch.from_numpy(total).div_(comm.size)
    for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))


def _require_same(comm: MPI.Comm, digest: bytes) -> None:
    mine = np.frombuffer(digest, dtype=np.uint8)
    everyone = np.empty((comm.size, len(mine)), dtype=np.uint8)
    comm.Allgather(mine, everyone)
    different = [worker for worker in range(comm.size) if (everyone[worker] != everyone[0]).any()]
    if different:
        raise DifferentWeights(f"the initial weights of workers {different} differ from those of worker 0")
