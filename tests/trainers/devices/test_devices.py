"""Which device a rank gets, what is refused before a start, and GPU timings by events that a test moves on by hand.

What needs a GPU is marked `gpu` and is skipped where torch sees none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gradsweep import hardware
from gradsweep.errors import UsageError
from sweep.directory.run_layout import signature
from tests.trainers.configs import compose_config
from trainers.config import run_config
from trainers.devices import choose
from trainers.devices.gpu_stopwatch import EventStopwatch
from trainers.devices.stopwatch import MEASURE, Stopwatch
from trainers.mpi import staging
from trainers.rules import machine
from trainers.rules.resolve import resolve


def run(**changes: Any) -> run_config.RunConfig:
    return run_config.parse(compose_config(**changes))


class Ranks:
    """A communicator whose other ranks see a GPU, or not."""

    rank, size = 0, 2

    def __init__(self, others_see_one: bool) -> None:
        self.others = others_see_one

    def allgather(self, mine: tuple[bool, str]) -> list[tuple[bool, str]]:
        return [mine, (self.others, "other")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 1, 2, 0, 0, 1]),
        ({"gpus_per_node": 2}, [0, 1, 0, 1, 0, 1]),
        ({"gpus_per_node": 1}, [0] * 6),
        ({"gpus": [0, 0, 1, 1, 2, 0, 2]}, [0, 0, 1, 1, 2, 0]),
        ({"network": "ethernet_1g"}, [0, 1, 2, 0, 1, 2]),  # whose hosts are all this machine
    ],
)
def test_ranks_get_gpus(changes: dict[str, Any], expected: list[int]) -> None:
    one = run(workers=6, device="cuda", **changes)
    places = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1)]  # four ranks on a node, two on another; three GPUs each
    assert [choose.choose_gpu(one, rank, node_rank, 3) for rank, node_rank in places] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus_per_node": 4}, "gpus_per_node=4: valid is an integer from 1 to 3"),
        ({"gpus": [0, 3]}, "gpus=[0, 3]: valid is numbers below 3"),
    ],
)
def test_a_gpu_that_is_not_there_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        choose.choose_gpu(run(device="cuda", **changes), 1, 1, 3)


def test_the_cpu_is_taken_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose.choose(run(), Ranks(False)) == torch.device("cpu")  # type: ignore[arg-type]
    for device in ("auto", "cuda"):
        with pytest.raises(UsageError, match=rf"^device={device}: valid is cpu, since torch sees a GPU in some of the"):
            choose.choose(run(device=device), Ranks(True))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="device=cuda: this torch .* valid is cpu or auto"):
        choose.choose(run(device="cuda"), Ranks(False))  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: 1 / 0)
    assert choose.choose(run(device="cpu"), Ranks(True)) == torch.device("cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "driver", "message"),
    [
        ({"device": "cuda"}, False, "device=cuda: valid is cpu or auto on this machine, which has no driver of a GPU"),
        ({"device": "cuda", "kernels": "numba"}, True, "kernels=numba: valid is auto, triton or torch"),
        ({"device": "cpu", "kernels": "triton"}, True, "kernels=triton: valid is auto, numba or torch"),
        ({"device": "tpu"}, True, "device=tpu: did you mean cpu? valid is one of auto, cpu, cuda"),
        ({"device": "cpu", "gpus": [0, 1]}, True, "gpus=[0, 1] with device=cpu: valid is device=cuda or auto"),
        ({"device": "cpu", "gpus_per_node": 1}, True, "gpus_per_node=1 with device=cpu"),
        ({"gpus": [0, 1], "gpus_per_node": 1}, True, "gpus=[0, 1] with gpus_per_node=1: valid is one of them"),
        ({"gpus": [0, 1], "workers": 3}, True, "gpus=[0, 1]: valid is at least as many numbers as workers=3"),
        ({"gpus": [-1, 0]}, True, "gpus=[-1, 0]: valid is a list of numbers of GPUs, from 0 up"),
        ({"gpus_per_node": 0}, True, "gpus_per_node=0: valid is an integer from 1 up or null"),
        ({"compile": True, "batch_norm": "synchronised"}, True, "compile=true with batch_norm=synchronised"),
        (
            {"device": "auto", "network": "wan_100m", "exchange": {"transport": "torch"}},
            True,
            "exchange.transport=torch with an emulated network and device=auto: NCCL may go",
        ),
        ({"precision": "fp8"}, True, "precision=fp8: valid is one of fp32, bf16, fp16"),
        ({"loss_scale": {"initial": 0}}, True, "loss_scale.initial=0: valid is a number above 0"),
        (
            {"batch_norm": "sync"},
            True,
            "batch_norm=sync: did you mean synchronised? valid is one of averaged, local, synchronised",
        ),
    ],
)
def test_what_cannot_work_is_one_line(
    changes: dict[str, Any], driver: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "has_gpu_driver", lambda: driver)
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_compile_needs_a_compiler(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_gpu_driver", lambda: False)
    monkeypatch.delenv("CXX", raising=False)
    found: set[str] = set()
    monkeypatch.setattr(hardware.shutil, "which", lambda name: name if name in found else None)
    with pytest.raises(UsageError, match=r"compile=true: valid is false without a C\+\+ compiler"):
        resolve(compose_config(compile=True, device=device))
    found.add("clang++")
    resolve(compose_config(compile=True, device=device))


def test_what_can_work_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_gpu_driver", lambda: True)
    for changes in ({"kernels": "triton", "device": "cuda"}, {"gpus": [0, 0, 1], "workers": 2}, {"gpus_per_node": 1}):
        resolve(compose_config(**changes))


def test_which_gpus_a_run_uses_is_a_place() -> None:
    plain = signature(compose_config())
    assert signature(compose_config(gpus=[0, 1])) == signature(compose_config(gpus_per_node=2)) == plain
    assert signature(compose_config(trackers=["tensorboard"])) == plain
    assert signature(compose_config(device="cpu")) != plain and signature(compose_config(precision="bf16")) != plain


def test_on_the_cpu_messages_are_plain_memory() -> None:
    message = staging.allocate_message(12)
    assert message.device.type == "cpu" and not staging.is_direct()
    staging.get_mpi_buffer(message)[:] = range(12)
    assert message.tolist() == list(range(12))  # the same memory
    assert staging.move_to_host(message) is message
    staging.use(torch.device("cpu"), direct=True)
    assert not staging.is_direct()


def test_an_mpi_without_gpus_says_so() -> None:
    assert staging.can_read_gpus() in (True, False)
    if torch.version.cuda is None and torch.version.hip is None:
        assert not staging.can_read_gpus()  # what the wheel of Open MPI says, which knows no GPU


class Queue:
    """A GPU that works off its queue `behind` milliseconds after it was asked; `now` is moved by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made = self.waited = 0

    def event(self) -> Event:
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.done = False

    def record(self) -> None:
        self.at, self.done = self.queue.now, False

    def synchronize(self) -> None:
        self.done = True
        self.queue.waited += 1

    def elapsed_time(self, later: Event) -> float:
        assert later.at >= self.at and later.queue.waited  # nobody reads what has not come to pass
        return later.at - self.at


