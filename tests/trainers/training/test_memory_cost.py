"""What a run costs in memory: of tensors by part, and of the process."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from compressors.memories.error_feedback import Residual
from gradsweep.errors import UsageError
from gradsweep.failure_causes import MEMORY
from tests.trainers.start_ranks import run_ranks
from trainers.data.feeds import Batch
from trainers.training import assembly
from trainers.training.assembly import Worker
from trainers.training.failure_cause import find_cause
from trainers.training.memory_cost import TensorSearch, describe_shortage


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


def test_a_gpu_without_memory_is_one_line_with_its_parts_and_what_would_fit() -> None:
    parts, gib = {"model": 2**30, "gradients": 2**30, "optimizer": 2 * 2**30, "messages": 0}, 2**30
    assert describe_shortage("H200", 140 * gib, gib, parts, 512, 1) == (
        "H200, 140.00 GiB, is out of memory: model 1.00 GiB, gradients 1.00 GiB, optimizer 2.00 GiB; other processes "
        "1.00 GiB; the other 135.00 GiB are not enough for 512 rows of a batch at once. Valid is a smaller batch.size, "
        "or batch.accumulate=2 for half as many rows at once"
    )
    assert describe_shortage("H200", 4 * gib, 0, parts, 8, 2).endswith(
        "Valid is a smaller model, fewer ranks on this GPU or another memory and compressor"
    )


def test_a_step_without_memory_has_the_cause_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Worker, "_take_step", fail)
    monkeypatch.setattr(assembly, "measure_parts", lambda replica, algorithm: {})
    monkeypatch.setattr(
        assembly, "explain_shortage", lambda device, parts, rows, pieces: f"{rows} rows, {pieces} pieces"
    )
    config: Any = SimpleNamespace(batch=SimpleNamespace(accumulate=3))
    worker = Worker(config, torch.device("cpu"), *[None] * 6)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^5 rows, 3 pieces$") as raised:
        worker.take_step(1, 1, Batch(torch.zeros(5, 1), torch.zeros(5), 5), 0.1, False)
    assert find_cause(raised.value) == MEMORY
