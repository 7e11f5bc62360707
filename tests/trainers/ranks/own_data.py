"""Runs on the user's own data: `mpirun -n W python -m tests.trainers.ranks.own_data TARGET DIRECTORY`.

Loader processes import this module, too, and must not start MPI.
"""

from __future__ import annotations

import csv
import os
import sys
import traceback
from pathlib import Path
from typing import Any

STOPS = 3


def main(target: str, directory: str) -> None:
    """Compare a run with others that have loader processes, and that are stopped in the middle of an epoch."""
    from mpi4py import MPI

    os.chdir(directory)
    alone = train(target, Path("alone"), 0, 0)
    assert alone == train(target, Path("loaders"), 2, 0), "loader processes change nothing"
    assert alone == train(target, Path("stopped"), 0, STOPS), "neither do stops"
    assert alone == train(target, Path("both"), 1, STOPS)
    weights = MPI.COMM_WORLD.allgather(alone[0])
    assert len(set(weights)) == 1


def train(target: str, directory: Path, loaders: int, stops: int) -> tuple[bytes, list[Any], Any]:
    """Train a run, which is stopped so many times; return its weights, the losses of its steps, and its result."""
    from mpi4py import MPI

    from tests.trainers.configs import compose_config
    from trainers.config import run_config
    from trainers.mpi import stopping
    from trainers.rules.resolve import resolve
    from trainers.training import loop

    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        directory.mkdir()
    comm.Barrier()
    config = compose_config(
        dataset={"name": "custom", "target": target},
        compressor={"name": "topk", "ratio": 0.1},
        memory="residual",
        workers=comm.size,
        batch={"size": 4},
        data={"loaders": loaders},
        epochs=2,
        warmup_steps=1,
    )
    assemblies: list[Any] = []
    assemble = loop.assemble

    def keep(*arguments: Any) -> Any:
        assemblies.append(assemble(*arguments))
        return assemblies[-1]

    loop.assemble = keep  # type: ignore[assignment]
    try:
        for attempt in range(stops + 1):
            stopping.forget()
            if attempt < stops:
                stopping.request()
            result = loop.train(run_config.parse(resolve(config)), comm, directory)
            assert (result["status"] == "preempted") == (attempt < stops), result
            assemblies[-1].feed.close()
    finally:
        loop.assemble = assemble
    comm.Barrier()
    rows = csv.DictReader((directory / "steps.csv").read_text().splitlines())
    losses = [(row["step"], row["loss"], row["samples"], row["compression_error"]) for row in rows]
    return assemblies[-1].replica.flat.values.numpy().tobytes(), losses, (result["loss"], result["steps"])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        from mpi4py import MPI

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
