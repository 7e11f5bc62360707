"""Training steps against torch's DistributedDataParallel, the exchange against bare mpi4py, memory, and starting.

    python benchmarks/trainer.py [steps] [exchange] [memory] [--ranks 2 4] [--batch 0 8] \
        [--into docs/design/benchmarks.md]

- steps: iterations per second of ours and of DistributedDataParallel over gloo with its own hook, for the same model,
  batch, one thread a rank, update and gradient clip included (SGD with momentum, for GPT AdamW), the data in memory.
  With a batch of 0 nothing of the model is computed: gradients of its shapes are exchanged. Also the CPU seconds until
  a rank is ready to train.
- exchange: a message that is encoded already, summed and gathered, against bare mpi4py on the same buffers.
- memory: what a rank needs at its peak beyond weights, gradients, optimizer, what memory keeps, and payloads. Nothing
  is computed forward or backward: activations depend on the batch. Beside it is what a run records (result.json): the
  sum of its memory_parts, and its peak_memory.

Both sides of a comparison are started at once and work in turn, the other side asleep; the first turn is a warm-up.
A ratio is the median of the ratios of all turns. Model and options are overrides as for multirun.py.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hydra import compose  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from benchmarks.measuring import ROOT, load_hydra, make_parser, print_tables  # noqa: E402
from sweep.settings.mpi import MpiSettings, choose_transport  # noqa: E402
from sweep.system.job_environment import build_job_environment  # noqa: E402
from trainers.rules.resolve import resolve  # noqa: E402

MODELS = {
    "WRN-16-2": ["model=wideresnet", "model.depth=16", "model.widen=2"],
    "ResNet-18": ["model=resnet18"],
    "GPT": ["experiment=gpt_char_cpu"],
}
METHODS = {
    "none": ["compressor=none"],
    "fp16": ["compressor=fp16"],
    "powersgd": ["compressor=powersgd", "memory=residual"],
}
TARGETS = {"none": 1.0, "fp16": 1.2, "powersgd": 1.2}
MESSAGES_MIB = (1, 10, 44)
PAYLOADS = ["compressor=none", "compressor=fp16", "compressor=qsgd", "compressor=topk", "compressor=powersgd"]

PHASES = ("forward", "backward", "encode", "communicate", "decode", "update", "CPU")


@dataclasses.dataclass
class Side:
    """The ranks of one side of a comparison, and the connections to them."""

    connections: list[Connection]
    cpu: float = 0.0
    """Seconds of CPU until a rank was ready, their mean."""

    def set_up(self, **asked: Any) -> None:
        for connection in self.connections:
            connection.send(asked)
        self.cpu = statistics.mean(connection.recv()["cpu"] for connection in self.connections)

    def turn(self, steps: int) -> dict[str, float]:
        """Let all ranks do so many steps; for each figure the mean over the ranks, the longest of "all"."""
        for connection in self.connections:
            connection.send(steps)
        answers = [connection.recv() for connection in self.connections]
        means = {name: statistics.mean(answer[name] for answer in answers) for name in answers[0]}
        return {**means, "all": max(answer["all"] for answer in answers)}


def compose_config(*overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a run's config as its ranks get it, and the launcher's `mpi` section."""
    whole: Any = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
    return resolve({key: value for key, value in whole.items() if key not in ("sweep", "mpi")}), whole["mpi"]


@contextlib.contextmanager
def start_sides(ranks: int, *sides: str) -> Iterator[list[Side]]:
    """Within the block, let so many processes of each side wait for orders."""
    _, mpi = compose_config("batch.size=4096")
    own = MpiSettings(**choose_transport(mpi, "local"))
    variables = {**own.variables, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(ranks)}
    mpirun = [word.replace("{workers}", str(ranks)) for word in own.resolve_command()]
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as scratch, Listener(str(Path(scratch, "socket"))) as listener:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            variables["MASTER_PORT"] = str(free.getsockname()[1])
        environment = build_job_environment(variables, None, scratch)
        try:
            for side in sides:
                rank = [sys.executable, "-m", "benchmarks.trainer_ranks", side, str(listener.address)]
                commands = [rank] * ranks if side == "ddp" else [[*mpirun, *rank]]
                for number, command in enumerate(commands):
                    own = {**environment, "RANK": str(number)}
                    processes.append(subprocess.Popen(command, cwd=ROOT, env=own, stdin=subprocess.DEVNULL))
            connections: dict[str, dict[int, Connection]] = {side: {} for side in sides}
            for _ in range(ranks * len(sides)):
                connection = listener.accept()
                side, number = connection.recv()
                connections[side][number] = connection
            yield [Side([connections[side][number] for number in range(ranks)]) for side in sides]
            for side in sides:
                for connection in connections[side].values():
                    connection.send(None)
            for process in processes:
                process.wait(60)
        finally:
            for process in processes:
                process.terminate()


