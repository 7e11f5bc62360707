"""What tests run on real ranks: `mpirun -n W python -m tests.trainers.ranks NAME [ARGUMENT...]`."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI

import compressors
from compressors import Key, memory
from tests.trainers.arrays import random_arrays
from trainers import config as options
from trainers import exchange, models
from trainers.data.batches import Shard
from trainers.flat import Flat, Unit
from trainers.loop import compute_gradient
from trainers.stopwatch import Stopwatch

COMBINATIONS = [("none", "allreduce"), ("none", "allgather"), ("qsgd", "allgather"), ("svd", "allgather")]


def exchange_of(name: str, exchange_name: str, units: list[Unit], memory_name: str = "none") -> exchange.Exchange:
    config = options.GROUPS["exchange"][exchange_name]()
    return exchange.build(
        config, MPI.COMM_WORLD, units, compressors.build(name), memory.build(memory_name), 5, Stopwatch()
    )


def gradients() -> None:
    """The exchanged gradient of each global batch against a single process that sees all of it."""
    comm = MPI.COMM_WORLD
    arrays = random_arrays(2 * 48 + 2)  # the last batch has 2 samples: some worker has fewer, or none
    for granularity in ("layer", "bucket", "model"):
        for exchange_name in ("allreduce", "allgather"):
            torch.manual_seed(1)
            model = models.build(options.MLP(width=33), arrays.shape, 10)
            flat, watch = Flat(model), Stopwatch()
            exchanger = exchange_of("none", exchange_name, flat.units(granularity, 0.01))
            shard, alone = (Shard(arrays, 48, 3, rank, size) for rank, size in ((comm.rank, comm.size), (0, 1)))
            for step, (batch, whole) in enumerate(zip(shard.epoch(1), alone.epoch(1), strict=True), 1):
                compute_gradient(model, flat, batch, comm.size, watch)
                exchanger.mean(step)
                mine = flat.gradients.clone()
                assert len(whole.labels) == whole.total == batch.total
                compute_gradient(model, flat, whole, 1, watch)
                error = float((mine - flat.gradients).abs().max() / flat.gradients.abs().max())
                assert error < 1e-6, (granularity, exchange_name, step, error)


def same_mean() -> None:
    """All ranks end with the same bits, and these are the mean of what each rank's payload decodes to."""
    comm = MPI.COMM_WORLD

    def tensor(rank: int) -> torch.Tensor:
        return torch.randn(30, 41, generator=torch.Generator().manual_seed(rank))

    for name, exchange_name in COMBINATIONS:
        compressor = compressors.build(name)
        unit = Unit(0, "w", tensor(comm.rank))
        exchange_of(name, exchange_name, [unit]).mean(9)
        expected = torch.zeros(30, 41)
        for rank in range(comm.size):
            key = Key(5, rank, 9, 0)
            compressor.decompress_add(compressor.compress(tensor(rank), key), expected, key, 1 / comm.size)
        assert torch.allclose(unit.gradient, expected, atol=1e-6), (name, exchange_name)
        everyone = np.empty((comm.size, 30, 41), dtype=np.float32)
        comm.Allgather(unit.gradient.numpy(), everyone)
        assert (everyone == everyone[0]).all(), (name, exchange_name)


def traffic(folder: str) -> None:
    """A few exchanges of every kind; each rank writes the bytes that it believes to have sent."""
    comm = MPI.COMM_WORLD
    sent = 0.0
    for name, exchange_name in COMBINATIONS:
        generator = torch.Generator().manual_seed(comm.rank)
        shapes = [(16, 27), (33,), (40, 50), (7,)]
        units = [Unit(i, str(i), torch.randn(shape, generator=generator)) for i, shape in enumerate(shapes)]
        exchanger = exchange_of(name, exchange_name, units, "residual")
        for step in range(1, 4):
            result = exchanger.mean(step)
            sent += result.sent_bytes
            share = (comm.size - 1) * (1 if exchange_name == "allgather" else 2 / comm.size)
            assert result.sent_bytes == share * result.payload_bytes, (name, exchange_name)
    Path(folder, f"believed-{comm.rank}.txt").write_text(str(sent))


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
