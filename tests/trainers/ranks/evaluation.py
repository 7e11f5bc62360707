"""Evaluations of workers whose models differ: `mpirun -n W python -m tests.trainers.ranks.evaluation NAME`."""

from __future__ import annotations

import contextlib
import copy
import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradsweep import csv_columns, run_directory
from tests.trainers.ranks import checkpoint as checkpoints
from tests.trainers.ranks.checkpoint import ARRAYS, COMM, EPOCHS, EVENTS, PER_EPOCH, STEPS, Killed, raising
from tests.trainers.ranks.exchange import main
from trainers.config.run_config import RunConfig
from trainers.data.batches import Shard
from trainers.mpi import averaging
from trainers.options.algorithms import LocalSGD
from trainers.options.exchanges import Allreduce
from trainers.replica.replica import Replica
from trainers.training import assembly, evaluation

APART: dict[str, Any] = {"algorithm": "dpsgd", "compressor": "none", "memory": "none"}
algorithm_of = assembly.build_algorithm


def apart(config: RunConfig, *arguments: Any) -> Any:
    """Workers that never meet in place of those that mix: the evaluation does not know how they came to differ."""
    alone = dataclasses.replace(config, algorithm=LocalSGD(steps=10_000), exchange=Allreduce())
    return algorithm_of(alone, *arguments)


@contextlib.contextmanager
def workers_apart() -> Iterator[None]:
    assembly.build_algorithm = apart  # type: ignore[assignment]
    try:
        yield
    finally:
        assembly.build_algorithm = algorithm_of


def means() -> None:
    """Equal vectors are their mean to the bit; of others it is rounded once; nothing is left behind."""
    pieces, averaging._PIECE = averaging._PIECE, 7
    try:
        equal = torch.from_numpy(np.random.RandomState(1).standard_normal(50).astype(np.float32))
        assert torch.equal(averaging.compute_mean(equal, COMM), equal)
        mine = torch.from_numpy(np.random.RandomState(COMM.rank).standard_normal(50).astype(np.float32))
        exact = np.mean(COMM.allgather(mine.double().numpy()), axis=0).astype(np.float32)
        before = mine.clone()
        with contextlib.suppress(KeyError), averaging.replace_by_mean(mine, COMM):
            assert np.array_equal(mine.numpy(), exact)
            raise KeyError
        assert torch.equal(mine, before)
    finally:
        averaging._PIECE = pieces


def assembled(folder: Path, **changes: Any) -> assembly.Assembly:
    """A run whose workers have taken three steps, each for itself."""
    with workers_apart():
        run = assembly.assemble(checkpoints.configured(COMM, **{**APART, **changes}), COMM, folder)
    for step, batch in enumerate(list(run.feed.read_epoch(1))[:3], 1):
        run.algorithm.begin(step, 1, 0.05, False)
        run.replica.compute_gradient(batch, run.watch)
        run.algorithm.finish()
    return run


