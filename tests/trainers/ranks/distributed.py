"""torch.distributed as transport: `mpirun -n W python -m tests.trainers.ranks.distributed NAME [ARGUMENT...]`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from mpi4py import MPI

from tests.trainers.ranks import exchange as ranks
from tests.trainers.ranks.exchange import main
from tests.trainers.ranks.overlap import same, small_parts, trained

COMM = MPI.COMM_WORLD
TOLERANCE = {"none": 1e-6, "fp16": 1e-3, "bf16": 5e-3, "powersgd": 1e-3, "policy": 1e-6}
"""By how much parameters may differ from those with MPI, as a part of their norm; of all others, by no bit."""


def alike(*kinds: str) -> None:
    """A run has the numbers and bytes that it has with MPI, up to the order of sums, and with overlap the same bits."""
    small_parts()
    environment = dict(os.environ)
    for kind in kinds:
        with pytest.MonkeyPatch.context() as monkeypatch:
            by_mpi = trained(kind, False, monkeypatch)
        assert "trainers.exchange.torch_transport" not in sys.modules or kind != kinds[0]
        runs = []
        for overlap in (False, True):
            with pytest.MonkeyPatch.context() as monkeypatch:
                runs.append(trained(kind, overlap, monkeypatch, "torch"))
            assert not torch.distributed.is_initialized()
        first, second = runs
        for name, value in first.items():
            assert same(value, second[name]), (kind, name)
        difference = float((first["values"] - by_mpi["values"]).norm() / by_mpi["values"].norm())
        assert difference <= TOLERANCE.get(kind, 0.0), (kind, difference)
        for ours, theirs in zip(first["sent"], by_mpi["sent"], strict=True):
            if kind != "gtopk":  # sends lengths, too
                assert ours.payload_bytes == theirs.payload_bytes, (kind, ours, theirs)
                assert ours.sent_bytes == pytest.approx(theirs.sent_bytes, rel=1e-3), (kind, ours, theirs)
    assert dict(os.environ) == environment


def means(overlap: str, *names: str) -> None:
    """The mean is a mean, of units that leave in parts."""
    os.environ.update(TESTED_OVERLAP=overlap, TESTED_TRANSPORT="torch")
    small_parts()
    ranks.same_mean(*names)
    ranks.senders()
    assert torch.distributed.get_backend() == "gloo"


def swapped_bytes() -> None:
    """A swap sends its payload and how long that is."""
    from trainers.devices.stopwatch import Stopwatch
    from trainers.exchange.torch_lanes import SIZE_BYTES
    from trainers.exchange.torch_transport import TorchTransport, connect

    transport = TorchTransport(connect(COMM, torch.device("cpu")), Stopwatch())
    lane = transport.build_rounds_lane(transport.build_queue(False))
    lane.begin()
    partner = {0: 1, 1: 0}.get(COMM.rank)
    for lengths in ((5, 3), (0, 4), (0, 0)):
        sent = torch.full((lengths[COMM.rank % 2],), COMM.rank, dtype=torch.uint8)
        before = lane.sent_bytes
        received = lane._swap(partner, sent)
        expected = [] if partner is None else [partner] * lengths[partner]
        assert received.tolist() == expected
        assert lane.sent_bytes - before == (0 if partner is None else len(sent) + SIZE_BYTES)
    transport.close()


def unaddable() -> None:
    """What the backend cannot add is told in one line."""
    from gradsweep.errors import UsageError
    from trainers.devices.stopwatch import Stopwatch
    from trainers.exchange.torch_transport import TorchTransport, connect

    transport = TorchTransport(connect(COMM, torch.device("cpu")), Stopwatch())
    with pytest.raises(UsageError) as raised:
        transport.build_sum_lane("int16", transport.build_queue(False))
    assert str(raised.value).startswith("exchange.transport=torch: gloo cannot add int16: ")
    assert "\n" not in str(raised.value)
    transport.close()


def whole() -> None:
    """A run from its config to result.json, with a checkpoint, and what is left of torch.distributed afterwards."""
    from tests.trainers.arrays import random_arrays
    from tests.trainers.configs import compose_config
    from trainers import data
    from trainers.config import run_config as options
    from trainers.data.batches import Shard
    from trainers.rules.resolve import resolve
    from trainers.training import loop

    results = []
    for transport in ("mpi", "torch"):
        changes = {"exchange": {"name": "auto", "transport": transport}, "compressor": "qsgd", "memory": "residual"}
        config = options.parse(resolve(compose_config(workers=COMM.size, epochs=2, batch={"size": 12}, **changes)))
        feed = Shard(random_arrays(26, 20), 12, 3, COMM.rank, COMM.size)
        folder = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(data, "build_feed", lambda *_, feed=feed: feed)
            results.append(loop.train(config, COMM, Path(folder)))
        assert not torch.distributed.is_initialized()
    by_mpi, by_gloo = results
    assert "transport" not in by_mpi and by_gloo["transport"] == "gloo"
    for key in ("loss", "accuracy", "payload_bytes", "sent_bytes", "steps"):
        assert by_mpi[key] == by_gloo[key], key


def on_gpus() -> None:
    """NCCL: the mean of the payloads, on every GPU, with messages that never leave it."""
    from compressors import Key, build, memories
    from compressors.policy.policy import Policy, Selector
    from trainers.config import groups
    from trainers.devices.stopwatch import Stopwatch
    from trainers.exchange.build import build_exchange
    from trainers.gradients.flat import Unit
    from trainers.lanes.base import MessageLane
    from trainers.mpi import staging

    device = torch.device("cuda", COMM.rank)
    torch.cuda.set_device(device)
    staging.use(device, direct=False)
    small_parts()
    shapes = [(16, 27), (33,), (400, 50), (7,), (1,)]
    everyone = [[torch.randn(shape, generator=seeded(rank)) for shape in shapes] for rank in range(COMM.size)]
    for name in ("none", "fp16", "qsgd", "topk", "adaptive_threshold", "powersgd"):
        for overlap in (False, True):
            units = [
                Unit(i, str(i), torch.zeros(shape).to(device), torch.zeros(shape).to(device))
                for i, shape in enumerate(shapes)
            ]
            described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
            selector = Selector(Policy(), build(name), described, COMM.size)
            carrier = groups.GROUPS["exchange"]["mixed"](overlap=overlap, transport="torch")
            exchanger = build_exchange(carrier, COMM, units, selector, memories.build("none"), 5, Stopwatch())
            assert exchanger.transport.described["transport"] == "nccl"
            for step in (1, 2, 3):
                for unit, mine in zip(units, everyone[COMM.rank], strict=True):
                    unit.gradient.copy_(mine)
                exchanger.mean(step)
            for lane in exchanger._lanes.values():
                assert not isinstance(lane, MessageLane) or lane.message.device == device
            if name != "powersgd":
                compressor = build(name)
                for unit in units:
                    expected = torch.zeros(shapes[unit.index])
                    for rank in range(COMM.size):
                        key = Key(5, rank, 3, unit.index)
                        payload = compressor.compress(everyone[rank][unit.index], key)
                        compressor.decompress_add(payload, expected, key, 1 / COMM.size)
                    assert torch.allclose(unit.gradient.cpu(), expected, rtol=1e-3, atol=1e-3), (name, overlap)
    exchanger.close()


def seeded(rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(rank)


if __name__ == "__main__":
    main(globals())