def work(watch: Stopwatch, queue: Queue) -> Iterator[dict[str, float]]:
    """Steps with phases within phases; what is measured only does not count."""

    def items() -> Iterator[int]:
        for item in range(3):
            queue.now += 10
            yield item

    for item in watch.time_steps("data", items()):
        with watch("forward"):
            queue.now += 20
        queue.now += 5
        with watch("backward"):
            queue.now += 30
            with watch("encode"):
                queue.now += 3
            queue.now += 4
            with watch(MEASURE):
                queue.now += 100
        with watch("encode"):
            queue.now += item
        yield {**{name: seconds * 1e3 for name, seconds in watch.seconds.items()}, "step": watch.measure_step() * 1e3}


def test_events_tell_where_the_time_of_a_step_went() -> None:
    queue = Queue()
    for item, found in enumerate(work(EventStopwatch(queue.event), queue)):
        expected = {"data": 10, "forward": 20, "backward": 34, "encode": 3 + item, MEASURE: 100, "step": 72 + item}
        assert found == pytest.approx(expected)


def test_a_phase_that_fails_is_closed() -> None:
    queue = Queue()
    watch = EventStopwatch(queue.event)
    with pytest.raises(KeyError), watch("forward"):
        queue.now += 2
        raise KeyError
    with watch("backward"):
        queue.now += 3
    assert watch.seconds == pytest.approx({"forward": 0.002, "backward": 0.003})