def judged_by_one(replica: Replica, values: torch.Tensor, buffers: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Loss and accuracy of a model on the whole test set, without the machinery of a run."""
    model = copy.deepcopy(replica.model)
    torch.nn.utils.vector_to_parameters(values, [p for p in model.parameters() if p.requires_grad])
    model.load_state_dict(buffers, strict=False)
    model.eval()
    (images, labels), *rest = Shard(ARRAYS, 12, 0, 0, 1).read_test_set()
    assert not rest and len(labels) == 20
    with torch.no_grad():
        logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    return float(loss), float((logits.argmax(1) == labels).float().mean())


def models() -> None:
    """Each worker's own, and the average of parameters and running statistics, as one process finds them."""
    with checkpoints.folder() as folder:
        run = assembled(folder)
        replica = run.replica
        state, own = replica.state_dict(), replica.flat.values.clone()
        everyone = np.stack(COMM.allgather(own.numpy()))
        found = evaluation.evaluate(run.config.algorithm, run.algorithm, replica, run.feed, 1)
        assert torch.equal(replica.flat.values, own) and replica.model.training
        after = replica.state_dict()
        assert all(torch.equal(after["buffers"][name], value) for name, value in state["buffers"].items())
        assert torch.equal(after["rng"]["cpu"], state["rng"]["cpu"])

        local = found.local
        assert local is not None
        buffers = COMM.allgather(state["buffers"])
        assert any(not torch.equal(buffers[0][name], buffers[-1][name]) for name in buffers[0])
        for worker, (values, theirs) in enumerate(zip(everyone, buffers, strict=True)):
            expected = judged_by_one(replica, torch.from_numpy(values), theirs)
            assert np.allclose((local.loss[worker], local.accuracy[worker]), expected, rtol=1e-5), (local, expected)
        exact = everyone.astype(np.float64)
        distances = np.linalg.norm(exact - exact.mean(0), axis=1)
        assert distances.min() > 0 and np.allclose(local.distance, distances, rtol=1e-5)
        assert np.isclose(local.consensus_distance, np.sqrt((distances**2).mean()))

        mean = {name: torch.stack([one[name].double() for one in buffers]).mean(0).float() for name in buffers[0]}
        average = judged_by_one(replica, torch.from_numpy(exact.mean(0).astype(np.float32)), mean)
        assert np.allclose(found[:2], average, rtol=1e-5) and not np.isclose(average[0], local.loss[0])
        everywhere = COMM.allgather((found.test_loss, found.test_accuracy, local.columns()))
        assert all(one == everywhere[0] for one in everywhere)


def statistics_of_ones_own() -> None:
    """batch_norm=local: the averaged parameters with the running statistics of whoever judges a share."""
    with checkpoints.folder() as folder:
        run = assembled(folder, batch_norm="local")
        replica, state = run.replica, run.replica.state_dict()
        found = evaluation.evaluate(run.config.algorithm, run.algorithm, replica, run.feed, 1)
        mean = averaging.compute_mean(replica.flat.values, COMM)
        with run.algorithm.use_evaluation_parameters():
            replica.model.eval()
            images, labels = (torch.cat(part) for part in zip(*run.feed.read_test_set(1), strict=True))
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(replica.model(images), labels, reduction="sum")
            replica.model.train()
        assert np.isclose(found.test_loss, COMM.allreduce(float(loss)) / 20, rtol=1e-5)
        averaged = judged_by_one(replica, mean, checkpoints_mean(state["buffers"]))
        assert not np.isclose(found.test_loss, averaged[0], rtol=1e-7)


def checkpoints_mean(buffers: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name: averaging.compute_mean(value.float().flatten(), COMM).view_as(value) for name, value in buffers.items()
    }


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def whole_runs() -> None:
    """What is written, without and with local models; a resume cuts it and changes nothing."""
    with checkpoints.folder() as folder, workers_apart():
        result = checkpoints.train(folder / "whole", **APART)
        epochs, models = (
            table(folder / "whole" / run_directory.EPOCHS),
            table(folder / "whole" / run_directory.LOCAL_MODELS),
        )
        assert (
            tuple(epochs[0]) == (*csv_columns.EPOCH_COLUMNS, *csv_columns.LOCAL_EPOCH_COLUMNS) and len(epochs) == EPOCHS
        )
        assert tuple(models[0]) == csv_columns.LOCAL_MODEL_COLUMNS
        places = [(int(row["epoch"]), int(row["worker"])) for row in models]
        assert places == [(epoch, worker) for epoch in (1, 2, 3) for worker in range(COMM.size)]
        for epoch in epochs:
            mine = [row for row in models if row["epoch"] == epoch["epoch"]]
            accuracies, losses, distances = (
                np.array([float(row[name]) for row in mine]) for name in ("test_accuracy", "test_loss", "distance")
            )
            assert np.isclose(float(epoch["local_test_accuracy"]), accuracies.mean())
            assert np.isclose(float(epoch["local_test_loss"]), losses.mean())
            assert float(epoch["local_test_accuracy_least"]) == accuracies.min()
            assert float(epoch["local_test_accuracy_most"]) == accuracies.max()
            assert np.isclose(float(epoch["consensus_distance"]), np.sqrt(np.mean(distances**2)))
        assert result["local_accuracy"] == float(epochs[-1]["local_test_accuracy"])
        assert result["local_accuracy_least"] == float(epochs[-1]["local_test_accuracy_least"])
        assert result["consensus_distance"] == float(epochs[-1]["consensus_distance"])
        json.dumps(result)
        resumed(folder)

        without = checkpoints.train(folder / "without", **{**APART, "algorithm": WITHOUT})
        assert without["local_accuracy"] is None and without["consensus_distance"] == result["consensus_distance"]
        for rows in (table(folder / "without" / name) for name in (run_directory.EPOCHS, run_directory.LOCAL_MODELS)):
            empty = (
                ["test_loss", "test_accuracy"] if "worker" in rows[0] else list(csv_columns.LOCAL_EPOCH_COLUMNS[:-1])
            )
            assert {row[name] for row in rows for name in empty} == {""}
        assert [row["distance"] for row in rows] == [row["distance"] for row in models]
        assert [row["test_loss"] for row in table(folder / "without" / run_directory.EPOCHS)] == [
            row["test_loss"] for row in epochs
        ]
    with checkpoints.folder() as folder:
        result = checkpoints.train(folder, algorithm="sgd")
        assert not (folder / run_directory.LOCAL_MODELS).exists()
        assert tuple(table(folder / run_directory.EPOCHS)[0]) == csv_columns.EPOCH_COLUMNS
        assert not {"local_accuracy", "local_accuracy_least", "consensus_distance"} & set(result)


WITHOUT = {"name": "dpsgd", "evaluate_local": False}


def resumed(folder: Path) -> None:
    """Killed in an epoch, at the beginning of the next and within an evaluation: as if nothing had happened."""
    whole = folder / "whole"
    expected = checkpoints.weights()
    for place, step in (("data", PER_EPOCH + 3), ("data", PER_EPOCH + 1), ("test", 2 * PER_EPOCH), ("test", STEPS)):
        parts = folder / f"{place}-{step}"
        EVENTS.planned[place, step] = raising(Killed())
        with contextlib.suppress(Killed):
            checkpoints.train(parts, **APART, checkpoint={"every_steps": 3, "every_epochs": 1})
        COMM.Barrier()
        known = (parts / run_directory.LOCAL_MODELS).read_text()
        result = checkpoints.train(parts, **APART, checkpoint={"every_steps": 3, "every_epochs": 1})
        assert result["resumed_after"]
        checkpoints.require_equal(whole, parts, (place, step))
        assert checkpoints.weights() == expected, (place, step)
        assert (parts / run_directory.LOCAL_MODELS).read_text().startswith(known)


def all_of_it() -> None:
    means()
    models()
    statistics_of_ones_own()
    whole_runs()


if __name__ == "__main__":
    main({one.__name__: one for one in (means, models, statistics_of_ones_own, whole_runs, all_of_it)})
