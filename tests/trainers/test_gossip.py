"""Decentralised algorithms on real ranks: formulas, laws, bytes, states."""

from __future__ import annotations

import pytest

from tests.trainers.test_exchange import MONITORED, mpirun

MODULE = "tests.trainers.ranks_gossip"


@pytest.mark.mpi
def test_formulas_laws_and_states_on_four_ranks() -> None:
    mpirun(4, "of_four", module=MODULE)


@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 5])
def test_formulas_and_counted_bytes(workers: int) -> None:
    """Two workers have one link, whatever the ring; of five, a star's leaves and its centre differ most."""
    mpirun(workers, "formulas", "+", "equalities", "+", "traffic", module=MODULE, **MONITORED)
