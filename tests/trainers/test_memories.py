"""Memories and policies through real exchanges: nothing is lost, and a run that goes on sends the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.test_exchange import mpirun
from trainers import sizes
from trainers.lanes.gathering import payload_sizes

pytestmark = pytest.mark.mpi

MODULE = "tests.trainers.ranks_memories"


@pytest.mark.parametrize("workers", [2, 3])
def test_what_arrived_and_what_is_kept_is_everything_and_every_byte_is_counted(workers: int) -> None:
    mpirun(workers, "conservation", module=MODULE)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_policy_that_changes_in_the_middle_of_a_run_gives_the_mean_of_a_plain_computation(workers: int) -> None:
    mpirun(workers, "changing", module=MODULE)


@pytest.mark.parametrize("workers", [2, 3])
def test_an_exchange_goes_on_from_its_state_to_the_bit(workers: int) -> None:
    mpirun(workers, "resume", module=MODULE)


def test_what_is_no_state_of_an_exchange_is_refused() -> None:
    mpirun(2, "refused", module=MODULE)


def test_movement_and_norms_do_not_depend_on_the_host() -> None:
    mpirun(2, "movement", module=MODULE)


def test_what_can_never_act_is_one_line_before_the_first_step() -> None:
    mpirun(2, "never_acting", module=MODULE)


def test_what_mpi_cannot_count_is_one_line() -> None:
    mpirun(2, "too_large", module=MODULE)


def test_sizes_of_some_gib_are_told_or_refused() -> None:
    largest = 2**32 - 1
    assert payload_sizes([3 * 2**30, 5, largest]).tolist() == [3 * 2**30, 5, largest]
    assert payload_sizes([1]).dtype == np.uint32
    with pytest.raises(
        sizes.MessageTooLarge, match=rf"{largest + 1} bytes in a payload: valid is up to {largest}, by a"
    ):
        payload_sizes([largest + 1])
