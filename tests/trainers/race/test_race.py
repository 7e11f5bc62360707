"""Races on real ranks."""

from __future__ import annotations

import pytest

from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers.config import run_config
from trainers.race.racer import explain_unraceable

NAMES = ("alone", "whole", "room", "short", "once", "solo", "heats", "stop", "closed", "failing", "lost", "first_step")


def test_a_run_whose_rounds_change_does_not_race() -> None:
    for optimizer, why in (("adam", None), ("zero_one_adam", "optimizer=zero_one_adam: what it exchanges depends on")):
        told = explain_unraceable(run_config.parse(compose_config(optimizer=optimizer)))
        assert told is None if why is None else str(told).startswith(why)


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [2, 3])
def test_races(workers: int) -> None:
    words = [word for name in NAMES for word in ("+", name)][1:]
    run_ranks(workers, *words, module="tests.trainers.ranks.race")
