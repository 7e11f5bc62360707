"""Which samples a worker sees when."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.arrays import random_arrays
from trainers.data.batches import Shard


@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**63 - 1), st.integers(1, 3))
def test_every_sample_is_on_one_worker_once_an_epoch(
    samples: int, batch: int, workers: int, seed: int, epoch: int
) -> None:
    arrays = random_arrays(samples)
    arrays.train_y[:] = np.arange(samples)
    shards = [Shard(arrays, batch, seed, worker, workers) for worker in range(workers)]
    together = []
    for parts in zip(*(shard.epoch(epoch) for shard in shards), strict=True):
        sizes = [len(part.labels) for part in parts]
        assert sum(sizes) == parts[0].total <= batch
        assert max(sizes) - min(sizes) <= 1
        together += [torch.cat([part.labels for part in parts])]
    assert len(together) == shards[0].steps_per_epoch
    assert sorted(torch.cat(together).tolist()) == list(range(samples))
    alone = [part.labels for part in Shard(arrays, batch, seed, 0, 1).epoch(epoch)]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_epochs_and_seeds_shuffle_differently() -> None:
    arrays = random_arrays(500)

    def order(seed: int, epoch: int) -> list[float]:
        return torch.cat([part.inputs.flatten() for part in Shard(arrays, 500, seed, 0, 1).epoch(epoch)]).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    assert order(0, 1) != order(2**32, 1)


def test_images_are_normalised_by_the_training_set() -> None:
    arrays = random_arrays(300)
    images = torch.cat([part.inputs for part in Shard(arrays, 64, 0, 0, 1).epoch(1)])
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(images.std(correction=0)) == pytest.approx(1, abs=1e-5)


@given(st.integers(1, 50), st.integers(1, 9))
def test_the_test_set_is_shared_out_whole(samples: int, workers: int) -> None:
    arrays = random_arrays(1, samples)
    labels = [labels for worker in range(workers) for _, labels in Shard(arrays, 1, 0, worker, workers).test(7)]
    assert torch.equal(torch.cat(labels), torch.from_numpy(arrays.test_y))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
def test_an_epoch_goes_on_from_its_middle(samples: int, batch: int, start: int) -> None:
    shard = Shard(random_arrays(samples), batch, 3, 0, 2)
    whole, rest = list(shard.epoch(2))[start:], list(shard.epoch(2, start))
    assert len(whole) == len(rest)
    for one, other in zip(whole, rest, strict=True):
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.labels, other.labels)
