"""Runs that are stopped, killed and gone on with: `mpirun -n W python -m tests.trainers.ranks.checkpoint NAME`."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import itertools
import json
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from gradsweep import csv_columns, run_directory
from gradsweep.errors import UsageError
from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers import data, models
from trainers.checkpoint import files
from trainers.config import groups
from trainers.config import run_config as options
from trainers.data.batches import Shard
from trainers.data.feeds import Batch
from trainers.mpi import stopping
from trainers.recording import recorder
from trainers.replica.replica import DifferentWeights, Replica, Shares
from trainers.rules.resolve import resolve
from trainers.training import assembly, loop

COMM = MPI.COMM_WORLD
ARRAYS = random_arrays(3 * 12 + 2, 20)  # the last batch of an epoch has two samples: some worker may have none
PER_EPOCH, EPOCHS = 4, 3
STEPS = PER_EPOCH * EPOCHS
ALIKE = {
    run_directory.STEPS: ("step", "epoch", "samples", "loss", "accuracy", "lr", "payload_bytes", "sent_bytes")
    + ("compression_ratio", "compression_error", "memory_norm"),
    run_directory.EPOCHS: (
        "epoch",
        "step",
        "lr",
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "sent_bytes",
    )
    + csv_columns.LOCAL_EPOCH_COLUMNS,
    run_directory.LOCAL_MODELS: csv_columns.LOCAL_MODEL_COLUMNS,
}
"""Columns that do not tell of time; those of decentralised runs are not in others."""


class Killed(BaseException):
    """The process ends here; what is on the disk is what a kill would leave."""


class Tiny(nn.Module):
    """A model with all that a model can remember: running statistics, dropout, and something carried along."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Linear(36, 10)
        self.dropout = nn.Dropout(0.3)
        self.mean = torch.zeros(36)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.norm(self.stem(x)).relu().flatten(1))
        y: torch.Tensor = self.head(x + 0.5 * self.mean)
        if self.training:
            self.mean = x.detach().mean(0)
        return y

    def train(self, mode: bool = True) -> Tiny:
        self.mean = torch.zeros(36)  # a language model forgets, too, where training or evaluating begins
        return super().train(mode)

    def copy_carried(self) -> dict[str, torch.Tensor]:
        return {"mean": self.mean}

    def carry(self, state: dict[str, torch.Tensor]) -> None:
        self.mean = state["mean"].clone()


class Events:
    """What happens to a run: functions by (place, step); places are `data`, `step` and `test`."""

    def __init__(self) -> None:
        self.planned: dict[tuple[str, int], Callable[[], None]] = {}
        self.step = 0
        self.replica: Replica | None = None

    def reached(self, place: str) -> None:
        if action := self.planned.get((place, self.step)):
            action()


EVENTS = Events()


