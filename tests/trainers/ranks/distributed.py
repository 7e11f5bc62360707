"""torch.distributed as transport: `mpirun -n W python -m tests.trainers.ranks.distributed NAME [ARGUMENT...]`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from mpi4py import MPI

import compressors
from compressors import Key, memories
from compressors.policy.policy import Policy, Selector
from gradsweep.errors import UsageError
from tests.trainers.ranks import exchange as ranks
from tests.trainers.ranks import unit_owners
from tests.trainers.ranks.algorithms import Run
from tests.trainers.ranks.exchange import main
from tests.trainers.ranks.overlap import same, small_parts, trained
from trainers.config import groups
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Traffic
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Unit
from trainers.rules.compressors import MEMORY_RULES, RULES, Combination

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


EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("allgather", "mixed")},
    **{f"{name}, overlap": (name, {"overlap": True}) for name in ("allgather", "mixed")},
    **unit_owners.EXCHANGES,
}
METHODS: dict[str, dict[str, Any]] = {
    "topk": {"ratio": 0.1},
    "powersgd": {"rank": 2},
    "gaps": {"name": "topk", "ratio": 0.1, "indices": "delta"},  # the length of its payloads depends on the data
}
SIZES = [(40, 27), (33,), (30, 50), (7,), (1,)]


def exchanges_alike(*methods: str) -> None:
    """Means, states and bytes of every exchange are those with MPI."""
    from trainers.exchange.torch_transport import connect

    small_parts()
    connected = connect(COMM, torch.device("cpu"))  # once for all
    for kind in EXCHANGES:
        for method in methods:
            found = [steps_of(kind, method, transport) for transport in ("mpi", "torch")]
            if None in found:
                continue
            (means, state, sent), (others, other_state, other_sent) = found  # type: ignore[misc]
            ordered = method != "powersgd" or COMM.size == 2
            for mean, other in zip(means, others, strict=True):
                assert same(mean, other) if ordered else torch.allclose(mean, other, rtol=1e-3, atol=1e-3), (
                    kind,
                    method,
                )
            assert not ordered or same(state, other_state), (kind, method)
            for traffic, other_traffic in zip(sent, other_sent, strict=True):
                assert traffic.payload_bytes == other_traffic.payload_bytes, (kind, method)
                assert traffic.sent_bytes == pytest.approx(other_traffic.sent_bytes, rel=1e-3), (kind, method)
    connected.close()


def steps_of(kind: str, method: str, transport: str) -> tuple[list[torch.Tensor], Any, list[Traffic]] | None:
    """All means of three steps, the state after them, and what was sent; None if the exchange does not take the method.

    Gradients are small integers: their sums, also in 16 bits, are the same in any order.
    """
    name, values = EXCHANGES[kind]
    options = {"name": method, **METHODS.get(method, {})}
    compressor = compressors.build(options.pop("name"), **options)
    kept = memories.build("none" if compressor.unbiased or compressor.name == "sign" else "residual")
    config = groups.GROUPS["exchange"][name](**values, transport=transport)
    one = Combination(compressor, config, kept)
    if any(rule.is_broken(one) for rule in (*RULES, *MEMORY_RULES)):
        return None
    units = [Unit(i, str(i), torch.zeros(size), torch.zeros(size)) for i, size in enumerate(SIZES)]
    selector = Selector(Policy(), compressor, [(unit.name, tuple(unit.gradient.shape)) for unit in units], COMM.size)
    exchanger = build_exchange(config, COMM, units, selector, kept, 5, Stopwatch())
    means, sent = [], []
    for step in (1, 2, 3):
        for unit in units:
            generator = torch.Generator().manual_seed(100 * step + 10 * unit.index + COMM.rank)
            unit.gradient.copy_(torch.randint(-8, 9, unit.gradient.shape, generator=generator))
        sent.append(exchanger.mean(step, measure=step == 2))
        means += [unit.gradient.clone() for unit in units]
    assert any(mean.any() for mean in means)
    exchanger.collectives.close()
    return means, exchanger.state_dict(), sent


def neighbours_alike() -> None:
    """Parameters, states and bytes of decentralised algorithms are those with MPI."""
    late = {"name": "choco", "order": "combine_then_adapt"}
    kinds: list[tuple[dict[str, Any], bool]] = [
        ({"algorithm": late, "compressor": "topk"}, True),
        ({"algorithm": late, "compressor": METHODS["gaps"]}, True),
        ({"algorithm": "dpsgd", "compressor": "qsgd"}, False),
        ({"algorithm": "sgp", "topology": "exponential"}, False),
        ({"algorithm": "noloco", "topology": "random_pairs", "compressor": METHODS["gaps"]}, False),
    ]
    for changes, may_overlap in kinds:
        for overlap in (False, True)[: 1 + may_overlap]:
            found = []
            for transport in ("mpi", "torch"):
                exchange = {"name": "auto", "overlap": overlap, "transport": transport}
                try:
                    run = Run(**changes, exchange=exchange)
                except UsageError as error:  # a topology that has not this number of workers
                    assert "topology" in str(error)
                    break
                sent = run.steps(1, 6)
                found.append((run.values.clone(), run.algorithm.state_dict(), sent))
                run.algorithm.setup.exchange.close()
            if found:
                assert same(*found), (changes, overlap)


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


ON_DEVICES: list[tuple[str, dict[str, Any]]] = [
    ("mixed", {}),
    ("mixed", {"part_mib": 0.002}),
    ("mixed", {"part_mib": 0.002, "overlap": True}),
    ("allgather", {"overlap": True}),
    ("sharded", {"second": "none"}),
    ("hierarchical", {"workers_per_node": 1}),
    ("parameter_server", {}),
]


def on_devices(kind: str) -> None:
    """By NCCL (cuda) or gloo (cpu), every exchange has the mean of the payloads, and messages on the device."""
    from trainers.exchange.torch_transport import connect
    from trainers.lanes.base import MessageLane
    from trainers.lanes.two_phase import TwoPhaseLane
    from trainers.mpi import staging

    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", COMM.rank)
        torch.cuda.set_device(device)
        staging.use(device, direct=False)
    connected = connect(COMM, device)
    everyone = [[torch.randn(size, generator=seeded(rank)) for size in SIZES] for rank in range(COMM.size)]
    for name in ("none", "fp16", "qsgd", "topk", "adaptive_threshold", "powersgd"):
        for exchange_name, options in ON_DEVICES:
            compressor, kept = compressors.build(name), memories.build("none")
            config = groups.GROUPS["exchange"][exchange_name](**options, transport="torch")
            if any(rule.is_broken(Combination(compressor, config, kept)) for rule in RULES):
                continue
            units = [
                Unit(i, str(i), torch.zeros(size, device=device), torch.zeros(size, device=device))
                for i, size in enumerate(SIZES)
            ]
            described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
            selector = Selector(Policy(), compressor, described, COMM.size)
            exchanger = build_exchange(config, COMM, units, selector, kept, 5, Stopwatch())
            assert exchanger.transport.described["transport"] == ("nccl" if kind == "cuda" else "gloo")
            for step in (1, 2, 3):
                for unit, mine in zip(units, everyone[COMM.rank], strict=True):
                    unit.gradient.copy_(mine)
                exchanger.mean(step)
            for lane in exchanger._lanes.values():
                message = lane.message if isinstance(lane, MessageLane) else getattr(lane, "_message", None)
                assert not isinstance(lane, (MessageLane, TwoPhaseLane)) or message.device == device
            if name != "powersgd":
                compressor = compressors.build(name)
                for unit in units:
                    expected = torch.zeros(SIZES[unit.index])
                    for rank in range(COMM.size):
                        key = Key(5, rank, 3, unit.index)
                        payload = compressor.compress(everyone[rank][unit.index], key)
                        compressor.decompress_add(payload, expected, key, 1 / COMM.size)
                    assert torch.allclose(unit.gradient.cpu(), expected, rtol=1e-3, atol=1e-3), (name, exchange_name)
            exchanger.collectives.close()
    connected.close()


def seeded(rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(rank)


if __name__ == "__main__":
    main(globals())
