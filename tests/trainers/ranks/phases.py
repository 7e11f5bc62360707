"""Runs with phases that are stopped and gone on with: `mpirun -n W python -m tests.trainers.ranks.phases NAME`."""

from __future__ import annotations

import csv
import itertools
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from gradsweep import run_directory
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers import data
from trainers.config import run_config as options
from trainers.data.feeds import Batch, Feed
from trainers.mpi import stopping
from trainers.replica.replica import Replica, Shares
from trainers.rules.resolve import resolve
from trainers.tasks.base import Scores
from trainers.training import assembly, loop

COMM = MPI.COMM_WORLD
PHASES = [{"epoch": 0, "size": 8}, {"epoch": 1, "size": 12, "batch": 3}, {"epoch": 3, "size": 16, "batch": 5}]
SAMPLES = [4, 4, 2, 3, 3, 3, 1, 3, 3, 3, 1, 5, 5]
"""Of every step, of ten images in all."""
SIZES = [8] * 3 + [12] * 8 + [16] * 2


class Watched(Replica):
    """Notes what it is shown; at a planned moment, SIGUSR1 comes to one of the workers."""

    seen: list[int] = []
    tested: list[int] = []
    stop: tuple[str, int] = ("", 0)

    def compute_gradient(self, batch: Batch, *others: Any) -> Shares:
        Watched.seen.append(batch.inputs.shape[-1])
        self._reached("step", len(Watched.seen))
        return super().compute_gradient(batch, *others)

    @torch.no_grad()
    def evaluate(self, feed: Feed, epoch: int = 1) -> Scores:
        Watched.tested.append(0)
        self._reached("test", len(Watched.tested))
        return super().evaluate(feed, epoch)

    def _compute_outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.model.training:
            Watched.tested[-1] = inputs.shape[-1]
        return super()._compute_outputs(inputs)

    def _reached(self, place: str, number: int) -> None:
        if Watched.stop == (place, number) and COMM.rank == number % COMM.size:
            os.kill(os.getpid(), signal.SIGUSR1)


assembly.Replica = Watched  # type: ignore[attr-defined, misc]


def rows(directory: Path, name: str) -> list[dict[str, str]]:
    """Without times."""
    with (directory / name).open() as file:
        return [{key: value for key, value in row.items() if not key.endswith("_s")} for row in csv.DictReader(file)]


def resumed() -> None:
    """Stopped in steps and in evaluations of every phase: in the end nothing tells of it."""
    stopping.listen()
    root = Path(COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None))
    given = compose_config(
        model={"name": "resnet", "depth": 8},
        dataset={"name": "synthetic", "height": 12, "width": 12, "train": 10, "test": 7, "flip": True},
        batch={"size": 4},
        phases=PHASES,
        epochs=4,
        schedule={"name": "piecewise", "knots": [[0, 0], [1, 1], [1, 0.5], [4, 0.1]]},
        compressor={"name": "topk", "ratio": 0.1},
        memory="residual",
        measure_every=2,
        warmup_steps=2,
        data={"root": str(root)},
        workers=COMM.size,
    )
    given = resolve(given)
    if COMM.rank == 0:
        data.prepare(options.parse(given).dataset, root)
    COMM.Barrier()

    def train(directory: Path, place: str = "", number: int = 0) -> dict[str, Any]:
        stopping.forget()
        Watched.seen, Watched.tested, Watched.stop = [], [], (place, number)
        if COMM.rank == 0:
            directory.mkdir(exist_ok=True)
        COMM.Barrier()
        result = loop.train(options.parse(given), COMM, directory)
        COMM.Barrier()  # rank 0 has written
        return result

    whole = root / "whole"
    result = train(whole)
    assert (result["status"], result["steps"]) == (run_directory.DONE, len(SAMPLES)), result
    assert (Watched.seen, Watched.tested) == (SIZES, [8, 12, 12, 16])
    expected = {name: rows(whole, name) for name in (run_directory.STEPS, run_directory.EPOCHS)}
    assert [int(row["samples"]) for row in expected[run_directory.STEPS]] == SAMPLES
    lines = [0.5 - 0.4 * (epoch + (i + 1) / n - 1) / 3 for epoch, n in ((1, 4), (2, 4), (3, 2)) for i in range(n)]
    rates = [0.1 * factor for factor in (1 / 3, 2 / 3, 1.0, *lines)]
    assert all(
        abs(float(row["lr"]) / rate - 1) < 1e-6 for row, rate in zip(expected[run_directory.STEPS], rates, strict=True)
    )
    for place, numbers in (("step", (1, 3, 4, 10, 11, 12)), ("test", (1, 3))):  # within phases, and at their ends
        for number in numbers:
            parts = root / f"{place}-{number}"
            result = train(parts, place, number)
            assert result["status"] == run_directory.PREEMPTED, (place, number, result)
            assert train(parts)["status"] == run_directory.DONE
            for name, rows_of_whole in expected.items():
                for mine, theirs in itertools.zip_longest(rows(parts, name), rows_of_whole):
                    assert mine == theirs, (place, number, name, mine, theirs)
            assert Watched.seen == SIZES[len(SIZES) - len(Watched.seen) :], (place, number)


if __name__ == "__main__":
    main(globals())
