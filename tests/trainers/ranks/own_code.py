"""Own models and tasks on real ranks: `mpirun -n W python -m tests.trainers.ranks.own_code NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import exchange_of, main
from trainers.config import run_config as options
from trainers.data.feeds import Batch, Feed
from trainers.data.partitions import cut
from trainers.devices.stopwatch import Stopwatch
from trainers.replica.replica import Replica
from trainers.rules.resolve import resolve

COMM = MPI.COMM_WORLD
SAMPLES, TESTS, BATCH = 2 * 12 + 2, 5, 12


class Two(nn.Module):
    """Takes a dict of two tensors, and returns a tuple with an output of integers besides."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.left, self.norm = nn.Linear(3, width), nn.BatchNorm1d(width, eps=1.0)
        self.words, self.head = nn.Embedding(5, width), nn.Linear(width, 2)

    def forward(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.norm(self.left(inputs["numbers"])) + self.words(inputs["words"]).mean(1))
        outputs = self.head(hidden)
        return outputs, outputs.argmax(1)


class Pair:
    """A loss on a dict of targets, with a mean and a sum as metrics; `odd` names one by the worker."""

    def __init__(self, odd: bool = False) -> None:
        self.odd = odd

    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        scores, _ = outputs
        return F.mse_loss(scores[:, 0], targets["value"]) + F.cross_entropy(scores, targets["kind"])

    def metrics(self, outputs: Any, targets: Any) -> dict[str, Any]:
        scores, kinds = outputs
        assert not scores.requires_grad and not kinds.is_floating_point()
        right = kinds == targets["kind"]
        first = right[targets["kind"] == 1]
        found: dict[str, Any] = {"right": right.float().mean(), "of_ones": (first.sum(), len(first))}
        return {**found, f"worker{COMM.rank}": 1.0} if self.odd else found


class Smooth:
    """A loss of scores, and two metrics."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, targets, label_smoothing=0.1)

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
        right = outputs.argmax(1) == targets
        return {"accuracy": (right.sum(), len(right)), "largest": outputs.max(1).values.mean()}


class Several(Feed):
    """Dicts of tensors, in the order of the set; a worker may have no sample."""

    shape, kind, task, classes, samples = (), "several", "custom", 0, SAMPLES

    def __init__(self, worker: int, workers: int, tests: int = TESTS) -> None:
        self.worker, self.workers, self.tests = worker, workers, tests
        generator = torch.Generator().manual_seed(3)
        count = SAMPLES + tests
        self.inputs = {
            "numbers": torch.randn(count, 3, generator=generator),
            "words": torch.randint(0, 5, (count, 4), generator=generator),
        }
        self.labels = {
            "value": torch.randn(count, generator=generator),
            "kind": torch.randint(0, 2, (count,), generator=generator),
        }

    def _take(self, rows: slice) -> tuple[Any, Any]:
        inputs = {name: tensor[rows] for name, tensor in self.inputs.items()}
        return inputs, {name: tensor[rows] for name, tensor in self.labels.items()}

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for begin in range(start * BATCH, SAMPLES, BATCH):
            total = min(BATCH, SAMPLES - begin)
            mine = cut(total, self.workers, self.worker)
            yield Batch(*self._take(slice(begin + mine.start, begin + mine.stop)), total)

    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[Any, Any]]:
        mine = cut(self.tests, *((1, 0) if whole else (self.workers, self.worker)))
        for begin in range(mine.start, mine.stop, 2):
            yield self._take(slice(SAMPLES + begin, SAMPLES + min(begin + 2, mine.stop)))


def replica_of(comm: MPI.Comm, odd: bool = False, **changes: Any) -> Replica:
    here = "tests.trainers.ranks.own_code"
    given = {
        "model": {"name": "custom", "target": f"{here}:Two", "args": {"width": 6}},
        "task": {"name": "custom", "target": f"{here}:Pair", "args": {"odd": odd}},
        "workers": comm.size,
        "batch": {"size": BATCH, "accumulate": changes.pop("accumulate", 1)},
        "batch_norm": "synchronised",
    }
    return Replica(options.parse(resolve(compose_config(**given, **changes))), (), 0, comm)


def several() -> None:
    """W workers with their shares compute what one computes with the whole batch, and evaluate alike."""
    for accumulate in (1, 2):
        together, alone = replica_of(COMM, accumulate=accumulate), replica_of(MPI.COMM_SELF)
        for each in (together, alone) if accumulate > 1 else ():
            each.model.norm.eval()  # in training, pieces would be normalised apart
        exchanger = exchange_of("none", "allreduce", together.flat.cut_units("model", 1.0))
        mine, whole = Several(COMM.rank, COMM.size), Several(0, 1)
        watch, rows = Stopwatch(), set()
        for step, (part, batch) in enumerate(zip(mine.read_epoch(1), whole.read_epoch(1), strict=True), 1):
            rows.add(part.rows)
            sums = np.array(together.compute_gradient(part, watch).read())
            assert np.isnan(sums[1]) or not part.rows
            loss = COMM.allreduce(sums[0])
            exchanger.mean(step)
            expected, _ = alone.compute_gradient(batch, watch).read()
            assert np.isclose(loss, expected, rtol=1e-5), (step, loss, expected)
            error = float((together.flat.gradients - alone.flat.gradients).abs().max())
            assert error < 1e-5 * float(alone.flat.gradients.abs().max()), (step, error)
        assert COMM.size < 3 or 0 in rows or COMM.rank > 0
        ours, theirs = together.evaluate(mine), alone.evaluate(whole)
        assert np.isclose(ours.loss, theirs.loss, rtol=1e-5) and np.isnan(ours.accuracy)
        assert ours.metrics.keys() == theirs.metrics.keys() == {"right", "of_ones"}
        assert np.allclose([*ours.metrics.values()], [*theirs.metrics.values()], rtol=1e-6)
        assert np.isclose(together.evaluate_alone(mine).loss, theirs.loss, rtol=1e-5)


def unequal() -> None:
    """Metrics that other workers do not have end the run on all of them, with one line; one of no sample has none."""
    replica = replica_of(COMM, odd=True)
    try:
        replica.evaluate(Several(COMM.rank, COMM.size))
    except UsageError as error:
        reason = str(error)
    else:
        raise AssertionError("no error")
    assert "the metrics of one worker are right, of_ones, worker0, those of another right, of_ones, worker1; " in reason
    assert "\n" not in reason and "task.target=tests.trainers.ranks.own_code:Pair" in reason
    replica = replica_of(COMM)
    assert replica.evaluate(Several(COMM.rank, COMM.size, tests=1)).metrics.keys() == {"right", "of_ones"}


def everything() -> None:
    several()
    unequal()


if __name__ == "__main__":
    main({one.__name__: one for one in (several, unequal, everything)})
