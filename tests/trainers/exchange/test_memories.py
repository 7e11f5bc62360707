"""Memories and policies through real exchanges: nothing is lost, and a run that goes on sends the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.start_ranks import run_ranks
from trainers.lanes.gathering import encode_sizes
from trainers.mpi import message_sizes

pytestmark = pytest.mark.mpi

MODULE = "tests.trainers.ranks.memories"


@pytest.mark.parametrize(
    ("workers", "laws"),
    [
        (2, "resume + refused + movement + too_large + never_acting"),
        (3, "conservation + changing + resume"),
    ],
)
def test_laws_of_memories_and_policies(workers: int, laws: str) -> None:
    """Nothing is lost; a policy that changes has the mean of a plain computation; a state goes on to the bit; errors.

    What each function holds stands in its docstring.
    """
    run_ranks(workers, *laws.split(), module=MODULE)


def test_sizes_of_some_gib_are_told_or_refused() -> None:
    largest = 2**32 - 1
    assert encode_sizes([3 * 2**30, 5, largest]).tolist() == [3 * 2**30, 5, largest]
    assert encode_sizes([1]).dtype == np.uint32
    with pytest.raises(
        message_sizes.MessageTooLarge, match=rf"{largest + 1} bytes in a payload: valid is up to {largest}, by a"
    ):
        encode_sizes([largest + 1])
