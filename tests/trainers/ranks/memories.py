"""What memories and policies do over the steps of a run: `mpirun -n W python -m tests.trainers.ranks.memories NAME`."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import compressors
from compressors import memories
from compressors.kernels.reference import sums
from compressors.memories.base import Memory, UnitMemory
from compressors.policy.lgreco import LGreCo
from compressors.policy.policy import Policy, Selector
from gradsweep.errors import UsageError
from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import SHAPES, exchange_for, main
from trainers import data
from trainers.config import groups
from trainers.config import run_config as options
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange import base as exchange
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Unit
from trainers.mpi import message_sizes
from trainers.mpi.message_sizes import MessageTooLarge
from trainers.rules.resolve import resolve
from trainers.training import loop

COMM = MPI.COMM_WORLD


class Recorded:
    """A communicator that keeps a copy of all that it is given to send."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.sent: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def _note(self, buffer: Any) -> None:
        array = buffer if isinstance(buffer, np.ndarray) else buffer[0]
        self.sent.append(array.tobytes())

    def Allreduce(self, sent: Any, received: Any, *operation: Any) -> None:
        assert sent is MPI.IN_PLACE
        self._note(received)
        self.comm.Allreduce(sent, received, *operation)

    def Allgather(self, sent: Any, received: Any) -> None:
        self._note(sent)
        self.comm.Allgather(sent, received)

    def Allgatherv(self, sent: Any, received: Any) -> None:
        self._note(sent)
        self.comm.Allgatherv(sent, received)

    def Isend(self, sent: Any, partner: int) -> Any:
        self._note(sent)
        return self.comm.Isend(sent, partner)


def new_units(shapes: dict[str, tuple[int, ...]]) -> list[Unit]:
    return [Unit(i, name, torch.zeros(s), torch.ones(s)) for i, (name, s) in enumerate(shapes.items())]


def new_exchange(
    compressor: compressors.Compressor,
    kept: Memory,
    policy: dict[str, Any],
    units: list[Unit],
    exchange_name: str,
) -> tuple[exchange.Exchange, Recorded]:
    comm = Recorded(COMM)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    selector = Selector(Policy(**policy), compressor, described, COMM.size)
    config = groups.GROUPS["exchange"][exchange_name]()
    return build_exchange(config, comm, units, selector, kept, 5, Stopwatch()), comm  # type: ignore[arg-type]


def local_gradient(rank: int, step: int, unit: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + 100 * rank + unit))


def epoch_of(step: int) -> int:
    """Epochs of two steps."""
    return (step + 1) // 2


def rate(step: int) -> float:
    return 0.1 if step < 5 else 0.04


def one_step(exchanger: exchange.Exchange, comm: Recorded, step: int) -> exchange.Traffic:
    """Exchange the gradients of a step, and go that way; what is counted is what MPI was given."""
    for unit in exchanger.units:
        unit.gradient.copy_(local_gradient(COMM.rank, step, unit.index, tuple(unit.gradient.shape)))
    comm.sent.clear()
    traffic = exchanger.mean(step, epoch=epoch_of(step), lr=rate(step), measure=step == 2)
    assert traffic.payload_bytes == sum(map(len, comm.sent)), (step, traffic, [len(one) for one in comm.sent])
    for unit in exchanger.units:
        unit.values.sub_(unit.gradient, alpha=rate(step))
    return traffic


# Nothing is lost


def conservation(*names: str) -> None:
    """What has arrived, times the workers, and what they keep is the sum of all gradients: for every method."""
    members = [compressors.build(name) for name in names or compressors.registry()]
    members += [compressors.build("powersgd", error="local"), compressors.build("randomk", values="fp16")]
    members += [compressors.build("topk", values=values) for values in ("fp16", "mean", "qsgd")]
    for member in members:
        if member.scale_free:
            continue
        rounds_sums = member.sum_dtype in ("float16", "bfloat16")  # which no memory sees
        for exchange_name in ["allgather"] if rounds_sums else [exchange_for(member), "mixed"]:
            policy = {"start_step": 3} if exchange_name == "mixed" else {}
            conserve(member, exchange_name, policy)


