"""What tests of dedicated servers run: `mpirun -n W+1 python -m tests.trainers.ranks.servers NAME [ARGUMENT...]`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

import compressors
from compressors import memories
from compressors.memories.base import Memory
from compressors.policy.policy import Policy, Selector
from gradsweep import run_directory
from tests.trainers.configs import compose_config
from tests.trainers.ranks.checkpoint import PER_EPOCH, STEPS, figures, folder, require_equal, rows, weights
from tests.trainers.ranks.exchange import SHAPES, main
from tests.trainers.ranks.memories import local_gradient
from tests.trainers.ranks.sent_bytes import Sent
from trainers import optimizers
from trainers.config import run_config as options
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.build import build_exchange
from trainers.exchange.dedicated_server import Dedicated
from trainers.gradients.clipping import Clipping
from trainers.gradients.flat import Flat, Unit
from trainers.lanes.server.server_link import Head
from trainers.mpi import stopping
from trainers.optimizers.update import UpdateSetup
from trainers.options.optimizers import SGD
from trainers.rules.resolve import resolve
from trainers.servers import Link
from trainers.servers.asynchronous import AsynchronousServer
from trainers.servers.base import Server
from trainers.servers.synchronous import SynchronousServer
from trainers.training import loop

COMM = MPI.COMM_WORLD
WORKERS = COMM.size - 1
SERVES = COMM.rank == WORKERS
TOGETHER = COMM.Split(int(SERVES), COMM.rank)
"""The workers; of the server, itself."""
ENDED = {"status": run_directory.DONE, "reason": None, "steps": 0}


# Whole runs


def configured(given: dict[str, Any], **changes: Any) -> options.RunConfig:
    """A run of three epochs of four steps, with these options of its server."""
    found = compose_config(
        workers=WORKERS,
        epochs=3,
        batch={"size": 12},
        measure_every=2,
        warmup_steps=2,
        exchange={"name": "parameter_server", **given},
        **{"schedule": "cosine", **changes},
    )
    return options.parse(resolve(found))


def train(directory: Path, given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Go on with the run in `directory`, as new processes would."""
    config = configured(given, **changes)
    stopping.forget()
    if COMM.rank == 0:
        directory.mkdir(exist_ok=True)
    COMM.Barrier()
    result: dict[str, Any] = ENDED
    if config.exchange.servers:
        result = loop.train(config, COMM, directory)
    elif not SERVES:
        result = loop.train(config, TOGETHER, directory)
    COMM.Barrier()
    return result


ACCORDION = {"accordion": {"option": "levels", "relaxed": 127, "interval": 1, "threshold": 0.5, "lr_drop": 0.5}}
TOPK = {"name": "topk", "ratio": 0.1}
RUNS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {"compressor": "qsgd", "policy": {"dense_1d": True, "start_step": 3}}),
    ({"answer": "compressed"}, {"compressor": TOPK, "memory": "residual"}),
    ({"answer": "compressed", "granularity": "model"}, {"compressor": TOPK, "memory": "scaled_residual"}),
    ({"answer": "compressed"}, {"compressor": TOPK, "memory": "ef21"}),
    ({"answer": "compressed"}, {"compressor": "signum"}),
    ({"answer": "compressed"}, {"compressor": {"name": "terngrad", "share_scale": True}, "policy": {"dense_1d": True}}),
    ({}, {"compressor": "qsgd", "policy": ACCORDION}),
    ({}, {"compressor": TOPK, "memory": "residual", "algorithm": {"name": "local_sgd", "steps": 3}}),
    ({}, {"compressor": "fp16", "precision": "fp16", "loss_scale": {"initial": 2.0**20}}),
    ({}, {"compressor": "sign_norm", "memory": "residual", "optimizer": {"name": "onebit_adam", "freeze_steps": 4}}),
)
DEDICATED = {"placement": "dedicated"}


