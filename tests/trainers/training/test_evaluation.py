"""What decentralised runs are judged by, on real ranks."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks


@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_local_models_their_average_and_the_consensus_distance(workers: int) -> None:
    run_ranks(workers, "all_of_it", module="tests.trainers.ranks.evaluation")