class Watched(Shard):
    """The data of a worker, and the moments at which something can happen."""

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        EVENTS.step = (epoch - 1) * PER_EPOCH + start
        for batch in super().read_epoch(epoch, start):
            EVENTS.step += 1
            EVENTS.reached("data")
            yield batch

    def read_test_set(
        self, epoch: int = 1, batch: int | None = 512, *, whole: bool = False
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        EVENTS.reached("test")
        yield from super().read_test_set(epoch, batch, whole=whole)


class WatchedReplica(Replica):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        EVENTS.replica = self

    def compute_gradient(self, *arguments: Any) -> Shares:
        EVENTS.reached("step")
        return super().compute_gradient(*arguments)


def feed(config: options.RunConfig, worker: int, workers: int) -> Watched:
    return Watched(ARRAYS, config.global_batch, config.seed, worker, workers)


models.build = lambda *_: Tiny()
data.build_feed = feed  # type: ignore[assignment]
assembly.Replica = WatchedReplica  # type: ignore[attr-defined, misc]


def configured(comm: MPI.Comm, **changes: Any) -> options.RunConfig:
    """A run of three epochs of four steps, as the launcher would resolve it."""
    changes = {"compressor": {"name": "topk", "ratio": 0.1}, "memory": "residual", "schedule": "cosine", **changes}
    if changes["memory"] == "dgc":
        changes = {"optimizer": {"momentum": 0.0, "nesterov": False}, **changes}
    given = compose_config(
        workers=comm.size, epochs=EPOCHS, batch={"size": 12}, measure_every=2, warmup_steps=2, **changes
    )
    return options.parse(resolve(given))


def train(directory: Path, comm: MPI.Comm = COMM, /, **changes: Any) -> dict[str, Any]:
    """Go on with the run in `directory`, as a new process would."""
    stopping.forget()
    if comm.rank == 0:
        directory.mkdir(exist_ok=True)
    comm.Barrier()
    try:
        return loop.train(configured(comm, **changes), comm, directory)
    finally:
        EVENTS.planned.clear()
        comm.Barrier()


def weights() -> bytes:
    """Of the run that was trained last, with what its model remembers."""
    assert EVENTS.replica is not None
    model = EVENTS.replica.model
    tensors = [EVENTS.replica.flat.values, *model.buffers(), model.copy_carried()["mean"]]  # type: ignore[operator]
    return b"".join(tensor.numpy().tobytes() for tensor in tensors)


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """Those that do not tell of time."""
    kept = ("status", "steps", "epochs", "accuracy", "best_accuracy", "loss", "train_loss", "payload_bytes")
    return {key: result[key] for key in (*kept, "sent_bytes", "compression_ratio", "compression_error")}


def rows(directory: Path, name: str) -> list[list[str]]:
    if name == run_directory.LOCAL_MODELS and not (directory / name).exists():
        return []
    with (directory / name).open() as file:
        return [[row.get(column, "") for column in ALIKE[name]] for row in csv.DictReader(file)]


def require_equal(one: Path, other: Path, what: Any) -> None:
    for name in ALIKE:
        for mine, theirs in itertools.zip_longest(rows(one, name), rows(other, name)):
            assert mine == theirs, (what, name, mine, theirs)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A directory of all ranks; after a failure it stays, because others may still read it."""
    path = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    yield Path(path)
    COMM.Barrier()
    if COMM.rank == 0:
        shutil.rmtree(path, ignore_errors=True)


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def signalled(worker: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), signal.SIGUSR1) if COMM.rank == worker else None


# Going on is as if nothing had happened

COMPRESSORS: tuple[dict[str, Any], ...] = (
    {"name": "topk", "ratio": 0.1},
    {"name": "powersgd", "rank": 1},
    {"name": "acp_sgd", "rank": 1},
    {"name": "randomk", "ratio": 0.2},
    {"name": "intsgd"},
    {"name": "qsgd"},
    {"name": "fp16"},
    {"name": "signum"},
    {"name": "none"},
)
WARMING = {"dense_1d": True, "warmup": "list", "warmup_ratios": [1.0, 0.5]}
SHORT: dict[str, dict[str, Any]] = {
    "onebit_adam": {"freeze_steps": 4},
    "onebit_lamb": {"freeze_steps": 4},
    "zero_one_adam": {"variance_rounds": 2, "freeze_steps": 4, "local_doubling": 2, "local_steps": 3},
    "local_sgd": {"steps": 3},
    "torch": {"target": "torch.optim.AdamW", "args": {"amsgrad": True}},
}
"""What must come into force in a run of twelve steps, and what has no default."""
RUNS: tuple[dict[str, Any], ...] = (
    {"optimizer": "distributed_lion", "compressor": "sign", "memory": "none"},
    {"optimizer": "distributed_lion", "compressor": "sign", "memory": "none", "schedule": "constant"},
    {"optimizer": "dion", "compressor": "dion", "memory": "residual"},
    {"exchange": {"name": "allgather", "granularity": "bucket", "bucket_mib": 0.001}},
    {"exchange": {"name": "allgather", "granularity": "model"}, "memory": "ef21"},
    {"memory": {"name": "ef21", "gradient_weight": 0.1, "double_momentum": True}},
    {"memory": "econtrol"},
    {"memory": {"name": "loco", "reset": 8}},
    {"memory": "dgc", "policy": WARMING},
    {"compressor": {"name": "redsync_threshold", "ratio": 0.05}},
    {"task": {"name": "custom", "target": "tests.trainers.ranks.own_code:Smooth"}},
    {
        "compressor": "qsgd",
        "memory": "none",
        "policy": {"accordion": {"option": "levels", "relaxed": 127, "interval": 1, "threshold": 0.5, "lr_drop": 0.5}},
    },
    {
        "compressor": {"name": "topk", "ratio": 0.1},
        "policy": {"lgreco": {"option": "ratio", "values": [0.02, 0.3], "interval": 3}},
    },
)

EARLY = {"name": "gossip", "overlap": True}
LATE = {"order": "combine_then_adapt"}
DECENTRALISED: tuple[dict[str, Any], ...] = (
    {"algorithm": {"name": "choco", **LATE}, "exchange": EARLY, "topology": "chain"},
    {"algorithm": {"name": "choco", **LATE}, "exchange": EARLY, "compressor": "qsgd", "batch_norm": "local"},
    {"algorithm": "dcd", "exchange": EARLY, "compressor": "qsgd"},
    {"algorithm": "dcd", "exchange": EARLY, "compressor": "qsgd", "topology": "star"},
    {"algorithm": "sgp", "compressor": "none", "topology": "exponential"},
    {"algorithm": {"name": "choco", "consensus_stepsize": "tune"}, "compressor": "sign_norm", "optimizer": "adam"},
    {"algorithm": "deep_squeeze", "topology": "chain"},
    {"algorithm": "ecd", "exchange": EARLY, "compressor": "qsgd"},
    {"algorithm": {"name": "dpsgd", **LATE, "evaluate_local": False}, "compressor": "none"},
    {"algorithm": "dpsgd", "compressor": "none", "topology": "one_peer_exponential"},
)


def accepted(changes: dict[str, Any]) -> bool:
    try:
        configured(COMM, **changes)
    except UsageError:
        return False
    return True


def cases() -> Iterator[dict[str, Any]]:
    """Every exchange with every memory, the compressors in turn; every algorithm, optimizer and schedule; and more.

    Decentralised algorithms have an exchange and a memory of their own.

    Each is for one number of workers; every exchange, and every memory, is there for both.
    """
    for exchange in sorted(set(groups.GROUPS["exchange"]) - {"auto", "gossip"}):
        for memory in groups.GROUPS["memory"]:
            able = [
                changes
                for compressor in COMPRESSORS
                if accepted(changes := {"exchange": exchange, "memory": memory, "compressor": compressor})
            ]
            assert able, (exchange, memory)
            yield able[len(exchange + memory) % len(able)]
    schedules = [name for name in groups.GROUPS["schedule"] if accepted({"schedule": name})]
    for number in range(max(len(COMPRESSORS), len(schedules))):
        compressor, schedule = COMPRESSORS[number % len(COMPRESSORS)], schedules[number % len(schedules)]
        yield {"compressor": compressor, "memory": "none", "schedule": schedule}
    for group in ("algorithm", "optimizer"):
        named = ({"name": name, **SHORT.get(name, {})} for name in groups.GROUPS[group])
        yield from (changes for one in named if accepted(changes := {group: one}))
    yield from RUNS
    yield from ({"memory": "none", **changes} for changes in DECENTRALISED)


@contextlib.contextmanager
def combining(every_s: float) -> Iterator[None]:
    """The workers meet to combine their rows after the first step, and then so often."""
    before, recorder.COMBINE_EVERY_S = recorder.COMBINE_EVERY_S, every_s
    try:
        yield
    finally:
        recorder.COMBINE_EVERY_S = before


def soon() -> None:
    """Workers that need not wait for each other stop two steps after a signal if they meet after every step."""
    stopping.listen()
    for changes in (DECENTRALISED[0], {"algorithm": {"name": "local_sgd", "steps": 3}}):
        with folder() as directory, combining(0.0):
            changes = {"memory": "none", **changes}
            assert assembly.find_lag(configured(COMM, **changes)) > 2
            EVENTS.planned["data", 5] = signalled(COMM.size - 1)
            result = train(directory / "run", **changes)
            assert result["reason"] == "SIGUSR1: saved at step 6; a resume goes on from there", (changes, result)


def same() -> None:
    """Stopped by a signal to one worker, and ended between two steps: in the end nothing tells of it."""
    stopping.listen()
    with combining(1e6):
        stop_and_resume_all()


def stop_and_resume_all() -> None:
    random = np.random.RandomState(COMM.size)
    for number, changes in itertools.islice(enumerate(cases()), COMM.size % 2, None, 2):
        with folder() as directory:
            whole, parts = directory / "whole", directory / "parts"
            figures_of_whole = figures(train(whole, **changes))
            weights_of_whole = weights()
            assert len(rows(whole, run_directory.STEPS)) == STEPS
            models = COMM.size * EPOCHS if configured(COMM, **changes).decentralised else 0
            assert len(rows(whole, run_directory.LOCAL_MODELS)) == models, changes
            stop, end = int(random.randint(1, STEPS)), int(random.randint(1, STEPS + 1))
            place = ("data", "step", "test")[number % 3]
            if place == "test":
                stop = PER_EPOCH * (1 + number // 2 % (EPOCHS - 1))
            lag = assembly.find_lag(configured(COMM, **changes))
            if lag and stop > STEPS - PER_EPOCH:  # the run would end before the answer
                stop -= PER_EPOCH
            what = (COMM.size, changes, place, stop, end)

            EVENTS.planned[place, stop] = signalled(int(random.randint(COMM.size)))
            result = train(parts, **changes)
            # in the middle of a step, the workers have been asking since it began; they ask again when it is evaluated
            saved = stop + 1 if place == "step" and stop % PER_EPOCH else stop
            saved = min(saved + lag, -(-saved // PER_EPOCH) * PER_EPOCH)  # late answers are waited for after an epoch
            assert result["status"] == run_directory.PREEMPTED, what
            assert result["reason"] == f"SIGUSR1: saved at step {saved}; a resume goes on from there", (result, what)
            assert len(rows(parts, run_directory.STEPS)) == saved, what

            EVENTS.planned["data", end] = raising(Killed())
            with contextlib.suppress(Killed):
                train(parts, **changes, checkpoint={"every_steps": 2})
            result = train(parts, **changes, checkpoint={"every_epochs": 1})
            require_equal(whole, parts, what)
            assert figures(result) == figures_of_whole, (result, figures_of_whole, what)
            assert weights() == weights_of_whole, what
            assert result["resumed_after"] and result["resumed_after"][0] == saved, (result, what)


def seldom() -> None:
    """Evaluated after every second epoch, or every third step, and in the end: a row each, wherever a run ends."""
    stopping.listen()
    central: dict[str, Any] = {"evaluate_every": 2}
    rest = {"kinds": ["head", "vectors"], "optimizer": {"name": "adam"}}
    by_steps: dict[str, Any] = {"evaluate_every_steps": 3, "optimizer": {"name": "muon", "groups": [rest]}}
    gossip = {"memory": "none", "algorithm": "choco", "compressor": "sign_norm"}
    for changes, expected in (
        (central, [("2", "8"), ("3", "12")]),
        ({**central, **gossip}, [("2", "8"), ("3", "12")]),
        ({**by_steps, **gossip}, [("1", "3"), ("2", "6"), ("3", "9"), ("3", "12")]),
    ):
        with folder() as directory:
            whole, parts = directory / "whole", directory / "parts"
            figures_of_whole = figures(train(whole, **changes))
            assert figures_of_whole["epochs"] == EPOCHS == 3
            assert [(epoch, step) for epoch, step, *_ in rows(whole, run_directory.EPOCHS)] == expected, changes
            models = rows(whole, run_directory.LOCAL_MODELS)
            assert len(models) == (len(expected) * COMM.size if "algorithm" in changes else 0)
            with (whole / run_directory.STEPS).open() as steps, (whole / run_directory.EPOCHS).open() as epochs:
                trained = [(float(row["samples"]), float(row["loss"])) for row in csv.DictReader(steps)]
                told = float(next(csv.DictReader(epochs))["train_loss"])
            samples, loss = np.array(trained[: int(expected[0][1])]).T
            assert math.isclose(told, np.average(loss, weights=samples), rel_tol=1e-9), changes
            if "evaluate_every_steps" in changes:  # an evaluation within an epoch leaves what is carried as it is
                train(directory / "other", **{**changes, "evaluate_every_steps": None})
                assert rows(directory / "other", run_directory.STEPS) == rows(whole, run_directory.STEPS)
            # neighbours agree late, here at the end of the epoch
            late = "algorithm" in changes
            for stop in (2, PER_EPOCH + 2) if late else (2, PER_EPOCH, PER_EPOCH + 2, 2 * PER_EPOCH + 1):
                EVENTS.planned["data", stop] = signalled(stop % COMM.size)
                assert train(parts, **changes)["status"] == run_directory.PREEMPTED, (changes, stop)
            assert figures(train(parts, **changes)) == figures_of_whole, changes
            require_equal(whole, parts, changes)


def moments() -> None:
    """A signal at every step and place: before the first, at the end of an epoch, in the last, in an evaluation."""
    stopping.listen()
    with folder() as directory:
        train(directory / "whole")
        expected = weights()
        for place, step in [*itertools.product(("data", "step"), range(1, STEPS + 1)), ("test", 4), ("test", STEPS)]:
            parts = directory / f"{place}-{step}"
            EVENTS.planned[place, step] = signalled(step % COMM.size)
            result = train(parts)
            over = step == STEPS and place != "data"  # too late: the run is done
            assert result["status"] == (run_directory.DONE if over else run_directory.PREEMPTED), (place, step, result)
            if not over:
                assert train(parts)["status"] == run_directory.DONE
            require_equal(directory / "whole", parts, (place, step))
            assert weights() == expected, (place, step)


def torn() -> None:
    """A process that ends at any moment of a save leaves the checkpoint before it, or the new one."""
    comm = MPI.COMM_SELF
    settings = {"every_steps": 3, "every_epochs": 1, "keep": 1}
    with folder() as shared:
        directory = shared / str(COMM.rank)
        directory.mkdir()
        train(directory / "whole", comm)
        expected = weights()
        calls: list[str] = []
        with counted(calls, None):
            train(directory / "count", comm, checkpoint=settings)
        assert len(calls) > 60 and {"mkdir", "open", "fsync", "rename", "rmtree", "replace"} == set(calls), calls
        for fatal in range(COMM.rank, len(calls), COMM.size):
            parts = directory / f"{fatal}"
            before: list[str] = []
            with counted(before, fatal), contextlib.suppress(Killed):
                train(parts, comm, checkpoint=settings)
            assert len(before) == fatal + 1
            survived = files.find_checkpoints(parts / run_directory.CHECKPOINT)
            if "rename" in before[:fatal]:
                assert survived, (fatal, before)
            for path in survived:
                meta = files.read_meta(path)
                for name, described in meta["files"].items():
                    files.read_file(path / name, described)
            result = train(parts, comm, checkpoint=settings)
            assert bool(result["resumed_after"]) == bool(survived)
            require_equal(directory / "whole", parts, fatal)
            assert weights() == expected, fatal
            files.conclude(parts / run_directory.CHECKPOINT, keep=1)
            assert [path.name for path in (parts / run_directory.CHECKPOINT).iterdir()] == ["step-00000012"], fatal
            shutil.rmtree(parts)


@contextlib.contextmanager
def counted(calls: list[str], fatal: int | None) -> Iterator[None]:
    """Note what a save asks the file system for; the process ends in the middle of call number `fatal`."""
    patched = [(os, "mkdir"), (os, "fsync"), (os, "rename"), (os, "replace"), (shutil, "rmtree"), (files, "write_file")]

    def watched(original: Any, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if name == "rmtree" and not Path(arguments[0]).exists():
                return None
            calls.append(name)
            if len(calls) - 1 == fatal:
                if name == "open":
                    arguments[0].write_bytes(b"the first bytes")
                if name == "rmtree":
                    next(Path(arguments[0]).iterdir()).unlink()
                raise Killed
            return original(*arguments, **keywords)

        return call

    originals = [getattr(module, name) for module, name in patched]
    for (module, name), original in zip(patched, originals, strict=True):
        setattr(module, name, watched(original, "open" if name == "write_file" else name))
    try:
        yield
    finally:
        for (module, name), original in zip(patched, originals, strict=True):
            setattr(module, name, original)


# What is kept, and what goes wrong


def kept() -> None:
    """When a run is saved, and how many checkpoints stay."""
    with folder() as directory:

        def left(name: str, **settings: Any) -> list[str]:
            train(directory / name, checkpoint=settings)
            return [path.name for path in files.find_checkpoints(directory / name / run_directory.CHECKPOINT)]

        assert left("default") == []
        assert left("steps", every_steps=5) == ["step-00000005", "step-00000010"]
        assert left("one", every_steps=5, keep=1) == ["step-00000010"]
        assert left("epochs", every_epochs=1, keep=5) == ["step-00000004-evaluated", "step-00000008-evaluated"]
        assert left("final", final=True) == ["step-00000012-evaluated"]
        often = left("minutes", every_minutes=1e-9, keep=100)
        assert len(often) == STEPS + EPOCHS - 1 and often[3:5] == ["step-00000004", "step-00000004-evaluated"], often
        assert train(directory / "final", checkpoint={"final": True})["resumed_after"] == [STEPS]
        require_equal(directory / "final", directory / "default", "the run was over")
        if COMM.rank == 0:
            files.conclude(directory / "minutes" / run_directory.CHECKPOINT, keep=1)
            assert len(files.find_checkpoints(directory / "minutes" / run_directory.CHECKPOINT)) == 1
            files.conclude(directory / "minutes" / run_directory.CHECKPOINT, keep=0)
            assert not (directory / "minutes" / run_directory.CHECKPOINT).exists()


def shared_once() -> None:
    """What is alike on all workers is written once; what each has for itself is in its own part."""
    with folder() as directory:
        train(directory / "run", checkpoint={"every_steps": 5})
        path = files.find_checkpoints(directory / "run" / run_directory.CHECKPOINT)[-1]
        meta = files.read_meta(path)
        parts = {name: files.read_file(path / name, described) for name, described in meta["files"].items()}
        assert set(parts) == {"shared.pt", *(f"worker-{worker}.pt" for worker in range(COMM.size))}
        assert {"parameters", "algorithm.optimizer", "schedule"} <= set(parts.pop("shared.pt"))
        assert all({"replica", "algorithm.exchange"} <= set(part) for part in parts.values())


def full_disk() -> None:
    """A periodic save that fails costs a line; one that a signal asks for ends the run. The last one stays."""
    stopping.listen()
    original = files.write_file

    def failing(path: Path, value: Any) -> dict[str, Any]:
        if path.name == f"worker-{COMM.size - 1}.pt" and EVENTS.step == 4:
            path.write_bytes(b"a part of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(path, value)

    files.write_file = failing
    line = f"checkpoint of step 4: worker {COMM.size - 1}: No space left on device; the last complete one is "
    with folder() as directory, contextlib.redirect_stderr(io.StringIO()) as printed:
        assert train(directory / "run", checkpoint={"every_steps": 2, "keep": 10})["status"] == run_directory.DONE
        last = directory / "run" / run_directory.CHECKPOINT / "step-00000002"
        assert printed.getvalue() == ("" if COMM.rank else f"{line}{last}; the run goes on\n"), printed.getvalue()
        left = sorted(path.name for path in last.parent.iterdir())
        assert left == [f"step-{step:08}" for step in (2, 6, 8, 10, 12)], left

        EVENTS.planned["data", 4] = signalled(0)
        try:
            train(directory / "stopped")
        except UsageError as error:
            assert str(error) == f"{line}none", error
        else:
            raise AssertionError("it was not saved")
        assert list((directory / "stopped" / run_directory.CHECKPOINT).iterdir()) == []
    files.write_file = original


def contents(directory: Path) -> dict[str, str]:
    """The hash of every file."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.putenv, ("GRADSWEEP_TEST", "evil")


def refused() -> None:
    """What cannot be gone on with is one line on every worker, and nothing is changed."""
    with folder() as directory:
        good = directory / "good"
        EVENTS.planned["data", 8] = raising(Killed())
        with contextlib.suppress(Killed):
            train(good, checkpoint={"every_steps": 3})
        checkpoint = Path(run_directory.CHECKPOINT, "step-00000006")

        def meta(**changes: Any) -> Callable[[Path], None]:
            def change(path: Path) -> None:
                found = json.loads((path / files.META).read_text())
                (path / files.META).write_text(json.dumps({**found, **changes}))

            return change

        def flip(path: Path) -> None:
            content = bytearray((path / "shared.pt").read_bytes())
            content[len(content) // 2] ^= 1
            (path / "shared.pt").write_bytes(content)

        def pickled(value: Any) -> Callable[[Path], None]:
            def change(path: Path) -> None:
                torch.save(value, path / "worker-1.pt")
                content = (path / "worker-1.pt").read_bytes()
                found = json.loads((path / files.META).read_text())
                found["files"]["worker-1.pt"] = {
                    "bytes": len(content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
                (path / files.META).write_text(json.dumps(found))

            return change

        nothing: Callable[[Path], None] = lambda path: None  # noqa: E731
        last = f"worker-{COMM.size - 1}.pt"
        wrong: list[tuple[Callable[[Path], None], dict[str, Any], str]] = [
            (
                nothing,
                {"optimizer": {"lr": 0.5}, "seed": 3},
                "it is that of another config: seed=0 (here 3), optimizer.lr=0.1 (here 0.5)",
            ),
            (nothing, {"compressor": "qsgd"}, "another config: compressor=topk (here qsgd), compressor.levels=(none)"),
            (meta(format=2), {}, "its format 2 is that of a newer version of Gradsweep; this one knows 1"),
            (meta(format="1"), {}, "meta.json is garbled"),
            (meta(files=None), {}, "meta.json is garbled"),
            (meta(files={}), {}, "meta.json does not describe shared.pt"),
            (meta(position={"epoch": 2}, workers=COMM.size + 1), {}, f"of {COMM.size + 1} workers, not of {COMM.size}"),
            (lambda path: (path / files.META).unlink(), {}, "meta.json is missing"),
            (lambda path: os.truncate(path / files.META, 100), {}, "meta.json is garbled"),
            (lambda path: (path / last).unlink(), {}, f"{last} is missing"),
            (lambda path: os.truncate(path / last, 1000), {}, f"{last} has 1000 bytes, but"),
            (flip, {}, "the content of shared.pt is not what was written (SHA-256)"),
            (pickled({"replica": Evil()}), {}, "worker-1.pt holds something else than tensors, numbers and strings"),
            (pickled([1]), {}, "worker-1.pt holds a list"),
            (pickled({"replica": {}}), {}, "it has the entries"),
            (
                lambda path: os.truncate(path.parent.parent / run_directory.STEPS, 300),
                {},
                "steps.csv has 0 of 6 rows",
            ),
        ]
        for number, (damage, changes, message) in enumerate(wrong):
            bad = directory / f"{number}"
            if COMM.rank == 0:
                shutil.copytree(good, bad)
                damage(bad / checkpoint)
            COMM.Barrier()
            before = contents(bad)
            COMM.Barrier()
            try:
                train(bad, **changes)
            except UsageError as error:
                line = str(error)
            else:
                raise AssertionError(message)
            assert contents(bad) == before, message
            assert line.startswith(f"{bad / checkpoint}: ") and message in line and "\n" not in line, (message, line)
            assert line.endswith(
                f"remove step-00000006 there to go on from step-00000003, or remove {bad / run_directory.CHECKPOINT} "
                f"to compute the run from its first step"
            ), line
            COMM.Barrier()
        assert "GRADSWEEP_TEST" not in os.environ
        # as the line says
        train(directory / "whole")
        for way in ("older", "anew"):
            if COMM.rank == 0:
                shutil.copytree(good, directory / way)
                root = directory / way / run_directory.CHECKPOINT
                shutil.rmtree(root if way == "anew" else root / checkpoint.name)
            result = train(directory / way)
            assert result["resumed_after"] == ([] if way == "anew" else [3]), result
            require_equal(directory / way, directory / "whole", way)


def different() -> None:
    """Workers whose weights have come apart are found out, and not saved."""

    def spoil() -> None:
        if COMM.rank == 1:
            assert EVENTS.replica is not None
            EVENTS.replica.flat.values[17] += 1e-6

    with folder() as directory:
        for changes, step in (
            ({"check_every": 5}, 5),
            ({"check_every": 0, "checkpoint": {"every_steps": 7}}, 7),
            ({"check_every": 0}, None),
        ):
            EVENTS.planned["data", 4] = spoil
            try:
                train(directory / str(step), **changes)
            except DifferentWeights as error:
                assert str(error) == f"step {step}: the weights of workers [1] differ from those of worker 0", error
            else:
                assert step is None
            assert files.find_checkpoints(directory / str(step) / run_directory.CHECKPOINT) == []


if __name__ == "__main__":
    main(globals())
