"""Decentralised algorithms on real ranks: formulas, laws, bytes, states."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import PLAYED
from tests.trainers.start_ranks import MONITORED, run_ranks

MODULE = "tests.trainers.ranks.gossip"


@pytest.mark.thorough
@pytest.mark.mpi
def test_formulas_laws_and_states_on_four_ranks() -> None:
    run_ranks(4, "of_four", module=MODULE)


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, pytest.param(5, marks=pytest.mark.thorough)])
def test_formulas_and_counted_bytes(workers: int) -> None:
    """Two workers have one link, whatever the ring; of five, a star's leaves and its centre differ most."""
    run_ranks(workers, "formulas", "+", "equalities", "+", "traffic", module=MODULE, **MONITORED)


@pytest.mark.thorough
@pytest.mark.mpi
def test_many_workers_on_few_cores(multirun: Callable[..., tuple[int, str, str]], tmp_path: Path, digits: Path) -> None:
    """16 and 32 ranks, whatever the machine has; the published spectral gap of a torus of 4 x 4."""
    grid = [
        "-m",
        "hydra.sweep.dir=sweep",
        "sweep.pack=true",
        "experiment=quick",
        "workers=16,32",
        "max_steps=2",
        "kernels=torch",
    ]
    run = ["algorithm=choco", "algorithm.evaluate_local=false", "topology=torus", "compressor=sign_norm"]
    code, out, err = multirun(*grid, *run, f"data.root={digits}", without=PLAYED)
    assert code == 0, out + err
    gaps = {16: 0.4, 32: 1 - (1 + 2 * math.cos(math.pi / 4) + 2) / 5}  # 4 x 4, and 4 x 8
    for one, (workers, gap) in zip(runs_of(tmp_path / "sweep"), gaps.items(), strict=True):
        result = one.result()
        assert result is not None and (result["status"], result["steps"]) == (run_directory.DONE, 2), result
        assert result["spectral_gap"] == pytest.approx(gap) and result["degree"] == 4
        assert result["sent_bytes"] == 4 * result["payload_bytes"]
        with one.path(run_directory.LOCAL_MODELS).open() as file:
            distances = [float(row["distance"]) for row in csv.DictReader(file)]
        assert len(distances) == workers and all(0 < distance < math.inf for distance in distances)
        squares = [distance**2 for distance in distances]
        assert result["consensus_distance"] == pytest.approx((sum(squares) / workers) ** 0.5)