def as_colocated() -> None:
    """The same numbers to the bit as with the server on worker 0, but for what is sent."""
    sent = run_directory.STEPS, run_directory.EPOCHS
    for given, changes in RUNS:
        with folder() as directory:
            one, other = directory / "colocated", directory / "dedicated"
            found = figures(train(one, given, **changes)) if not SERVES else None
            if SERVES:
                train(one, given, **changes)
            expected = weights() if not SERVES else b""
            result = train(other, {**given, **DEDICATED}, **changes)
            if SERVES:
                assert result == {"status": run_directory.DONE, "reason": None, "steps": STEPS}
                continue
            assert weights() == expected, changes
            here = figures(result)
            assert found is not None and {**here, "sent_bytes": 0} == {**found, "sent_bytes": 0}, (found, here, changes)
            # colocated, one of the W messages and one of the W answers need not travel; what a step adds is the head
            for name in sent:
                assert len(rows(one, name)) == len(rows(other, name)) > 0
            assert result["sent_bytes"] > found["sent_bytes"] > 0, (here, changes)


def going_on() -> None:
    """Stopped by a signal to the server only, and gone on with: the run that never was."""
    stopping.listen()
    for given, changes in RUNS:
        with folder() as directory:
            whole, parts = directory / "whole", directory / "parts"
            figures_of_whole = train(whole, {**given, **DEDICATED}, **changes)
            expected = b"" if SERVES else weights()
            if SERVES:
                os.kill(os.getpid(), signal.SIGUSR1)
            result = preempted(parts, {**given, **DEDICATED}, **changes)
            saved = result["steps"]
            assert result["status"] == run_directory.PREEMPTED and 1 < saved < STEPS, (result, changes)
            result = train(parts, {**given, **DEDICATED}, **changes)
            if SERVES:
                continue
            assert result["resumed_after"] == [saved]
            require_equal(whole, parts, changes)
            assert figures(result) == figures(figures_of_whole) and weights() == expected, changes


