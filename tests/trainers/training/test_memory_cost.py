"""What a run costs in memory: of tensors by part, and of the process."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from compressors.memories.error_feedback import Residual
from tests.trainers.start_ranks import run_ranks
from trainers.training.memory_cost import TensorSearch


def test_memory_counts_once_however_it_is_found() -> None:
    whole, memory, search = torch.zeros(1000), Residual(), TensorSearch()
    memory.tensors(3, torch.zeros(10, 10), memory.withheld)
    assert search.count_bytes([whole[:10], whole]) == 4000, "a view needs all of it"
    assert (
        search.count_bytes({"a": [whole[5:], (torch.zeros(3), {"b": torch.zeros(2, dtype=torch.float64)})]}.values())
        == 28
    )
    assert search.count_bytes([memory]) == 400
    assert search.count_bytes([memory, dataclasses.replace(memory), np.zeros(7), None, "text", 3]) == 0


def test_what_is_skipped_is_not_searched() -> None:
    memory, search = Residual(), TensorSearch()
    memory.tensors(0, torch.zeros(10), memory.withheld)
    search.skip(memory)
    assert search.count_bytes([{"held by": [memory]}]) == 0 and search.count_bytes(vars(memory).values()) == 40


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("name", ["parts", "largest_worker", "one_after_the_other"])
def test_runs(name: str) -> None:
    run_ranks(2, name, module="tests.trainers.ranks.memory_cost")
