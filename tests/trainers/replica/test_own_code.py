"""Own models and tasks on several workers; the functions are in tests/trainers/ranks/own_code.py."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks


@pytest.mark.parametrize("workers", [2, 3])
def test_dicts_of_tensors_train_and_evaluate_like_one_worker(workers: int) -> None:
    run_ranks(workers, "everything", module="tests.trainers.ranks.own_code")
