"""How many calls of MPI a step makes, as result.json says it."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks


@pytest.mark.mpi
def test_calls_are_counted_by_kind() -> None:
    """Against what a communicator was asked for; and in the results of runs, of resumed and overlapping ones too."""
    run_ranks(2, "counted", "+", "recorded", module="tests.trainers.ranks.calls")
