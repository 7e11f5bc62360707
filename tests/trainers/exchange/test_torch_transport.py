"""torch.distributed carries what MPI carries: the same numbers and bytes, over gloo on CPUs, over NCCL on GPUs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gradsweep import hardware
from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange import torch_group, torch_lanes, torch_transport
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue
from trainers.rules import machine
from trainers.rules.resolve import resolve
from trainers.training import rank as program

MODULE = "tests.trainers.ranks.distributed"


METHODS = "none fp16 bf16 intsgd thc qsgd topk adaptive_threshold terngrad powersgd acp_sgd gtopk"


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("workers", "functions"),
    [
        (2, f"alike none fp16 bf16 topk + unaddable + whole + means true {METHODS}"),
        (3, f"alike qsgd none elias policy powersgd gtopk + swapped_bytes + means false {METHODS}"),
    ],
)
def test_numbers_and_bytes_are_those_of_mpi(workers: int, functions: str) -> None:
    """And a mean is a mean; what the backend cannot do, and what carried the messages, is told."""
    run_ranks(workers, *functions.split(), module=MODULE)


def test_a_torch_without_the_backend_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(UsageError, match=r"^exchange.transport=torch: this torch \(.*\) has no nccl; valid is mpi$"):
        torch_group.check_available("nccl", torch_transport.KEY, "mpi")
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: True)
    torch_group.check_available("gloo", torch_transport.KEY, "mpi")
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(UsageError, match="has no gloo; valid is mpi$"):
        torch_group.check_available("gloo", torch_transport.KEY, "mpi")


def test_gpus_that_ranks_share_are_one_line() -> None:
    torch_transport._check_gpus([("a", "0"), ("a", "1"), ("b", "0")])
    with pytest.raises(UsageError, match="ranks 1 and 3 share a GPU of b, which NCCL does not take"):
        torch_transport._check_gpus([("a", "0"), ("b", "0"), ("b", "1"), ("b", "0")])


def test_a_torch_without_gpus_is_refused_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_exchange = {"name": "allgather", "transport": "torch"}
    monkeypatch.setattr(machine, "has_gpu_driver", lambda: True)
    monkeypatch.setattr(machine, "torch_has_gpus", lambda: False)
    with pytest.raises(UsageError, match=r"^exchange.transport=torch: valid is mpi with device=cuda where"):
        resolve(compose_config(device="cuda", exchange=torch_exchange))
    for changes in ({"device": "cuda"}, {"device": "cpu", "exchange": torch_exchange}):
        resolve(compose_config(**changes))
    monkeypatch.setattr(machine, "torch_has_gpus", lambda: True)
    resolve(compose_config(device="cuda", exchange=torch_exchange))


def test_whether_torch_is_for_gpus_is_seen_without_loading_it() -> None:
    if torch.version.cuda is not None or torch.version.hip is not None:
        assert hardware.torch_has_gpus()
    else:
        assert not hardware.torch_has_gpus()


@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_every_exchange_has_the_bits_that_it_has_with_mpi(workers: int) -> None:
    """Also with overlap, between neighbours, and where the lengths of messages depend on the data."""
    methods = ("none", "fp16", "topk", "qsgd", "sign", "powersgd", "gaps")
    run_ranks(workers, "exchanges_alike", *methods, "+", "neighbours_alike", "+", "on_devices", "cpu", module=MODULE)


@pytest.mark.parametrize("options", [{"placement": "dedicated"}, {"backup": 1}])
def test_servers_that_take_what_comes_are_refused_before_the_start(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"with exchange.transport=torch: .*; valid is exchange.transport=mpi, or"):
        resolve(compose_config(exchange={"name": "parameter_server", "transport": "torch", **options}))


def test_gossip_keeps_the_transport_of_auto() -> None:
    config = compose_config(algorithm="choco", workers=4, exchange={"name": "auto", "transport": "torch"})
    assert resolve(config)["exchange"]["transport"] == "torch"


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (RuntimeError("[pair.cc:537] Read error [127.0.0.1]:34000: Connection reset by peer. This is"), True),
        (RuntimeError("no such tensor"), False),
        (UsageError("Broken pipe of another kind"), False),
    ],
)
def test_a_rank_that_is_gone_is_told_of_by_mpirun(error: Exception, waits: bool, monkeypatch: Any) -> None:
    waited: list[float] = []
    monkeypatch.setattr(program.time, "sleep", waited.append)
    program.wait_for_mpirun(error)
    assert bool(waited) == waits


class Queue:
    """A GPU's queues, by the names of what was put into them: what waits for what."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def stream(self, name: str) -> Any:
        queue = self

        class Stream:
            def wait_event(self, event: Any) -> None:
                queue.done.append(f"{name} waits for {event.name}")

            def wait_stream(self, other: Any) -> None:
                queue.done.append(f"{name} waits for all")

        return Stream()

    def event(self) -> Any:
        queue = self

        class Event:
            name = "what was written"

            def record(self) -> None:
                queue.done.append("written")

        return Event()

    @contextlib.contextmanager
    def within(self, stream: Any) -> Iterator[None]:
        self.done.append("beside")
        yield
        self.done.append("main")


def test_on_a_gpu_collectives_wait_for_the_message_and_decoding_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: queue.stream("collectives"))
    monkeypatch.setattr(torch.cuda, "Event", queue.event)
    monkeypatch.setattr(torch.cuda, "stream", queue.within)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: queue.stream("main"))

    class Group:
        device = torch.device("cuda", 0)
        duplicate = free = lambda group: group

    collectives = torch_lanes.GroupCollectiveQueue(Group(), Stopwatch())  # type: ignore[arg-type]
    collectives.post(lambda group: queue.done.append("sent"))
    collectives.complete()
    assert queue.done == [
        "written", "beside", "collectives waits for what was written", "sent", "main", "main waits for all",
    ]  # fmt: skip
    collectives.close()


def test_the_thread_of_collectives_has_the_gpu_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: chosen.append((threading.current_thread().name, gpu)))

    class Group:
        duplicate = free = lambda group: group

    ThreadCollectiveQueue(Group(), Stopwatch()).close()  # type: ignore[arg-type]
    assert chosen == [("collectives", 3)]


def test_parts_on_a_gpu_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option's own size, and between CPUs, parts are those of MPI."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    cpu, gpu = (
        torch_transport.TorchTransport(torch_group.TorchGroup(backend, torch.device(kind), 0, 2), Stopwatch())
        for backend, kind in (("gloo", "cpu"), ("nccl", "cuda"))
    )
    assert cpu.choose_part_bytes(None, False) == cpu.choose_part_bytes(None, True) == 2**20
    assert gpu.choose_part_bytes(3.0, True) == gpu.choose_part_bytes(3.0, False) == 3 * 2**20
    assert gpu.choose_part_bytes(None, False) > gpu.choose_part_bytes(None, True) == 25 * 2**20


def test_rounds_wait_for_what_was_posted() -> None:
    class Group:
        device, comm = torch.device("cpu"), None

    watch, done = Stopwatch(), []
    collectives = CollectiveQueue(Group(), watch)  # type: ignore[arg-type]
    collectives.post(lambda group: done.append("sent"))
    lane = torch_lanes.GroupRoundsLane(Group(), watch, collectives)  # type: ignore[arg-type]
    lane.begin()
    assert not list(lane.communicate()) and done == ["sent"]


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_nccl_has_the_mean_of_the_payloads() -> None:
    run_ranks(min(torch.cuda.device_count(), 4), "on_devices", "cuda", module=MODULE)
