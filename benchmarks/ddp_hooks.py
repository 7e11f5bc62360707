"""Our hooks of DistributedDataParallel against torch's own, over gloo, in one process group.

    python benchmarks/ddp_hooks.py [pairs] [methods] [--ranks 2 4] [--batch 0 8] [--into docs/design/benchmarks.md]

- pairs: a step with a hook of torch's and with ours of the same method.
- methods: a step with each of our methods, against DistributedDataParallel without a hook.

Each contender is a DistributedDataParallel of its own, with its own copy of the model and SGD with momentum; all have
the same ranks, one thread each. In every round each contender takes a block of steps, in random order. Ratios are those
of blocks of the same round, with a 95 % interval over the rounds (trainers/race/ratios.py). With a batch of 0 nothing
of the model is computed: gradients of its shapes are exchanged, and a step is little but exchange and update.

torch's PowerSGD hooks get one bucket: with several, callbacks start sums in another order on each rank, and gloo ends
with an error. torch refuses its bf16 hook without NCCL by its name; here it is called by another one. The batched
PowerSGD of torch 2.13 fails in an assertion on its own matrices; here it gets them as it expects them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gradsweep  # noqa: E402
from benchmarks.measuring import make_parser, print_tables  # noqa: E402
from benchmarks.trainer_ranks import CLASSES, SHAPE, Shapes, draw_batch  # noqa: E402
from trainers import models  # noqa: E402
from trainers.options.models import ResNet18, WideResNet  # noqa: E402
from trainers.race.ratios import Ratio, estimate_ratios  # noqa: E402

MODELS: Mapping[str, Any] = {"WRN-16-2": WideResNet(depth=16, widen=2), "ResNet-18": ResNet18()}
PAIRS: dict[str, dict[str, Any]] = {
    "none": {},
    "fp16": {},
    "bf16": {},
    "powersgd": {"memory": "residual"},
    "batched_powersgd": {"memory": "residual", "granularity": "bucket"},
}
"""Methods that torch has, with the arguments of ours."""
TARGETS = {"none": 1.0, "fp16": 1.2, "bf16": 1.0, "powersgd": 1.2, "batched_powersgd": 1.0}
METHODS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "fp16": {},
    "intsgd": {},
    "int8": {},
    "qsgd": {},
    "terngrad": {},
    "natural": {},
    "sign": {},
    "sign_norm": {"memory": "residual"},
    "topk": {"ratio": 0.01, "memory": "residual"},
    "randomk": {"ratio": 0.01, "memory": "residual"},
    "adaptive_threshold": {"memory": "residual"},
    "powersgd": {"memory": "residual"},
    "qsgd, sharded": {"exchange": "sharded"},
    "topk, sharded": {"ratio": 0.01, "memory": "residual", "exchange": "sharded"},
}
NO_HOOK = "no hook"


class Race(NamedTuple):
    """The seconds of a step of each contender, (rounds, contenders), and the ratio of compression of each."""

    names: list[str]
    times: np.ndarray
    compression: dict[str, float]

    def compare(self, name: str, baseline: str) -> Ratio:
        """Return how many times as fast as the baseline a contender is."""
        return estimate_ratios(self.times, self.names.index(baseline))[self.names.index(name)]

    def measure_ms(self, name: str) -> float:
        """Return the median of a contender's steps."""
        return 1e3 * float(np.median(self.times[:, self.names.index(name)]))


def bf16_hook(group: Any, bucket: Any) -> Any:
    return default_hooks.bf16_compress_hook(group, bucket)


def orthogonalise(matrices: torch.Tensor, epsilon: float = 0) -> None:
    """Do what batched_powerSGD_hook asks for: torch 2.13 refuses a single matrix, which it has itself."""
    _orthogonalise_many(matrices if matrices.ndim == 3 else matrices[None], epsilon)


_orthogonalise_many, powerSGD_hook._orthogonalize = powerSGD_hook._orthogonalize, orthogonalise
bf16_hook.__annotations__.clear()  # DDP refuses others than its own, and these are text


class Contender:
    """A DistributedDataParallel with a hook: `torch METHOD`, `METHOD` of ours with arguments, or NO_HOOK."""

    def __init__(self, name: str, arguments: dict[str, Any], model: str, batch: int) -> None:
        torch.manual_seed(0)
        module = models.build(MODELS[model], SHAPE, CLASSES)
        module = module if batch else Shapes(module)
        theirs = name.removeprefix("torch ") if name.startswith("torch ") else None
        one_bucket = {"bucket_cap_mb": 4096} if theirs is not None and "powersgd" in theirs else {}
        self.model = DistributedDataParallel(module, gradient_as_bucket_view=True, **one_bucket)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.001, momentum=0.9)
        self.batch = draw_batch(batch or 1, dist.get_rank())
        self.state: Any = None
        if theirs is not None:
            self._register_theirs(theirs)
        elif name != NO_HOOK:
            method = name.partition(",")[0]
            self.state, hook = gradsweep.ddp_hook(method, optimizer=self.optimizer, **arguments)
            self.model.register_comm_hook(self.state, hook)

    def _register_theirs(self, method: str) -> None:
        hooks: dict[str, Callable[..., Any]] = {
            "none": default_hooks.allreduce_hook,
            "fp16": default_hooks.fp16_compress_hook,
            "bf16": bf16_hook,
        }
        if method in hooks:
            self.model.register_comm_hook(None, hooks[method])
        else:
            batched = method == "batched_powersgd"
            hook = powerSGD_hook.batched_powerSGD_hook if batched else powerSGD_hook.powerSGD_hook
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            self.model.register_comm_hook(state, hook)

    def step(self) -> None:
        inputs, labels = self.batch
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self.optimizer.step()
        loss.item()  # as every training loop looks at it


