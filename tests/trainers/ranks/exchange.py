"""What tests run on real ranks: `mpirun -n W python -m tests.trainers.ranks.exchange NAME [ARGUMENT...] [+ NAME ...]`.

Starting ranks costs seconds a rank, more than most of what they do: functions that need the same number of ranks are
called one after the other (`+`), and leave nothing changed behind them.
"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import compressors
from compressors import Key, memories
from compressors.base import Cooperative
from compressors.policy.lgreco import LGreCo
from compressors.policy.policy import Policy, Selector
from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from tests.trainers.ranks.sent_bytes import Sent
from trainers.config import groups
from trainers.config import run_config as options
from trainers.data.batches import Shard
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange import base as exchange
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Unit
from trainers.options import exchanges
from trainers.replica.replica import Replica


def exchange_of(
    method: str | compressors.Compressor,
    exchange_name: str,
    units: list[Unit],
    memory_name: str = "none",
    **policy: Any,
) -> exchange.Exchange:
    tested = {
        "overlap": os.environ.get("TESTED_OVERLAP") == "true",
        "transport": os.environ.get("TESTED_TRANSPORT", "mpi"),
    }
    config = groups.GROUPS["exchange"][exchange_name](**tested if exchange_name != "sharded" else {})
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    compressor = compressors.build(method) if isinstance(method, str) else method
    selector = Selector(Policy(**policy), compressor, described, MPI.COMM_WORLD.size)
    return build_exchange(config, MPI.COMM_WORLD, units, selector, memories.build(memory_name), 5, Stopwatch())


def gradients() -> None:
    """The exchanged gradient of each global batch against a single process that sees all of it."""
    comm = MPI.COMM_WORLD
    arrays = random_arrays(2 * 48 + 2)  # the last batch has 2 samples: some worker has fewer, or none
    for granularity in ("layer", "bucket", "model"):
        for exchange_name in ("allreduce", "allgather", "mixed"):
            config = options.parse(compose_config(model={"width": 33}, workers=comm.size))
            replica, watch = Replica(config, arrays.shape, 10, comm), Stopwatch()
            flat = replica.flat
            exchanger = exchange_of("none", exchange_name, flat.cut_units(granularity, 0.01))
            shard, alone = (Shard(arrays, 48, 3, rank, size) for rank, size in ((comm.rank, comm.size), (0, 1)))
            for step, (batch, whole) in enumerate(zip(shard.read_epoch(1), alone.read_epoch(1), strict=True), 1):
                replica.compute_gradient(batch, watch)
                exchanger.mean(step)
                mine = flat.gradients.clone()
                assert len(whole.labels) == whole.total == batch.total
                replica.comm = MPI.COMM_SELF
                replica.compute_gradient(whole, watch)
                replica.comm = comm
                error = float((mine - flat.gradients).abs().max() / flat.gradients.abs().max())
                assert error < 1e-6, (granularity, exchange_name, step, error)


def exchange_for(compressor: compressors.Compressor) -> str:
    return "allreduce" if compressor.summable or isinstance(compressor, Cooperative) else "allgather"


def same_mean(*names: str) -> None:
    """All ranks end with the same bits, and these are the mean of what each rank's payload decodes to.

    For all compressors, or those named; a cooperative one has no payloads of single workers to compare with.
    """
    comm = MPI.COMM_WORLD
    for name in names or tuple(compressors.registry()):
        compressor = compressors.build(name)
        for exchange_name in (exchange_for(compressor), "mixed"):
            unit = Unit(0, "w", tensor(comm.rank), torch.zeros(30, 41))
            exchanger = exchange_of(name, exchange_name, [unit])
            for step in (1, 2):
                unit.gradient.copy_(tensor(comm.rank))
                exchanger.mean(step)
                everyone = np.empty((comm.size, 30, 41), dtype=np.float32)
                comm.Allgather(unit.gradient.numpy(), everyone)
                assert (everyone == everyone[0]).all(), (name, exchange_name, step)
                if step == 1 and not isinstance(compressor, Cooperative):
                    expected = mean_in_one_process(name)
                    error = float((unit.gradient - expected).abs().max() / expected.abs().max())
                    assert error < (0.01 if "16" in str(compressor.sum_dtype) else 1e-5), (name, exchange_name, error)


def senders() -> None:
    """All ranks end with the same mean over those who sent an element, beside units that are averaged over all."""
    comm = MPI.COMM_WORLD
    for name, given in (("topk", {"ratio": 0.1}), ("chunk_topk", {"k": 5, "block": 8}), ("demo", {"k": 5})):
        for mean in ("all", "senders"):
            method = compressors.build(name, **given, mean=mean)
            for exchange_name in ("allgather", "mixed"):
                units = [Unit(i, str(i), torch.zeros(30, 41), torch.zeros(30, 41)) for i in range(3)]
                only = [{"match": "1", "compressor": {"name": "topk", "ratio": 0.2}}]
                exchanger = exchange_of(method, exchange_name, units, "residual", patterns=only)
                for step in (1, 2, 3):
                    for unit in units:
                        unit.gradient.copy_(tensor(10 * step + comm.rank))
                    exchanger.mean(step)
                    if step == 1:
                        first = [unit.gradient.clone() for unit in units]
                    mine = torch.stack([unit.gradient for unit in units]).numpy()
                    everyone = np.empty((comm.size, *mine.shape), dtype=np.float32)
                    comm.Allgather(mine, everyone)
                    assert (everyone == everyone[0]).all(), (name, mean, exchange_name, step)
                for unit, found in zip(units, first, strict=True):
                    used = compressors.build("topk", ratio=0.2) if unit.index == 1 else method
                    keys = [Key(5, rank, 1, unit.index) for rank in range(comm.size)]
                    payloads = [used.compress(tensor(10 + rank), key) for rank, key in enumerate(keys)]
                    expected = torch.zeros(30, 41)
                    if used.averages:
                        used.average(payloads, expected, keys[0])
                    else:
                        for payload, key in zip(payloads, keys, strict=True):
                            used.decompress_add(payload, expected, key, 1 / comm.size)
                    assert torch.equal(found, expected), (name, mean, exchange_name, unit.index)


def tensor(rank: int) -> torch.Tensor:
    return torch.randn(30, 41, generator=torch.Generator().manual_seed(rank))


def mean_in_one_process(name: str) -> torch.Tensor:
    """What the workers should end with after their first step, computed from all their tensors."""
    workers = MPI.COMM_WORLD.size
    members = [compressors.build(name) for _ in range(workers)]
    keys = [Key(5, rank, 1, 0) for rank in range(workers)]
    for member in members:
        member.join(workers)
    if members[0].needs_agreement(keys[0]):
        everyone = [member.statistics(tensor(r), keys[r]) for r, member in enumerate(members)]
        for member, key in zip(members, keys, strict=True):
            member.agree(key, torch.stack(everyone).amax(0))
    mean = torch.zeros(30, 41)
    for rank, (member, key) in enumerate(zip(members, keys, strict=True)):
        member.decompress_add(member.compress(tensor(rank), key), mean, key, 1 / workers)
    members[0].finish(mean, keys[0], workers)
    return mean


SHAPES = [(16, 27), (33,), (40, 50), (7,), (1,)]


def traffic(*names: str) -> None:
    """In a few steps of every kind of exchange MPI has sent the bytes that the ranks believe to have sent."""
    comm = MPI.COMM_WORLD
    for name in names or tuple(compressors.registry()):
        compressor = compressors.build(name)
        for exchange_name in (exchange_for(compressor), "mixed"):
            generator = torch.Generator().manual_seed(comm.rank)
            units = [
                Unit(i, str(i), torch.randn(shape, generator=generator), torch.zeros(shape))
                for i, shape in enumerate(SHAPES)
            ]
            keeps = "none" if compressor.scale_free else "residual"
            exchanger = exchange_of(name, exchange_name, units, keeps, dense_1d=exchange_name == "mixed")
            with Sent() as sent:
                for step in range(1, 4):
                    sent.believed += exchanger.mean(step).sent_bytes
            sent.require_equal((name, exchange_name))


def lgreco() -> None:
    """Ranks with other gradients choose the same options, within the error of the uniform one; bytes are counted."""
    comm = MPI.COMM_WORLD
    for name, option, values, exchange_name in (
        ("topk", "ratio", [0.003, 0.03, 0.1], "allgather"),
        ("qsgd", "levels", [1, 3, 127], "sharded"),
        ("powersgd", "rank", [1, 3], "allreduce"),
    ):
        generator = torch.Generator().manual_seed(comm.rank)
        units = [Unit(i, str(i), torch.zeros(shape), torch.zeros(shape)) for i, shape in enumerate(SHAPES)]
        rule = LGreCo(option, values, interval=3)
        exchanger = exchange_of(
            name, exchange_name, units, "residual", lgreco=rule, dense_1d=exchange_name != "sharded"
        )
        selector, payloads, chosen, errors = exchanger.selector, [], [], []
        with Sent() as sent:
            for step in range(1, 10):
                for unit in units:
                    drawn = torch.randn(unit.gradient.shape, generator=generator)
                    unit.gradient.copy_(drawn * 10.0 ** (-unit.index))
                due = selector.is_due
                assert due == (step in (4, 7)), (name, step)
                if due:
                    errors.append(selector.measure(Key(5, comm.rank, step, 0))[0])
                traffic = exchanger.mean(step)
                sent.believed += traffic.sent_bytes
                payloads.append(traffic.payload_bytes)
                chosen.append(list(selector.state_dict()["allocation"]["chosen"]))
        sent.require_equal((name, exchange_name))
        everyone = np.empty((comm.size, len(chosen), len(units)), dtype=np.int64)
        comm.Allgather(np.array(chosen), everyone)
        assert (everyone == everyone[0]).all() and chosen[0] == chosen[2] == [0] * len(units) != chosen[3], (
            name,
            chosen,
        )
        taking_part = range(len(units)) if exchange_name == "sharded" else [0, 2]
        for at, mine in zip((3, 6), errors, strict=True):
            of_all = np.empty_like(mine.numpy())
            comm.Allreduce(mine.numpy(), of_all)
            found = sum(row[chosen[at][unit]] for row, unit in zip(of_all, taking_part, strict=True))
            assert found <= of_all[:, 0].sum(), (name, at)
        assert payloads[4] < payloads[1], (name, payloads)


def algorithms() -> None:
    """With every algorithm of sums MPI has sent the bytes that the ranks believe to have sent; the mean is right."""
    comm = MPI.COMM_WORLD
    expected = torch.stack([torch.arange(41.0) + rank for rank in range(comm.size)]).mean(0)
    counts = {}
    for algorithm in (None, *exchanges.ALLREDUCES):
        for name, overlap in (("none", False), ("none", True), ("fp16", False), ("powersgd", False), ("intsgd", True)):
            compressor = compressors.build(name)
            units = [Unit(i, str(i), torch.zeros(n, 41), torch.zeros(n, 41)) for i, n in enumerate((700, 30, 1))]
            for unit in units:
                unit.gradient[:] = torch.arange(41.0) + comm.rank
            selector = Selector(
                Policy(), compressor, [(unit.name, tuple(unit.gradient.shape)) for unit in units], comm.size
            )
            config = exchanges.Mixed(allreduce=algorithm, overlap=overlap, part_mib=2**14 / 2**20)
            exchanger = build_exchange(config, comm, units, selector, memories.build("none"), 5, Stopwatch())
            with Sent() as sent:
                sent.believed += exchanger.mean(1).sent_bytes
            sent.require_equal((name, algorithm, overlap))
            exchanger.close()
            exchanger.close()
            assert name != "none" or all(torch.allclose(unit.gradient, expected) for unit in units)
            counts[algorithm, name, overlap] = comm.allreduce(sent.counted)
    for name, overlap in (("none", False), ("none", True), ("fp16", False)):
        found = {algorithm: counts[algorithm, name, overlap] for algorithm in (None, *exchanges.ALLREDUCES)}
        assert found[None] == found["ring"], "the ring of mpi.environment"
        other = {3: "rabenseifner", 4: "recursive_doubling"}.get(comm.size, "ring")
        assert comm.size == 2 or found[other] > found["ring"], found


def uneven_bytes() -> None:
    """What a step sends is counted by hand: dense biases are summed, quantised weights gathered."""
    comm = MPI.COMM_WORLD
    units = [Unit(i, str(i), torch.ones(shape), torch.zeros(shape)) for i, shape in enumerate([(16, 27), (33,)])]
    result = exchange_of("qsgd", "mixed", units, dense_1d=True).mean(1)
    weights, biases = 4 + 16 * 27 // 2, 4 * 33
    assert result.payload_bytes == weights + biases
    assert result.sent_bytes == (comm.size - 1) * weights + 2 * (comm.size - 1) / comm.size * biases
    assert all((unit.gradient == 1).all() for unit in units)


def main(functions: dict[str, Any]) -> None:
    """Call those of `functions` that the command line names, one after the other; a failure ends all ranks."""
    try:
        for _, words in itertools.groupby(sys.argv[1:], lambda word: word == "+"):
            name, *arguments = words
            if name == "+":
                continue
            if MPI.COMM_WORLD.rank == 0:
                print(name, *arguments, file=sys.stderr, flush=True)  # so that an error tells where it is
            functions[name](*arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main(globals())
