"""What decentralised runs are judged by, on real ranks."""

from __future__ import annotations

import pytest

from tests.trainers.exchange.test_exchange import mpirun


@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 3])
def test_local_models_their_average_and_the_consensus_distance(workers: int) -> None:
    mpirun(workers, "all_of_it", module="tests.trainers.ranks.evaluation")
