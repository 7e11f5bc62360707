"""Races on real ranks."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks

NAMES = ("alone", "whole", "room", "short", "once", "solo", "heats", "stop", "closed", "failing", "lost", "first_step")


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [2, 3])
def test_races(workers: int) -> None:
    words = [word for name in NAMES for word in ("+", name)][1:]
    run_ranks(workers, *words, module="tests.trainers.ranks.race")
