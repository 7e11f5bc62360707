"""What runs cost in memory: `mpirun -n W python -m tests.trainers.ranks.memory_cost NAME`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from gradsweep.run_directory import MEMORY_PARTS
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers.config import run_config
from trainers.packed.isolation import tidy
from trainers.rules.resolve import resolve
from trainers.training import loop

COMM = MPI.COMM_WORLD
MB = 1e6
HEADS = 100_000
"""Room for the heads of messages, and for tensors of a few numbers."""
BALLAST = 80_000_000


def trained(**changes: Any) -> dict[str, Any]:
    """A run's result.json; of a network with 4 million parameters, unless it is said otherwise."""
    given = {"model": {"width": 2000}, "batch": {"size": 8 * COMM.size}, "max_steps": 3, **changes}
    config = run_config.parse(resolve(compose_config(workers=COMM.size, **given)))
    with tempfile.TemporaryDirectory() as folder:
        result = loop.train(config, COMM, Path(folder))
    tidy()
    return result


def near(found: float, expected: float) -> bool:
    return 0 <= found - expected < HEADS


def parts() -> None:
    """They are what the methods keep, from a closed form each; and the peak has all of them in it."""
    workers = COMM.size
    topk = {"name": "topk", "ratio": 0.1}
    plain = {"momentum": 0.0, "nesterov": False}
    for changes, optimizer, kept, sent in (
        ({"compressor": "none"}, 1, 0, 1),
        ({"compressor": "none", "optimizer": "adam"}, 2, 0, 1),
        ({"compressor": "fp16"}, 1, 0, 0.5),
        ({"compressor": topk, "memory": "residual"}, 1, 1, None),
        ({"compressor": topk, "memory": "dgc", "optimizer": plain}, 0, 2, None),
        ({"compressor": "none", "exchange": "allgather"}, 1, 0, 1 + workers),
        ({"compressor": "none", "algorithm": {"name": "local_sgd", "steps": 2}}, 1, 1, 1),
        ({"compressor": topk, "algorithm": "choco"}, 1, 2, None),
        ({"compressor": {"name": "powersgd", "rank": 2}, "memory": "residual"}, 1, 1, None),
    ):
        result = trained(**changes)
        one = 4 * result["parameters"]
        found = result["memory_parts"]
        assert tuple(found) == MEMORY_PARTS
        assert found["model"] == found["gradients"] == one, (changes, found)
        assert near(found["optimizer"], optimizer * one), (changes, found)
        assert near(found["compressor"], kept * one), (changes, found)
        if sent is None:
            assert 0 < found["messages"] < one, (changes, found)
        else:
            assert near(found["messages"], sent * one), (changes, found)
        assert sum(found.values()) * 0.9 < result["peak_memory"] < sum(found.values()) * 4, (changes, result)
        assert result["peak_memory"] == result["peak_host_memory"] and result["peak_gpu_memory"] is None
        assert 0 < result["peak_memory_mean"] <= result["peak_memory"]
        assert result["end_memory"] <= result["peak_memory"]


def largest_worker() -> None:
    """Figures are those of the worker that needs most: rank 0 with a server's second memory, and with ballast."""
    again = {
        "compressor": {"name": "topk", "ratio": 0.1},
        "memory": "residual",
        "exchange": {"name": "parameter_server", "answer": "compressed"},
    }
    train_epoch = loop._train_epoch

    def train_with_ballast(*arguments: Any) -> Any:
        ballast = np.ones(BALLAST if COMM.rank == 0 else 0, np.uint8)
        position = train_epoch(*arguments)
        assert ballast.all()
        return position

    loop._train_epoch = train_with_ballast
    try:
        result = trained(**again)
    finally:
        loop._train_epoch = train_epoch
    one = 4 * result["parameters"]
    assert near(result["memory_parts"]["compressor"], 2 * one), result["memory_parts"]
    assert result["peak_memory_mean"] < result["peak_memory"] - BALLAST / 4, result


def one_after_the_other() -> None:
    """In a process that has trained a large run, a small one costs what it costs before, and not less than nothing."""
    small = {"model": {"width": 16}}
    first, large, again = trained(**small), trained(), trained(**small)
    assert large["peak_memory"] > first["peak_memory"] + 40 * MB, (first, large)
    assert 0 < again["peak_memory"] < first["peak_memory"] + 4 * MB, (first, again)
    assert again["memory_parts"] == first["memory_parts"]
    assert trained()["peak_memory"] > 0.8 * large["peak_memory"]


if __name__ == "__main__":
    main(globals())