def conserve(member: compressors.Compressor, exchange_name: str, policy: dict[str, Any]) -> None:
    units = new_units({str(number): shape for number, shape in enumerate(SHAPES)})
    kept = memories.build("residual")
    assert isinstance(kept, UnitMemory)
    exchanger, comm = new_exchange(member, kept, policy, units, exchange_name)
    arrived = [torch.zeros(shape).double() for shape in SHAPES]
    given = [torch.zeros(shape).double() for shape in SHAPES]
    for step in range(1, 7):
        one_step(exchanger, comm, step)
        for unit in units:
            arrived[unit.index] += COMM.size * unit.gradient.double()
            for rank in range(COMM.size):
                given[unit.index] += local_gradient(rank, step, unit.index, SHAPES[unit.index]).double()
    is_kept = False
    for unit in units:
        residual = kept.unit_tensors.get(unit.index, {}).get("residual", torch.zeros(SHAPES[unit.index])).double()
        largest = np.array([float(residual.abs().max()), float(arrived[unit.index].abs().max())])
        COMM.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
        total = residual.numpy().copy()
        COMM.Allreduce(MPI.IN_PLACE, total)
        error = float((arrived[unit.index] + torch.from_numpy(total) - given[unit.index]).abs().max())
        assert error < 1e-5 * float(largest.max() + 1), (member, exchange_name, unit.index, error, largest)
        is_kept = is_kept or largest[0] > 0.0
    assert is_kept != member.lossless, (member, exchange_name)


# A policy that changes in the middle of a run

BODY = {
    "body.weight": (12, 10),
    "body.bias": (12,),
    "small.weight": (5, 6),
    "head.weight": (8, 9),
}
CHANGING = {
    "start_step": 2,
    "warmup": "list",
    "warmup_ratios": [0.5, 1.0, 0.25],
    "dense_1d": True,
    "min_elements": 50,
    "patterns": [{"match": "^head", "compressor": {"name": "topk", "ratio": 0.3}}],
}


def sent_part(name: str, step: int) -> float:
    """By hand: the part of the elements that is sent. Dense, compressed, dense, compressed; then by the final ratio."""
    if step < 2 or name in ("body.bias", "small.weight"):
        return 1.0
    return 0.3 if name == "head.weight" else {1: 0.5, 2: 1.0, 3: 0.25}.get(epoch_of(step), 0.1)


def largest(x: torch.Tensor, part: float) -> torch.Tensor:
    found = x.abs().view(-1).topk(math.ceil(round(part * x.numel(), 9))).indices
    return torch.zeros_like(x).view(-1).index_copy(0, found, x.view(-1)[found]).view_as(x)


