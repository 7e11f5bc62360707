"""Trials that find the setting of an exchange, on real ranks."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [2, 3])
def test_trials(workers: int) -> None:
    functions = "trial + trial_of_long_steps + kept_setting + unlike_ranks + tuned_baseline + stop_in_trial"
    run_ranks(workers, *functions.split(), module="tests.trainers.ranks.race")