def test_events_are_used_again() -> None:
    queue = Queue()
    watch = EventStopwatch(queue.event)
    for _ in watch.time_steps("data", range(50)):
        with watch("forward"), watch("encode"):
            queue.now += 1
        assert watch.measure_step() == pytest.approx(0.001) and watch.seconds["encode"] == pytest.approx(0.001)
    assert queue.made < 20


def test_the_times_of_a_step_are_read_when_the_next_one_has_begun() -> None:
    queue = Queue()
    watch = EventStopwatch(queue.event)
    unread = []
    for item in watch.time_steps("data", range(20)):
        with watch("forward"):
            queue.now += item
            with watch(MEASURE):
                queue.now += 7
        unread.append(watch.end_step())
        if len(unread) > 1:
            times = unread.pop(0)()
            assert times.total == pytest.approx((item - 1) / 1e3)
            assert times.phases == pytest.approx({"data": 0, "forward": (item - 1) / 1e3, MEASURE: 0.007})
    assert queue.made < 30


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.gpu
@gpu
def test_a_gpu_computes_the_gradient_of_the_cpu() -> None:
    from tests.trainers.replica.test_precision import Alone, Blobs, losses
    from trainers.replica.replica import Replica

    one = run(workers=1, model={"width": 32})
    found = {}
    for device in ("cpu", "cuda"):
        replica = Replica(one, Blobs.shape, 10, Alone(), torch.device(device))  # type: ignore[arg-type]
        assert replica.flat.values.device.type == device
        found[device] = losses(replica, steps=10)
        assert replica.evaluate(Blobs())[0] > 0
        replica.load_state_dict(replica.state_dict())
    assert found["cuda"] == pytest.approx(found["cpu"], rel=1e-3)


@pytest.mark.gpu
@gpu
def test_messages_are_pinned_and_go_to_and_fro() -> None:
    import compressors
    from compressors import Key

    staging.use(torch.device("cuda", 0), direct=False)
    try:
        message = staging.allocate_message(4096)
        assert message.is_pinned() and message.device.type == "cpu"
        x, key = torch.randn(500, device="cuda"), Key(0, 0, 1, 0)
        for name in ("none", "qsgd", "topk"):
            compressor = compressors.build(name)
            payload = compressor.compress(x, key, message)
            out = torch.zeros_like(x)
            compressor.decompress_add(payload, out, key, 1.0)
            assert payload.device.type == "cpu" and float(out.norm()) > 0
    finally:
        staging.use(torch.device("cpu"), direct=False)


@pytest.mark.gpu
@gpu
def test_events_of_a_gpu_add_up() -> None:
    watch = choose.create_stopwatch(torch.device("cuda"))
    assert isinstance(watch, EventStopwatch)
    x = torch.randn(2000, 2000, device="cuda")
    for _ in watch.time_steps("data", range(3)):
        with watch("forward"):
            x = (x @ x).clamp_(-1, 1)
        assert 0 < watch.seconds["forward"] <= watch.measure_step()