def preempted(directory: Path, given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A run whose server has been asked to stop before it began."""
    forget, stopping.forget = stopping.forget, lambda: None
    try:
        return train(directory, given, **changes)
    finally:
        stopping.forget = forget


ASYNCHRONOUS = {"placement": "dedicated", "mode": "asynchronous", "staleness": 2}


def one_worker() -> None:
    """Asynchronous SGD of one worker is SGD, to the bit, also when it is stopped and gone on with."""
    phases = [{"epoch": 0, "lr": 0.1, "momentum": 0.9}, {"epoch": 1, "lr": 0.02, "weight_decay": 0.01}]
    runs: tuple[dict[str, Any], ...] = (
        {"compressor": TOPK, "memory": "residual", "clip": {"norm": 0.5}},
        {"compressor": "qsgd", "schedule": {"name": "regime", "phases": phases}},
        {"compressor": "signum", "optimizer": "adam", "clip": {"local_norm": 0.1}},
        {
            "compressor": TOPK,
            "memory": "dgc",
            "optimizer": {"momentum": 0.0, "nesterov": False},
            "policy": {"dense_1d": True, "start_step": 3, "warmup": "list", "warmup_ratios": [0.5]},
        },
    )
    stopping.listen()
    for changes in runs:
        with folder() as directory:
            one, other, parts = (directory / name for name in ("one", "other", "parts"))
            train(one, {}, **changes)
            expected = b"" if SERVES else weights()
            result = train(other, ASYNCHRONOUS, **changes)
            if SERVES:
                os.kill(os.getpid(), signal.SIGUSR1)
            else:
                assert weights() == expected, changes
                assert [row[:6] for row in rows(one, run_directory.STEPS)] == [
                    row[:6] for row in rows(other, run_directory.STEPS)
                ]
                assert result["staleness"] == {"mean": 0.0, "max": 0}
            assert preempted(parts, ASYNCHRONOUS, **changes)["status"] == run_directory.PREEMPTED
            result = train(parts, ASYNCHRONOUS, **changes)
            if not SERVES:
                assert weights() == expected and result["resumed_after"][0] < STEPS, changes
                require_equal(other, parts, changes)
                assert result["staleness"] == {"mean": 0.0, "max": 0}


def asynchronous_run() -> None:
    """A run of several workers: as many rows as ever, parameters of the server judged, saved and gone on with."""
    stopping.listen()
    changes: dict[str, Any] = {"compressor": TOPK, "memory": "residual"}
    with folder() as directory:
        one, parts = directory / "one", directory / "parts"
        result = train(one, ASYNCHRONOUS, **changes, checkpoint={"every_steps": 3, "final": True})
        if not SERVES:
            assert result["status"] == run_directory.DONE and len(rows(one, run_directory.STEPS)) == STEPS
            assert ("staleness" in result) == (COMM.rank == 0)
            if COMM.rank == 0:
                assert 0 <= result["staleness"]["mean"] <= result["staleness"]["max"]
            # the parameters are those that were judged at the end of the last epoch: the same on all workers
            assert len(set(TOGETHER.allgather(weights_only()))) == 1
        stopped = train_until_signal(parts, PER_EPOCH + 1, **changes)
        assert stopped["status"] == run_directory.PREEMPTED, stopped
        result = train(parts, ASYNCHRONOUS, **changes)
        if not SERVES:
            assert result["status"] == run_directory.DONE and result["resumed_after"] == [stopped["steps"]]
            assert [row[0] for row in rows(parts, run_directory.STEPS)] == [str(step) for step in range(1, STEPS + 1)]


def weights_only() -> bytes:
    from tests.trainers.ranks.checkpoint import EVENTS

    assert EVENTS.replica is not None
    return bytes(EVENTS.replica.flat.values.numpy().tobytes())


def train_until_signal(directory: Path, step: int, **changes: Any) -> dict[str, Any]:
    from tests.trainers.ranks.checkpoint import EVENTS

    if COMM.rank == 0:
        EVENTS.planned["data", step] = lambda: os.kill(os.getpid(), signal.SIGUSR1)
    try:
        return train(directory, ASYNCHRONOUS, **changes)
    finally:
        EVENTS.planned.clear()


# Steps


def units_of(shapes: list[tuple[int, ...]]) -> tuple[Flat, list[Unit]]:
    """The flat buffers of a model with parameters of these shapes, and its units."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(shape)) for shape in shapes])
    flat = Flat(model)
    return flat, flat.cut_units("layer", 4.0)


Play = Callable[[Dedicated, Flat, list[Unit]], None]


def play(given: dict[str, Any], name: str, kept: Memory, shapes: list[tuple[int, ...]], steps: Play) -> None:
    """Have the workers do some steps with a server that has such options."""
    config = configured({**DEDICATED, **given}, compressor=name, memory=kept.name)
    flat, units = units_of(shapes)
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    selector = Selector(Policy(), compressors.build(name), described, WORKERS)
    if SERVES:
        parts = UpdateSetup(units, selector, optimizers.build(PLAIN, flat), Clipping(config.clip, flat.gradients))
        server: Server = SynchronousServer(COMM, config, parts)
        if config.exchange.asynchronous:
            server = Watched(COMM, WORKERS, flat, parts, 5, config.exchange.staleness)
        server.run()
    else:
        link = Link(COMM, WORKERS)
        exchanger = build_exchange(config.exchange, TOGETHER, units, selector, kept, 5, Stopwatch(), link=link)
        assert isinstance(exchanger, Dedicated)
        steps(exchanger, flat, units)
        TOGETHER.Barrier()
        if TOGETHER.rank == 0:
            link.end(ENDED)
    COMM.Barrier()


PLAIN = SGD(momentum=0.0, nesterov=False, weight_decay=0.0)


class Watched(AsynchronousServer):
    """Notes who was let go when, and tells worker 0 when worker 1 has to wait."""

    def on_push(self, worker: int, head: Head, *others: Any) -> None:
        super().on_push(worker, head, *others)
        slowest = min(self.clocks)
        assert all(self.clocks[one] - slowest <= self.staleness for one in range(WORKERS) if one not in self._waiting)
        if self._waiting == [1] and slowest == 0:
            COMM.send(self.clocks[1], 0, 99)


def traffic() -> None:
    """The sum of what the workers believe to have sent in two steps is what all ranks have sent.

    Making communicators and the end of a server cost messages, too, so two steps are compared with none.
    """
    for given in ({}, {"answer": "compressed"}, {"answer": "compressed", "backup": 1}, ASYNCHRONOUS):
        for name in ("none", "qsgd", "thresholdv", "sign"):
            nothing, sent = Sent(), Sent()

            def two(exchanger: Dedicated, flat: Flat, units: list[Unit], sent: Sent = sent) -> None:
                for step in (1, 2):
                    for unit in units:
                        unit.gradient.copy_(local_gradient(COMM.rank, step, unit.index, tuple(unit.gradient.shape)))
                    sent.believed += exchanger.mean(step).sent_bytes

            with nothing:
                play(given, name, memories.build("none"), SHAPES, lambda *_: None)
            with sent:
                play(given, name, memories.build("none"), SHAPES, two)
            sent.counted -= nothing.counted
            sent.require_equal((given, name))


def backup() -> None:
    """The last worker comes after the answer: its message is dropped, and its memory keeps everything."""
    shape, late = (300, 400), WORKERS - 1  # beyond what MPI sends without the receiver
    kept = memories.build("residual")

    def steps(exchanger: Dedicated, flat: Flat, units: list[Unit]) -> None:
        (unit,), total, means = units, torch.zeros(shape), []
        for step in range(1, 4):
            gradient = local_gradient(COMM.rank, step, 0, shape)
            unit.gradient.copy_(gradient)
            if COMM.rank == late:
                TOGETHER.recv(source=1)  # the answer to this step is under way
                total += gradient
            exchanger.mean(step)
            if COMM.rank == 1:
                TOGETHER.send(None, late)
            means.append(unit.gradient.clone())
            if COMM.rank == late:
                assert torch.allclose(kept.unit_tensors[0]["residual"], total, atol=1e-5), step  # type: ignore[attr-defined]
            taken = torch.stack([local_gradient(rank, step, 0, shape) for rank in range(late)]).mean(0)
            assert torch.allclose(means[-1], taken, atol=1e-6), step
        unit.gradient.zero_()
        exchanger.mean(4)  # with all there again, whichever two are first

    play({"backup": 1}, "none", kept, [shape], steps)


def bounded() -> None:
    """Worker 0 is late: the other takes `staleness` steps, and the one after them only with it (Ho et al., 2013)."""

    def steps(exchanger: Dedicated, flat: Flat, units: list[Unit]) -> None:
        if COMM.rank == 0:
            assert COMM.recv(source=WORKERS, tag=99) == 3  # worker 1 has pushed three steps, and waits
        for step in range(1, 7):
            units[0].gradient.fill_(1.0)
            exchanger.mean(step, lr=0.5)
            if COMM.rank == 0 and step == 1:
                assert float(flat.values[0]) <= 1 - 0.5 * 4, "three steps of the other worker, and its own"
        if COMM.rank == 0:
            found = exchanger.link.ask("figures")["staleness"]
            assert found["max"] >= 3 and 0 < found["mean"] <= found["max"], found
        TOGETHER.Barrier()
        assert (exchanger.link.fetch_parameters() == 1 - 0.5 * 12).all()

    play(ASYNCHRONOUS, "none", memories.build("none"), [(7,)], steps)


def together() -> None:
    """With staleness=0 all workers work with the same parameters: a step is that along the sum of the gradients."""

    def steps(exchanger: Dedicated, flat: Flat, units: list[Unit]) -> None:
        expected = flat.values.clone()
        for step in range(1, 6):
            gradients = [flat.values - (worker + 1.0) for worker in range(WORKERS)]
            expected -= 0.1 * torch.stack(gradients).sum(0)
            flat.gradients.copy_(gradients[COMM.rank])
            exchanger.mean(step, lr=0.1)
            assert torch.allclose(flat.values, expected, atol=1e-6), (step, flat.values, expected)
            everyone = TOGETHER.allgather(flat.values.numpy().tobytes())
            assert len(set(everyone)) == 1, step
            expected.copy_(flat.values)

    play({**ASYNCHRONOUS, "staleness": 0}, "none", memories.build("none"), SHAPES, steps)


if __name__ == "__main__":
    main(globals())