class Plain:
    """A worker's memory for one unit, from the papers, in float64."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.a, self.b = torch.zeros(shape).double(), torch.zeros(shape).double()
        self.rate = rate(1)

    def none(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        return largest(g, part)

    def residual(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        p = self.a + g
        self.a = p - largest(p, part)
        return p - self.a

    def scaled_residual(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        p = self.rate / lr * self.a + g
        self.a, self.rate = p - largest(p, part), lr
        return p - self.a

    def ef21(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        self.a = self.a + largest(g - self.a, part)
        return self.a

    def econtrol(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        self.a = self.a + largest(0.01 * self.b + g - self.a, part)
        self.b = self.b + g - self.a
        return self.a

    def loco(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        sent = largest(g + self.a, part)
        error = 0.8 * self.a + 0.2 * (g + self.a - sent)
        scale = float(error.abs().max()) or 1.0  # of a unit with fewer than 512 elements
        self.a = (error / scale * 127).round() / 127 * scale
        return sent

    def dgc(self, g: torch.Tensor, part: float, lr: float) -> torch.Tensor:
        self.a = 0.9 * self.a + g
        self.b = self.b + self.a
        sent = largest(self.b, part)
        self.b = self.b - sent
        if part < 1.0:
            self.a = torch.where(sent != 0, 0.0, self.a)
        return sent


def changing() -> None:
    """The mean of every step against a computation of all workers in one process."""
    for name in memories.REGISTRY:
        for exchange_name in ("mixed", "allgather"):
            units = new_units(BODY)
            member = compressors.build("topk", ratio=0.1)
            exchanger, comm = new_exchange(member, memories.build(name), CHANGING, units, exchange_name)
            plain = [[Plain(shape) for shape in BODY.values()] for _ in range(COMM.size)]
            for step in range(1, 11):
                one_step(exchanger, comm, step)
                for unit in units:
                    shape, part = tuple(unit.gradient.shape), sent_part(unit.name, step)
                    expected = torch.zeros(shape).double()
                    for rank in range(COMM.size):
                        compress: Callable[..., torch.Tensor] = getattr(plain[rank][unit.index], name)
                        g = local_gradient(rank, step, unit.index, shape).double()
                        expected += compress(g, part, rate(step)) / COMM.size
                    error = float((unit.gradient - expected).abs().max())
                    assert error < 1e-4, (name, exchange_name, step, unit.name, error)


# State

RUNS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any], dict[str, Any]]] = {
    "intsgd": ("intsgd", {}, "none", {}, {}),
    "powersgd": ("powersgd", {"rank": 1}, "residual", {}, {}),
    "acp_sgd": ("acp_sgd", {"rank": 1}, "residual", {}, {}),
    "dion": ("dion", {}, "residual", {}, {}),
    "redsync": ("redsync_threshold", {"ratio": 0.05}, "residual", {}, {}),
    "sidco": ("sidco", {"ratio": 0.05, "adapt_every": 2}, "scaled_residual", {}, {}),
    "dgc": ("dgc", {"ratio": 0.05}, "dgc", {"clip": 5.0}, {}),
    "ef21": ("randomk", {"ratio": 0.2}, "ef21", {}, {}),
    "ef21_sgd2m": ("topk", {"ratio": 0.2}, "ef21", {"gradient_weight": 0.1, "double_momentum": True}, {}),
    "econtrol": ("topk", {"ratio": 0.2}, "econtrol", {}, {}),
    "loco": ("int8", {"bits": 4, "scheme": "symmetric"}, "loco", {"reset": 4}, {}),
    "signum": ("signum", {}, "none", {}, {}),
    "changing": ("topk", {"ratio": 0.1}, "residual", {}, CHANGING),
    "warming": ("topk", {"ratio": 0.1}, "ef21", {}, {"warmup": "list", "warmup_ratios": [0.5, 0.3]}),
    "lgreco": (
        "topk",
        {"ratio": 0.1},
        "residual",
        {},
        {"dense_1d": True, "lgreco": {"option": "ratio", "values": [0.02, 0.05, 0.3], "interval": 2}},
    ),
    "accordion": (
        "qsgd",
        {},
        "none",
        {},
        {"accordion": {"option": "levels", "relaxed": 127, "interval": 1, "threshold": 0.3, "lr_drop": 0.1}},
    ),
}


def build_run(name: str, units: list[Unit]) -> tuple[exchange.Exchange, Recorded]:
    method, given, kept, kept_options, policy = RUNS[name]
    if "accordion" in policy:
        policy = {"accordion": options.Policy().accordion.__class__(**policy["accordion"])}
    if "lgreco" in policy:
        policy = {**policy, "lgreco": LGreCo(**policy["lgreco"])}
    member = compressors.build(method, **given)
    exchange_name = "mixed" if policy else exchange_for(member)
    return new_exchange(member, memories.build(kept, **kept_options), policy, units, exchange_name)


def resume(*names: str) -> None:
    """Six steps in one go, and three, a new exchange with the state, and three more: the same bytes and means."""
    for name in names or RUNS:
        units = new_units(BODY)
        exchanger, comm = build_run(name, units)
        whole = []
        for step in range(1, 7):
            one_step(exchanger, comm, step)
            whole.append((list(comm.sent), [unit.gradient.clone() for unit in units]))
            if step == 3:
                file = io.BytesIO()
                torch.save(exchanger.state_dict(), file)
                values = [unit.values.clone() for unit in units]
        file.seek(0)
        state = torch.load(file, weights_only=True)
        for has_state in (True, False):
            units = new_units(BODY)
            for unit in units:
                unit.values.copy_(values[unit.index])
            exchanger, comm = build_run(name, units)
            if has_state:
                exchanger.load_state_dict(state)
            is_same = []
            for step in range(4, 7):
                one_step(exchanger, comm, step)
                sent, means = whole[step - 1]
                is_same.append(comm.sent == sent)
                is_same += [torch.equal(unit.gradient, mean) for unit, mean in zip(units, means, strict=True)]
            assert all(is_same) == has_state, (name, has_state, is_same)


def refused() -> None:
    """What is no state of this exchange raises one line, and changes nothing."""
    exchanger, comm = build_run("intsgd", new_units(BODY))
    others = {name: build_run(name, new_units(BODY)) for name in ("powersgd", "redsync", "signum")}
    for step in (1, 2):
        one_step(exchanger, comm, step)
        for other in others.values():
            one_step(*other, step)
    state, before = exchanger.state_dict(), str(exchanger.state_dict())
    wrong: list[Any] = [None, {}, [], {**state, "more": 1}, *(other.state_dict() for other, _ in others.values())]
    for value in (None, {"9": torch.zeros(3)}, {"0": torch.zeros(3)}, {"0": None}, [1]):
        wrong.append({**state, "before": value})
    wrong += [{**state, "kept": {"0": {"residual": torch.zeros(3)}}}, {**state, "kept": None}]
    wrong += [{**state, "selector": value} for value in (None, {}, {**state["selector"], "units": []})]
    wrong.append({**state, "memory": "Residual(beta=0.5, gamma=1.0)"})
    for one in wrong:
        try:
            exchanger.load_state_dict(one)
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError(one)
        assert str(exchanger.state_dict()) == before


def movement() -> None:
    """How far the parameters moved is a sum in an order of our own: all workers must get the same bits."""
    units = [Unit(0, "w", torch.zeros(70_001), torch.ones(70_001))]
    member = compressors.build("intsgd")
    exchanger, comm = new_exchange(member, memories.build("none"), {}, units, "allreduce")
    one_step(exchanger, comm, 1)
    moved = units[0].values - 1.0
    one_step(exchanger, comm, 2)
    found = float(exchanger.selector.selected[0].unit_tensors[0]["movement"])  # type: ignore[attr-defined]
    assert found == sums.moments(moved)[2] != float(moved.double().square().sum())
    clipped, comm = new_exchange(member, memories.build("dgc", clip=1.0), {}, units, "allreduce")
    units[0].gradient.copy_(moved)
    norm = clipped._compute_norm()
    assert norm == math.sqrt(found) != float(torch.linalg.vector_norm(moved, dtype=torch.float64))


def too_large() -> None:
    """What MPI cannot count is one line, before it is sent."""
    shapes = {"w": (40, 50), "v": (30, 20)}
    for limit, name, exchange_name, words in (
        (2599, "none", "allreduce", "2600 numbers in a sum of all workers: valid is up to 2599"),
        (2599, "none", "allgather", "2600 words of 4 bytes in a message: valid is up to 2599"),
        (2600 * COMM.size - 1, "thresholdv", "allgather", "words of 4 bytes in the messages of all workers: valid is"),
        (99, "powersgd", "allreduce", "numbers in a sum of all workers: valid is up to 99"),
        (99, "gtopk", "allreduce", "bytes in a message: valid is up to 99"),
    ):
        member = compressors.build(name)
        if name == "thresholdv":
            member = dataclasses.replace(member, threshold=1e-9)  # type: ignore[call-arg]
        if name == "gtopk":
            member = dataclasses.replace(member, ratio=0.5)  # type: ignore[call-arg]
        units = new_units(shapes)
        exchanger, comm = new_exchange(member, memories.build("none"), {}, units, exchange_name)
        message_sizes.LARGEST_COUNT, before = limit, message_sizes.LARGEST_COUNT
        try:
            one_step(exchanger, comm, 1)
        except MessageTooLarge as error:
            assert words in str(error) and "\n" not in str(error), str(error)
        else:
            raise AssertionError((name, exchange_name))
        finally:
            message_sizes.LARGEST_COUNT = before
        COMM.Barrier()


def never_acting() -> None:
    """What can act nowhere in this model, or not in so few steps, is one line before the first step."""
    load, data.load = data.load, lambda *_: random_arrays(256)  # two steps an epoch
    accordion = {"option": "ratio", "relaxed": 0.5, "interval": 2}
    for changes, words in (
        (
            {"policy": {"patterns": [{"match": "weigth", "compressor": {"name": "none"}}]}},
            "policy.patterns.match=weigth: valid is a regular expression found in the name of a tensor (",
        ),
        ({"policy": {"start_step": 17}}, "policy.start_step=17: valid is an integer up to the number of steps (16)"),
        (
            {"policy": {"accordion": accordion}, "max_steps": 5},
            "policy.accordion.interval=2: valid is an integer from 1 to 1 with 3 epochs, or 5 epochs or more",
        ),
        (
            {"policy": {"lgreco": {"option": "ratio", "values": [0.1]}}},
            "policy.lgreco.interval=50: valid is an integer below the number of steps (16)",
        ),
    ):
        config = options.parse(resolve(compose_config(compressor="topk", **changes)))
        try:
            loop.train(config, COMM, Path("no such directory"))
        except UsageError as error:
            assert str(error).startswith(words) and "\n" not in str(error), str(error)
        else:
            raise AssertionError(changes)
    data.load = load


if __name__ == "__main__":
    main(globals())
