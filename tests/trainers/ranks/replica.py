"""What tests of replicas run on real ranks: `mpirun -n W python -m tests.trainers.ranks.replica NAME`."""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import exchange_of, main
from trainers import models
from trainers.config import run_config as options
from trainers.data.batches import Shard
from trainers.data.feeds import Batch
from trainers.devices.stopwatch import Stopwatch
from trainers.gradients.flat import Unit
from trainers.options.sections import LossScale
from trainers.replica.precision import LossScaler, ScaleExhausted
from trainers.replica.replica import Replica
from trainers.rules.resolve import resolve
from trainers.training.loop import train

COMM = MPI.COMM_WORLD
SHAPE = (1, 8, 8)


class Norms(nn.Module):
    """Batch normalisation of images and of vectors, one after the other, so that errors of the gradient add up.

    The last one has a large eps: of two samples it would else make +1 and -1, whose gradient is all rounding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, stride=2, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 4, 3, padding=1),
            nn.BatchNorm2d(4, momentum=None),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 7), nn.BatchNorm1d(7, eps=1.0, affine=False), nn.Dropout(0.0), nn.Linear(7, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x * 3 + 20))  # a mean far from zero: sums of squares alone would lose digits


def replica(batch_norm: str, comm: MPI.Comm = COMM, **changes: Any) -> Replica:
    build = models.build
    models.build = lambda *_: Norms()  # type: ignore[assignment]
    try:
        config = options.parse(compose_config(workers=comm.size, batch_norm=batch_norm, **changes))
        return Replica(config, SHAPE, 10, comm)
    finally:
        models.build = build


def close(mine: torch.Tensor, theirs: torch.Tensor, what: object) -> None:
    error = float((mine - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3))
    assert error < 1e-5, (COMM.rank, what, error)


def synchronised() -> None:
    """W workers with their shares against one that has the whole batch, also where some have nothing."""
    arrays = random_arrays(2 * 24 + 2, 7)  # the last batch has 2 samples: uneven, and with 3 workers one has none
    watch = Stopwatch()
    together, alone = replica("synchronised"), replica("averaged", MPI.COMM_SELF)
    exchanger = exchange_of("none", "allreduce", together.flat.cut_units("model", 1.0))
    shard, whole = (Shard(arrays, 24, 3, rank, size) for rank, size in ((COMM.rank, COMM.size), (0, 1)))
    shares = set()
    for step, (mine, all_of_it) in enumerate(zip(shard.read_epoch(1), whole.read_epoch(1), strict=True), 1):
        shares.add(len(mine.labels))
        sums = np.array(together.compute_gradient(mine, watch).read())
        COMM.Allreduce(MPI.IN_PLACE, sums)
        exchanger.mean(step)
        expected = alone.compute_gradient(all_of_it, watch).read()
        assert np.allclose(sums, expected, rtol=1e-5), (step, sums, expected)
        close(together.flat.gradients, alone.flat.gradients, ("gradient", step))
        for (name, buffer), other in zip(together.model.named_buffers(), alone.model.buffers(), strict=True):
            close(buffer.double(), other.double(), (name, step))
        for one in (together, alone):
            one.flat.values.sub_(one.flat.gradients, alpha=0.05)
        assert together.take_extra_bytes() > 0 and together.take_extra_bytes() == 0
    assert COMM.size < 3 or 0 in shares or COMM.rank > 0
    together.require_same("the weights")
    everyone = COMM.allgather([buffer.tolist() for buffer in together.model.buffers()])
    assert all(one == everyone[0] for one in everyone)
    assert np.allclose(together.evaluate(shard)[:2], alone.evaluate(whole)[:2], rtol=1e-5)


def statistics() -> None:
    """What `averaged` and `local` make of running statistics at an evaluation."""
    arrays = random_arrays(24, 7)
    shard = Shard(arrays, 24, 3, COMM.rank, COMM.size)
    for kind in ("averaged", "local"):
        one = replica(kind)
        for batch in shard.read_epoch(1):
            one.compute_gradient(batch, Stopwatch())
        before = COMM.allgather(one.model.body[1].running_mean.numpy().copy())
        one.evaluate(shard)
        after = one.model.body[1].running_mean.numpy()
        assert not np.allclose(before[0], before[1])
        assert np.allclose(after, np.mean(before, axis=0) if kind == "averaged" else before[COMM.rank])


def overflow() -> None:
    """An Inf on one rank makes all leave the step out, and all have the same scale afterwards."""
    scaler = LossScaler(LossScale(initial=16.0, growth_interval=3))
    scales = []
    for step in range(8):
        gradients = torch.full((5,), 32.0)
        if step == 1 and COMM.rank == COMM.size - 1:
            gradients[3] = math.inf
        if step == 2 and COMM.rank == 0:
            gradients[0] = math.nan
        before = scaler.scale
        finite = scaler.unscale(gradients)
        assert finite == (step not in (1, 2) or COMM.rank != (COMM.size - 1 if step == 1 else 0))
        assert not finite or float(gradients[1]) == 32.0 / before
        assert scaler.agree(finite, COMM) == (step not in (1, 2))
        scales.append(scaler.scale)
    assert scales == [16, 8, 4, 4, 4, 8, 8, 8], scales
    assert scaler.skipped == 2 and scaler.sent_bytes > 0
    static = LossScaler(LossScale(initial=1024.0, dynamic=False, growth_interval=1))
    assert [static.agree(COMM.rank > 0, COMM), static.agree(True, COMM)] == [False, True] and static.scale == 1024
    hopeless = LossScaler(LossScale(initial=2.0))
    assert not hopeless.agree(COMM.rank > 0, COMM)
    try:
        hopeless.agree(False, COMM)
    except ScaleExhausted:
        return
    raise AssertionError("the scale went below 1")


def left_out_steps_move_nothing() -> None:
    """IntSGD takes its scale from how far the parameters have moved, in steps that were taken."""
    found = []
    for left_out in ([], [2, 3, 6]):
        values, gradient = torch.zeros(30), torch.zeros(30)
        unit = Unit(0, "w", gradient, values)
        exchanger = exchange_of("intsgd", "allreduce", [unit])
        alphas = []
        for step in range(1, 6 + len(left_out)):
            exchanger.begin(step, lr=0.1)
            if step in left_out:
                continue
            gradient.copy_(torch.arange(30.0) + len(alphas))
            exchanger.submit(unit)
            exchanger.finish()
            values.sub_(gradient, alpha=0.1)
            alphas.append(float(exchanger.selector.selected[0].unit_tensors[0]["alpha"]))  # type: ignore[attr-defined]
        found.append(alphas)
    assert found[0][:2] == found[1][:2] and len(set(found[0])) == 5
    assert np.allclose(found[0], found[1], rtol=0.03), found  # rounding is drawn by the step's number


def skipped(folder: str) -> None:
    """Training with a scale that must overflow at first: steps are left out alike, and weights stay the same on all."""
    config = options.parse(
        resolve(
            compose_config(
                workers=COMM.size,
                precision="fp16",
                max_steps=14,
                epochs=2,
                model={"width": 16},
                data={"root": folder},
                loss_scale={"initial": 2.0**28},
                compressor="topk",
                memory="residual",
            )
        )
    )
    result = train(config, COMM, Path(folder))
    assert result["status"] == "done", result["reason"]
    assert 4 <= result["skipped_steps"] <= 13 and result["steps"] == 14, result
    assert len(set(COMM.allgather(result["skipped_steps"]))) == 1
    if COMM.rank == 0:  # the first step, which is left out, was to be measured
        with (Path(folder) / "steps.csv").open() as file:
            rows = list(csv.DictReader(file))
        measured = [row["step"] for row in rows if row["compression_error"]]
        assert measured == [next(row["step"] for row in rows if float(row["payload_bytes"]))] != ["1"], rows
    never = dataclasses.replace(config, loss_scale=LossScale(initial=2.0**100, dynamic=False), epochs=1)
    result = train(never, COMM, Path(folder))
    assert result["skipped_steps"] == result["steps"] == 12 and result["payload_bytes"] == 0, result
    assert result["status"] == "diverged" and "in every step" in result["reason"], result


def empty() -> None:
    """A worker without samples has no gradient, and a loss of zero."""
    one = replica("synchronised")
    inputs = torch.randn(3, *SHAPE)
    nothing = COMM.rank == 0
    batch = Batch(inputs[:0] if nothing else inputs, torch.arange(0 if nothing else 3), 3 * (COMM.size - 1))
    loss, _ = one.compute_gradient(batch, Stopwatch()).read()
    norm = float(one.flat.gradients.norm())
    assert (loss == 0 and norm == 0) if nothing else (loss > 0 and norm > 0), (COMM.rank, loss, norm)


def pieced() -> None:
    """A batch in pieces: a worker with fewer samples than pieces takes part in the sums of the others' pieces."""
    one = replica("synchronised", batch={"accumulate": 3})
    expected = []
    for count in (0, 1, 2, 3, 7):
        mine = count if COMM.rank == 0 else 5
        total = COMM.allreduce(mine)
        batch = Batch(torch.randn(mine, *SHAPE), torch.arange(mine), total)
        called: list[bool] = []
        loss, _ = one.compute_gradient(batch, Stopwatch(), functools.partial(called.append, True)).read()
        expected.append(loss > 0 or mine == 0)
        assert len(called) == (mine > 0), (mine, called)
    assert all(expected)


def normalisation() -> None:
    synchronised()
    statistics()
    empty()
    pieced()


def scaling(folder: str) -> None:
    overflow()
    left_out_steps_move_nothing()
    skipped(folder)


if __name__ == "__main__":
    main(globals())
