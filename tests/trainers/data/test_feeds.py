"""Which samples a worker sees when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.trainers.arrays import random_arrays
from trainers.data.batches import Shard
from trainers.data.feeds import IGNORED
from trainers.data.partitions import Plan
from trainers.data.streams import Streams, TextFeed
from trainers.options.sections import Partition

PARTITIONS = st.one_of(
    st.builds(Partition, reshuffle=st.sampled_from([None, True, False])),
    st.builds(Partition, scheme=st.sampled_from(["contiguous", "label"])),
    st.builds(Partition, scheme=st.just("dirichlet"), alpha=st.floats(0.001, 100)),
)


@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**63 - 1), st.integers(1, 3))
def test_every_sample_is_on_one_worker_once_an_epoch(
    samples: int, batch: int, workers: int, seed: int, epoch: int
) -> None:
    arrays = random_arrays(samples)
    arrays.train_y[:] = np.arange(samples)
    shards = [Shard(arrays, batch, seed, worker, workers) for worker in range(workers)]
    together = []
    for parts in zip(*(shard.read_epoch(epoch) for shard in shards), strict=True):
        sizes = [len(part.labels) for part in parts]
        assert sum(sizes) == parts[0].total <= batch
        assert max(sizes) - min(sizes) <= 1
        together += [torch.cat([part.labels for part in parts])]
    assert len(together) == -(-samples // batch)
    assert sorted(torch.cat(together).tolist()) == list(range(samples))
    alone = [part.labels for part in Shard(arrays, batch, seed, 0, 1).read_epoch(epoch)]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


@given(st.data(), PARTITIONS, st.integers(0, 2**63 - 1))
def test_every_partition_has_every_sample_once_an_epoch(data: st.DataObject, options: Partition, seed: int) -> None:
    workers = data.draw(st.integers(1, 9))
    samples, batch = data.draw(st.integers(workers, 200)), data.draw(st.integers(workers, 60))
    labels = np.array(data.draw(st.lists(st.integers(0, 4), min_size=samples, max_size=samples)))
    plans = [Plan(labels, batch, seed, workers, options) for _ in range(workers)]
    owner: dict[int, int] = {}
    for epoch in (1, 2):
        steps = list(zip(*(plan.list_batches(worker, epoch) for worker, plan in enumerate(plans)), strict=True))
        assert len(steps) == plans[0].steps == -(-samples // batch)
        seen = []
        for step in steps:
            assert {total for _, total in step} == {sum(len(rows) for rows, _ in step)} != {0}
            seen += [int(row) for rows, _ in step for row in rows]
        assert sorted(seen) == list(range(samples))
        for worker in range(workers):
            mine = [step[worker] for step in steps]
            sizes = [len(rows) for rows, _ in mine]
            assert sum(sizes) >= 1 or options.reshuffled
            assert options.reshuffled or max(sizes) - min(sizes) <= 1
            if not options.reshuffled:
                for row in np.concatenate([rows for rows, _ in mine]):
                    assert owner.setdefault(int(row), worker) == worker, "workers keep their samples"
            start = data.draw(st.integers(0, len(steps)))
            for (rows, total), (others, same) in zip(
                mine[start:], plans[worker].list_batches(worker, epoch, start), strict=True
            ):
                assert np.array_equal(rows, others) and total == same


def parts_of(labels: np.ndarray, workers: int, **options: Any) -> list[np.ndarray]:
    """The rows of each worker, in order."""
    plan = Plan(labels, workers, options.pop("seed", 0), workers, Partition(**options))
    every = [np.concatenate([rows for rows, _ in plan.list_batches(worker, 1)]) for worker in range(workers)]
    return [np.sort(rows) for rows in every]


def test_what_the_schemes_give() -> None:
    labels = np.array([2, 0, 1, 0, 2, 1, 0, 2, 1])
    assert [part.tolist() for part in parts_of(labels, 3, scheme="contiguous")] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert [part.tolist() for part in parts_of(labels, 3, scheme="label")] == [[1, 3, 6], [2, 5, 8], [0, 4, 7]]
    assert [part.tolist() for part in parts_of(labels, 2, scheme="label")] == [[1, 2, 3, 6], [0, 4, 5, 7, 8]]
    many = np.arange(900)
    fixed = [parts_of(many, 3, reshuffle=False, seed=seed) for seed in (0, 0, 1)]
    assert all(np.array_equal(a, b) for a, b in zip(fixed[0], fixed[1], strict=True))
    assert not np.array_equal(fixed[0][0], fixed[2][0])
    assert 250 < fixed[0][0].mean() < 650, "drawn from all"


def test_order_within_a_fixed_partition_changes_with_the_epoch() -> None:
    plan = Plan(np.zeros(100), 20, 0, 2, Partition(scheme="contiguous"))
    orders = [np.concatenate([rows for rows, _ in plan.list_batches(0, epoch)]).tolist() for epoch in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[2]) == list(range(50))


def test_dirichlet_has_the_moments_of_its_distribution() -> None:
    """Share of a class on a worker: mean 1/W, variance (W - 1) / (W^2 (W alpha + 1))."""
    workers, classes, each = 4, 600, 200
    labels = np.repeat(np.arange(classes), each)
    for alpha in (0.05, 1.0, 50.0):
        rows = parts_of(labels, workers, scheme="dirichlet", alpha=alpha)
        shares = np.stack([np.bincount(labels[part], minlength=classes) / each for part in rows])
        assert np.allclose(shares.sum(0), 1)
        expected = (workers - 1) / (workers**2 * (workers * alpha + 1))
        assert shares.var() == pytest.approx(expected, rel=0.15), alpha
        assert np.abs(shares.mean(1) - 1 / workers).max() < 4 * (expected / classes) ** 0.5


def test_a_worker_without_a_class_gets_a_sample_all_the_same() -> None:
    sizes = [len(part) for part in parts_of(np.zeros(50), 20, scheme="dirichlet", alpha=0.001)]
    assert sum(sizes) == 50 and sorted(sizes)[:-1] == [1] * 19


def test_partitions_that_cannot_be() -> None:
    with pytest.raises(InvalidParameter, match=r"reshuffle=True: valid is false or null with scheme=label"):
        Partition(scheme="label", reshuffle=True)
    with pytest.raises(UsageError, match=r"workers=3: valid is at most 2"):
        Plan(np.zeros(2), 3, 0, 3, Partition(scheme="contiguous"))


def test_epochs_and_seeds_shuffle_differently() -> None:
    arrays = random_arrays(500)

    def order(seed: int, epoch: int) -> list[float]:
        return torch.cat([part.inputs.flatten() for part in Shard(arrays, 500, seed, 0, 1).read_epoch(epoch)]).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    assert order(0, 1) != order(2**32, 1)


def test_images_are_normalised_by_the_training_set() -> None:
    arrays = random_arrays(300)
    images = torch.cat([part.inputs for part in Shard(arrays, 64, 0, 0, 1).read_epoch(1)])
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(images.std(correction=0)) == pytest.approx(1, abs=1e-5)


@given(st.integers(1, 50), st.integers(1, 9))
def test_the_test_set_is_shared_out_whole(samples: int, workers: int) -> None:
    arrays = random_arrays(1, samples)
    labels = [
        labels for worker in range(workers) for _, labels in Shard(arrays, 1, 0, worker, workers).read_test_set(1, 7)
    ]
    assert torch.equal(torch.cat(labels), torch.from_numpy(arrays.test_y))
    images, whole = zip(*Shard(arrays, 1, 0, workers - 1, workers).read_test_set(1, 7, whole=True), strict=True)
    assert torch.equal(torch.cat(whole), torch.from_numpy(arrays.test_y)) and len(torch.cat(images)) == samples


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
def test_an_epoch_goes_on_from_its_middle(samples: int, batch: int, start: int) -> None:
    shard = Shard(random_arrays(samples), batch, 3, 0, 2)
    whole, rest = list(shard.read_epoch(2))[start:], list(shard.read_epoch(2, start))
    assert len(whole) == len(rest)
    for one, other in zip(whole, rest, strict=True):
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.labels, other.labels)


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 9))
def test_every_token_of_a_text_is_predicted_once(more: int, streams: int, bptt: int) -> None:
    tokens = np.arange(streams + more, dtype=np.int32)
    text = Streams(tokens, streams, bptt)
    assert text.steps == -(-text.length // bptt)
    predicted, last = [], np.full(streams, -1)
    for step in range(text.steps):
        inputs, labels = text.read(slice(0, streams), step)
        assert inputs.shape == labels.shape and 1 <= inputs.shape[1] <= bptt
        kept = labels != IGNORED
        assert (labels[kept] == inputs[kept] + 1).all()
        assert kept.sum() == text.count_labels(step) > 0
        if step:
            assert (inputs[:, 0] == last + 1).all(), "a stream goes on where it was"
        last = inputs[:, -1]
        predicted += labels[kept].tolist()
    assert sorted(predicted) == tokens[1:].tolist()


@given(st.integers(9, 150), st.integers(5, 150), st.integers(1, 5), st.integers(5, 8), st.integers(1, 9))
@settings(max_examples=50)
def test_workers_share_the_streams_of_a_text(tokens: int, held_out: int, workers: int, batch: int, bptt: int) -> None:
    text, test = np.arange(tokens, dtype=np.int32), np.arange(held_out, dtype=np.int32)
    feeds = [TextFeed(text, test, 200, bptt, batch, worker, workers) for worker in range(workers)]
    alone = TextFeed(text, test, 200, bptt, batch, 0, 1)
    assert alone.shape == (bptt,) and -(-alone.samples // batch) == alone.train.steps
    for parts, whole in zip(
        zip(*(feed.read_epoch(1) for feed in feeds), strict=True), alone.read_epoch(2), strict=True
    ):
        assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs)
        assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
        assert all(part.total == whole.total == (whole.labels != IGNORED).sum() for part in parts)
        assert all(len(part.labels) for part in parts)
        assert whole.inputs.dtype == whole.labels.dtype == torch.int64
    whole, rest = list(feeds[0].read_epoch(1)), list(feeds[0].read_epoch(1, 1))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(whole[1:], rest, strict=True))
    found = []
    for feed in feeds:
        ends = torch.empty(0)
        for inputs, labels in feed.read_test_set():
            assert torch.equal(labels, inputs + 1) and labels.numel()
            if len(ends):  # fewer rows are the first ones, going on
                assert torch.equal(inputs[:, 0], ends[: len(inputs)] + 1)
            ends = inputs[:, -1]
            found += labels.flatten().tolist()
    assert sorted(found) == test[1:].tolist()
    for mine, all_of_it in zip(feeds[-1].read_test_set(whole=True), alone.read_test_set(), strict=True):
        assert all(map(torch.equal, mine, all_of_it))


def test_a_text_that_is_too_short() -> None:
    text = np.arange(9, dtype=np.int32)
    with pytest.raises(UsageError, match=r"batch.size=9 .*: valid is at most 8, as the text has 9 tokens"):
        TextFeed(text, text, 9, 5, 9, 0, 1)
