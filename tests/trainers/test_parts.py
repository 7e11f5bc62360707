"""Optimizer, schedules, flat buffers, shards, models: against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.arrays import random_arrays
from trainers import config as options
from trainers import models, schedules
from trainers.data.batches import Shard
from trainers.flat import Flat
from trainers.optimizers import SGD


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_equals_torch(momentum: float, nesterov: bool, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(100, generator=generator)
    reference = torch.nn.Parameter(values.clone())
    gradients = torch.zeros(100)
    ours = SGD(values, gradients, options.SGD(0.1, momentum, nesterov, weight_decay))
    theirs = torch.optim.SGD([reference], 0.1, momentum, nesterov=nesterov, weight_decay=weight_decay)
    for step in range(5):
        gradients.copy_(torch.randn(100, generator=generator))
        reference.grad = gradients.clone()
        theirs.param_groups[0]["lr"] = 0.1 / (step + 1)
        theirs.step()
        ours.step(0.1 / (step + 1))
        torch.testing.assert_close(values, reference.detach(), rtol=1e-6, atol=1e-7)


def test_cosine_with_warm_up() -> None:
    config = options.Cosine(warmup_epochs=1)
    factors = [schedules.factor(config, step, 30, 10) for step in range(1, 31)]
    assert factors[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert factors[10] == 1.0
    assert factors[20] == pytest.approx(0.5)
    assert 0 < factors[-1] < 0.01
    assert factors[10:] == sorted(factors[10:], reverse=True)


def test_constant_with_fractional_warm_up() -> None:
    config = options.Constant(warmup_epochs=0.5)
    assert [schedules.factor(config, step, 9, 4) for step in (1, 2, 3, 9)] == [0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("config", [options.Constant(warmup_epochs=100), options.Cosine(warmup_epochs=100)])
def test_a_warm_up_longer_than_the_run(config: options.Constant | options.Cosine) -> None:
    assert [schedules.factor(config, step, 10, 10) for step in (1, 10)] == [1 / 1000, 10 / 1000]


@pytest.mark.parametrize(
    ("depth", "widen", "classes", "count"),
    [(10, 1, 10, 77_850), (16, 1, 10, 175_066), (28, 10, 10, 36_479_194), (40, 4, 100, 8_972_340)],
)
def test_wideresnet_has_the_published_number_of_parameters(depth: int, widen: int, classes: int, count: int) -> None:
    with torch.device("meta"):
        model = models.build(options.WideResNet(depth, widen), (3, 32, 32), classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("config", [options.WideResNet(), options.MLP()])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_models_give_a_row_of_logits_per_sample(config: object, shape: tuple[int, int, int]) -> None:
    assert models.build(config, shape, 7)(torch.zeros(3, *shape)).shape == (3, 7)


def test_flat_buffers_are_the_model() -> None:
    model = models.build(options.MLP(width=5), (1, 2, 2), 3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    flat = Flat(model)
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
    gradients = flat.gradients
    model(torch.ones(2, 1, 2, 2)).sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.untyped_storage().data_ptr() == gradients.data_ptr()
        for parameter in model.parameters()
    )
    flat.values.fill_(3.0)
    assert all((parameter == 3.0).all() for parameter in model.parameters())


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 100))
def test_units_cover_the_gradient_once(widths: list[int], limit: int) -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(width)) for width in widths])
    flat = Flat(model)
    for granularity in ("layer", "bucket", "model"):
        flat.gradients.zero_()
        units = flat.units(granularity, limit * 4 / 2**20)
        for unit in units:
            unit.gradient.add_(1)
            if granularity == "bucket":
                assert unit.gradient.numel() <= max(limit, *widths)
        assert (flat.gradients == 1).all()
        assert [unit.index for unit in units] == list(range(len(units)))
    assert len(flat.units("model", 1.0)) == 1


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
        return torch.cat([part.images.flatten() for part in Shard(arrays, 500, seed, 0, 1).epoch(epoch)]).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    assert order(0, 1) != order(2**32, 1)


def test_images_are_normalised_by_the_training_set() -> None:
    arrays = random_arrays(300)
    images = torch.cat([part.images for part in Shard(arrays, 64, 0, 0, 1).epoch(1)])
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(images.std(correction=0)) == pytest.approx(1, abs=1e-5)


@given(st.integers(1, 50), st.integers(1, 9))
def test_the_test_set_is_shared_out_whole(samples: int, workers: int) -> None:
    arrays = random_arrays(1, samples)
    labels = [labels for worker in range(workers) for _, labels in Shard(arrays, 1, 0, worker, workers).test(7)]
    assert torch.equal(torch.cat(labels), torch.from_numpy(arrays.test_y))