def steps(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of steps."""
    head = ["model", "batch", "ranks", "method", "overlap", "ours, it/s", "DDP, it/s", "ratio", "promised"]
    yield [*head, "ready, CPU s"]
    choices = (arguments.models, arguments.batch, arguments.ranks, arguments.methods, arguments.overlap)
    for model, batch, ranks, method, overlap in itertools.product(*choices):
        row = _compare(arguments, model, batch, ranks, method, overlap)
        yield [model, str(batch), str(ranks), method, overlap, *row]


def _compare(arguments: argparse.Namespace, model: str, batch: int, ranks: int, method: str, overlap: str) -> list[str]:
    """Return the figures of a row, and print the phases of ours."""
    common = [f"workers={ranks}", f"batch.size={max(batch, 1) * ranks}", f"exchange.overlap={overlap}"]
    config, _ = compose_config(*MODELS[model], *METHODS[method], *common, *arguments.override)
    with start_sides(ranks, "ours", "ddp") as (ours, theirs):
        for side in (ours, theirs):
            side.set_up(config=config, batch=batch)
        turns = []
        for turn in range(arguments.turns + 1):
            pair = {}
            for side in ((ours, theirs), (theirs, ours))[turn % 2]:  # whoever comes first has no advantage
                pair[side is ours] = side.turn(arguments.steps)
            turns.append((pair[True], pair[False]))
    turns = turns[1:]
    mine, other = (statistics.median(arguments.steps / turn[side]["all"] for turn in turns) for side in (0, 1))
    ratio = statistics.median(turn[1]["all"] / turn[0]["all"] for turn in turns)
    phases = {name: statistics.median(turn[0].get(name, 0.0) for turn in turns) for name in PHASES}
    phases["CPU of DDP"] = statistics.median(turn[1]["CPU"] for turn in turns)
    print("  ms:", *(f"{name} {1e3 * passed / arguments.steps:.1f}" for name, passed in phases.items()), flush=True)
    return [f"{mine:.2f}", f"{other:.2f}", f"{ratio:.2f}", f"{TARGETS[method]}", f"{ours.cpu:.2f}"]


def exchange(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of messages."""
    yield ["collective", "ranks", "MiB", "ours, ms", "mpi4py, ms", "ratio", "promised"]
    for kind, ranks, mib in itertools.product(("allreduce", "allgather"), arguments.ranks, MESSAGES_MIB):
        with start_sides(ranks, "exchange") as (side,):
            side.set_up(kind=kind, mib=mib)
            turns = [side.turn(max(9, 99 // mib)) for _ in range(arguments.turns + 1)][1:]
        mine, bare = (1e3 * statistics.median(turn[name] for turn in turns) for name in ("all", "bare"))
        ratio = statistics.median(turn["all"] / turn["bare"] for turn in turns)
        yield [kind, str(ranks), str(mib), f"{mine:.2f}", f"{bare:.2f}", f"{ratio:.2f}", "at most 1.1"]


def memory(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of memory."""
    head = ["accounted for, MB", "peak, MB", "more", "promised", "recorded parts, MB", "recorded peak, MB"]
    yield ["model", "ranks", "method", *head]
    for model, ranks, method in itertools.product(arguments.models, arguments.ranks, PAYLOADS):
        common = [method, f"workers={ranks}", f"batch.size={ranks}", *arguments.override]
        config, _ = compose_config(*MODELS[model], *common)
        small, _ = compose_config("model=mlp", *common)
        with start_sides(ranks, "memory") as (side,):
            side.set_up(config=config, small=small)
            answer = side.turn(3)
        peak, expected = answer["peak"] / 1e6, answer["expected"] / 1e6
        more = f"{100 * (peak / expected - 1):.0f} %"
        recorded = [f"{answer[name] / 1e6:.1f}" for name in ("parts", "recorded")]
        yield [model, str(ranks), method, f"{expected:.1f}", f"{peak:.1f}", more, "at most 10 %", *recorded]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--overlap", nargs="+", choices=("false", "true"), default=["false"])
    parser.add_argument("--batch", nargs="+", type=int, default=[0, 8], help="samples of a rank")
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--override", nargs="+", default=[], help="of the config, as for multirun.py")
    with load_hydra():
        print_tables(parser, "trainer", {"steps": steps, "exchange": exchange, "memory": memory})


if __name__ == "__main__":
    main()
