"""Random windows of a text: places by seed and step only, labels that follow, a test set that is always the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradsweep.errors import UsageError
from trainers.data.windows import WindowFeed

TEXT = np.arange(1000, dtype=np.int32) % 251


def feed(worker: int = 0, workers: int = 1, seed: int = 3, batch: int = 6, **options: int) -> WindowFeed:
    return WindowFeed(TEXT, TEXT[:103], 251, 10, batch, seed, worker, workers, **options)


def test_labels_are_the_tokens_that_follow() -> None:
    batches = list(feed().read_epoch(1))
    assert len(batches) == feed().steps == 17 and feed().samples == 17 * 6  # 99 windows in batches of 6
    for batch in batches:
        assert batch.inputs.shape == batch.labels.shape == (6, 10) and batch.total == 60
        assert torch.equal((batch.inputs + 1) % 251, batch.labels)
    assert len({tuple(row) for batch in batches for row in batch.inputs.tolist()}) > 75, "all over the text"


def test_places_depend_on_seed_epoch_and_step_and_not_on_the_workers() -> None:
    alone = [batch.inputs for batch in feed().read_epoch(2)]
    shared = zip(*(feed(worker, 4).read_epoch(2) for worker in range(4)), strict=True)
    assert all(
        torch.equal(one, torch.cat([part.inputs for part in parts])) for one, parts in zip(alone, shared, strict=True)
    )
    assert torch.equal(next(feed().read_epoch(2, start=5)).inputs, alone[5]), "a resume reads what it would have read"
    assert not torch.equal(next(feed().read_epoch(3)).inputs, alone[0])
    assert not torch.equal(next(feed(seed=4).read_epoch(2)).inputs, alone[0])


@pytest.mark.parametrize("workers", [1, 3])
def test_the_test_set_is_every_window_once(workers: int) -> None:
    read = [inputs for worker in range(workers) for inputs, _ in feed(worker, workers).read_test_set()]
    assert sorted(torch.cat(read)[:, 0].tolist()) == list(range(0, 100, 10))
    some = torch.cat([inputs for inputs, _ in feed(test_windows=3).read_test_set()])
    assert some[:, 0].tolist() == [0, 30, 60]


@pytest.mark.parametrize(("workers", "pieces", "most"), [(1, 1, 6), (3, 1, 2), (1, 3, 2), (4, 2, 1)])
def test_a_batch_of_the_test_set_is_no_larger_than_one_of_training(workers: int, pieces: int, most: int) -> None:
    sizes = [len(inputs) for inputs, _ in feed(0, workers, pieces=pieces).read_test_set(whole=True)]
    assert max(sizes) == most and sum(sizes) == 10


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(UsageError, match=r"dataset\.bptt=200: valid is at most 102: a part of the text has 103 tokens"):
        WindowFeed(TEXT, TEXT[:103], 251, 200, 6, 0, 0, 1)
    with pytest.raises(UsageError, match=r"dataset\.test_windows=11: valid is at most 10, or null for all"):
        feed(test_windows=11)