def run_rank(rank: int, asked: dict[str, Any]) -> None:
    """Take all contenders' steps as a rank; rank 0 writes the times."""
    torch.set_num_threads(1)
    ranks = asked["ranks"]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{asked['port']}", rank=rank, world_size=ranks)
    contenders = {
        name: Contender(name, arguments, asked["model"], asked["batch"]) for name, arguments in asked["contenders"]
    }
    names, order = list(contenders), random.Random(0)
    for contender in contenders.values():
        for _ in range(4):  # DDP makes its buckets anew, PowerSGD of torch begins in the third step
            contender.step()
        if contender.state is not None:
            contender.state.take_counts()
    times = torch.zeros(asked["rounds"], len(names), dtype=torch.float64)
    for turn in range(asked["rounds"]):
        for name in order.sample(names, len(names)):
            contenders[name].step()  # caches are those of another contender
            dist.barrier()
            began = time.perf_counter()
            for _ in range(asked["steps"]):
                contenders[name].step()
            times[turn, names.index(name)] = (time.perf_counter() - began) / asked["steps"]
    dist.all_reduce(times, dist.ReduceOp.MAX)
    if rank == 0:
        states = {name: contender.state for name, contender in contenders.items() if contender.state is not None}
        compression = {name: state.take_counts()["compression_ratio"] for name, state in states.items()}
        Path(asked["file"]).write_text(json.dumps({"times": times.tolist(), "compression": compression}))
    dist.destroy_process_group()


def race(
    arguments: argparse.Namespace, model: str, batch: int, ranks: int, contenders: Mapping[str, dict[str, Any]]
) -> Race:
    """Let the contenders take their steps on so many ranks."""
    with tempfile.TemporaryDirectory() as scratch, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        file = Path(scratch, "times.json")
        asked = {"model": model, "batch": batch, "ranks": ranks, "port": port, "file": str(file)}
        asked |= {"rounds": arguments.rounds, "steps": arguments.steps, "contenders": list(contenders.items())}
        torch.multiprocessing.spawn(run_rank, (asked,), nprocs=ranks)
        found = json.loads(file.read_text())
    return Race(list(contenders), np.array(found["times"]), found["compression"])


def show(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def list_cases(arguments: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    yield from itertools.product(arguments.models, arguments.batch, arguments.ranks)


def pairs(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of hooks that torch has."""
    yield ["model", "batch", "ranks", "method", "torch, ms a step", "ours, ms a step", "times as fast", "asked"]
    for model, batch, ranks in list_cases(arguments):
        contenders = {f"torch {method}": {} for method in PAIRS} | PAIRS
        found = race(arguments, model, batch, ranks, contenders)
        for method in PAIRS:
            theirs, ours = found.measure_ms(f"torch {method}"), found.measure_ms(method)
            ratio = found.compare(method, f"torch {method}")
            missed = "" if ratio.value >= TARGETS[method] else ": missed"
            asked = f"at least {TARGETS[method]}{missed}"
            yield [model, str(batch), str(ranks), method, f"{theirs:.1f}", f"{ours:.1f}", show(ratio), asked]


def methods(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of all methods."""
    yield ["model", "batch", "ranks", "method", "ms a step", "times as fast as without a hook", "times fewer bytes"]
    for model, batch, ranks in list_cases(arguments):
        found = race(arguments, model, batch, ranks, {NO_HOOK: {}, **METHODS})
        for name in found.names:
            compression = f"{found.compression[name]:.1f}" if name in found.compression else ""
            ratio = show(found.compare(name, NO_HOOK)) if name != NO_HOOK else ""
            yield [model, str(batch), str(ranks), name, f"{found.measure_ms(name):.1f}", ratio, compression]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--batch", nargs="+", type=int, default=[0], help="samples of a rank")
    parser.add_argument("--steps", type=int, default=4, help="in a block")
    parser.add_argument("--rounds", type=int, default=16)
    print_tables(parser, "ddp-hooks", {"pairs": pairs, "methods": methods})


if __name__ == "__main__":
    main()
