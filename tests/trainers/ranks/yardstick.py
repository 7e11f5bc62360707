"""Readings of the yardstick in runs: `mpirun -n W python -m tests.trainers.ranks.yardstick NAME`."""

from __future__ import annotations

import contextlib
import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from gradsweep.csv_columns import YARDSTICK_COLUMNS
from gradsweep.run_directory import PREEMPTED, STEPS, YARDSTICK
from tests.trainers.configs import compose_config
from tests.trainers.ranks import checkpoint
from tests.trainers.ranks.checkpoint import COMM, EVENTS, Killed, folder, raising, signalled, train
from tests.trainers.ranks.exchange import main
from trainers.config import run_config
from trainers.devices import yardstick
from trainers.mpi import stopping
from trainers.recording import recorder
from trainers.rules.resolve import resolve
from trainers.training import loop

recorder.COMBINE_EVERY_S = 0.0
yardstick.EVERY_S, yardstick.MOST_COST = 0.0, 1e9  # after each step


def rows(directory: Path, name: str = YARDSTICK) -> list[dict[str, str]]:
    with (directory / name).open() as file:
        return list(csv.DictReader(file))


def require_whole(directory: Path, result: dict[str, Any], workers: int, steps: list[int]) -> None:
    """The file has the readings after `steps`, and result.json has what follows from them."""
    found = result["yardstick"]
    written = rows(directory)
    assert tuple(written[0]) == YARDSTICK_COLUMNS
    assert [(int(row["step"]), int(row["worker"])) for row in written] == [
        (s, w) for s in steps for w in range(workers)
    ]
    times = {row["step"]: row["time_s"] for row in rows(directory, STEPS)}
    assert all(math.isclose(float(row["time_s"]), float(times[row["step"]])) for row in written)
    seconds = [float(row["yardstick_s"]) for row in written]
    assert min(seconds) > 0 and found["readings"] == len(steps)
    assert found["best_s"] == min(seconds) <= found["median_s"] and min(seconds) <= found["slow_s"] <= max(seconds)
    ((host, low),) = found["by_host"].items()
    assert host == written[0]["host"] and math.isclose(low, np.quantile(seconds, 0.1))
    shares = [float(row["cores_of_others"]) for row in written if row["cores_of_others"]]
    assert all(0 <= share <= 1 for share in shares)


def read() -> None:
    """After each step all workers have read it, and all know the same; the first reading knows nothing of others."""
    for changes in (
        {},
        {"algorithm": {"name": "local_sgd", "steps": 3}},
        {"exchange": {"name": "auto", "overlap": True}},
    ):
        with folder() as directory:
            result = train(directory, **changes)
            require_whole(directory, result, COMM.size, list(range(1, checkpoint.STEPS + 1)))
            assert [row["step"] for row in rows(directory) if not row["cores_of_others"]] == ["1"] * COMM.size
            assert result["yardstick"]["cores_of_others"] is not None
            assert len(set(COMM.allgather(str(result["yardstick"])))) == 1


def seldom() -> None:
    """Where less time has passed, it is read after the first step and the last one."""
    yardstick.EVERY_S = 1e6
    with folder() as directory:
        require_whole(directory, train(directory), COMM.size, [1, checkpoint.STEPS])
    yardstick.EVERY_S = 0.0


def resumed() -> None:
    """The readings of all attempts count, without those of steps that were computed again."""
    stopping.listen()
    with folder() as directory:
        EVENTS.planned["data", 5] = signalled(0)
        assert train(directory)["status"] == PREEMPTED
        EVENTS.planned["data", 9] = raising(Killed())
        with contextlib.suppress(Killed):
            train(directory, checkpoint={"every_steps": 3})
        last = int(rows(directory)[-1]["step"])
        result = train(directory)
        assert len(result["resumed_after"]) == 2 and result["resumed_after"][1] < last
        require_whole(directory, result, COMM.size, list(range(1, checkpoint.STEPS + 1)))
    with folder() as directory:  # without a checkpoint, nothing remains of the attempts before
        EVENTS.planned["data", 3] = raising(Killed())
        with contextlib.suppress(Killed):
            train(directory)
        result = train(directory)
        require_whole(directory, result, COMM.size, list(range(1, checkpoint.STEPS + 1)))


def served() -> None:
    """A dedicated server takes no part; asynchronous workers meet, and read, at the end of an epoch only."""
    workers = COMM.size - 1
    for mode, steps in (("synchronous", range(1, 13)), ("asynchronous", range(4, 13, 4))):
        exchange = {"name": "parameter_server", "placement": "dedicated", "mode": mode}
        given = {"epochs": 3, "batch": {"size": 12}, "warmup_steps": 2, "exchange": exchange}
        config = run_config.parse(resolve(compose_config(workers=workers, **given)))
        with folder() as directory:
            result = loop.train(config, COMM, directory)
            if COMM.rank < workers:
                require_whole(directory, result, workers, list(steps))
                assert result["yardstick"]["cores_of_others"] is None, "the server may share their cores"


if __name__ == "__main__":
    main(globals())
