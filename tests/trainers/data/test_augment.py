"""Augmentation of a whole batch: what it does to an image, and that nothing but (seed, epoch, sample) decides it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.trainers.arrays import random_arrays
from trainers.data import augment, draws
from trainers.data.arrays import Arrays, from_images
from trainers.data.batches import Shard
from trainers.options.datasets import Images

ALL = {"crop_padding": 2, "flip": True, "cutout": 3}


def colours(samples: int = 60, channels: int = 3, height: int = 8, width: int = 11) -> Arrays:
    images = np.random.RandomState(1).randint(0, 256, (samples, channels, height, width)).astype(np.uint8)
    labels = np.arange(samples, dtype=np.int64)
    return from_images(images, labels, images[:5], labels[:5], samples)


def shown(arrays: Arrays, epoch: int = 1, batch: int = 7, workers: int = 1, **options: Any) -> torch.Tensor:
    """The training set in its order, as an epoch shows it."""
    found = torch.empty(len(arrays.train_y), *arrays.shape)
    for worker in range(workers):
        for part in Shard(arrays, batch, 5, worker, workers, Images(**options)).read_epoch(epoch):
            found[part.labels] = part.inputs
    return found


def levels(arrays: Arrays, images: torch.Tensor) -> np.ndarray:
    """Back from normalised images to uint8."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (arrays.mean, arrays.std))
    return (images * std + mean).round().to(torch.uint8).numpy()


@given(st.integers(0, 6), st.integers(1, 3), st.sampled_from(["reflect", "constant"]), st.integers(0, 255))
def test_padding_is_numpys(size: int, channels: int, mode: str, fill: int) -> None:
    images = colours(4, channels, 7, 9).train_x
    assert isinstance(images, np.ndarray)
    more = {} if mode == "reflect" else {"constant_values": fill}
    expected = np.pad(images, ((0, 0), (0, 0), (size, size), (size, size)), mode=mode, **more)  # type: ignore[call-overload]
    assert np.array_equal(augment.pad(images, size, mode, fill), expected)


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    arrays = colours(300)
    for mode in ("reflect", "constant"):
        found = levels(arrays, shown(arrays, crop_padding=2, padding_mode=mode, padding_fill=99))
        padded = augment.pad(np.asarray(arrays.train_x), 2, mode, 99)
        places = set()
        for image, source in zip(found, padded, strict=True):
            fits = [
                (top, left)
                for top in range(5)
                for left in range(5)
                if np.array_equal(image, source[:, top : top + 8, left : left + 11])
            ]
            assert len(fits) == 1
            places |= set(fits)
        assert len(places) == 25, "every place is drawn"


def test_half_of_the_images_are_flipped() -> None:
    arrays = colours(400)
    source, found = np.asarray(arrays.train_x), levels(arrays, shown(arrays, flip=True))
    mirrored = np.array([np.array_equal(image, other[..., ::-1]) for image, other in zip(found, source, strict=True)])
    same = np.array([np.array_equal(image, other) for image, other in zip(found, source, strict=True)])
    assert (mirrored ^ same).all() and 160 < mirrored.sum() < 240
    assert np.array_equal(np.asarray(arrays.train_x), source), "the data set itself is as it was"


def test_cutout_clears_one_square_inside() -> None:
    arrays = colours(300)
    plain, cut = shown(arrays), shown(arrays, cutout=3)
    cleared = (cut == 0).all(1).numpy()
    places = set()
    for mask in cleared:
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        assert mask.sum() == 9 and len(rows) == len(columns) == 3
        assert rows[2] - rows[0] == columns[2] - columns[0] == 2
        places.add((rows[0], columns[0]))
    assert len(places) > 45 and max(places)[0] == 5, "every place is drawn, of 6 x 9"
    kept = ~torch.from_numpy(cleared)[:, None].expand_as(plain)
    assert torch.equal(cut[kept], plain[kept])


@pytest.mark.parametrize("option", [{"cutout": 3}, {"flip": True}, {"crop_padding": 2}])
def test_what_one_draws_does_not_change_with_the_others(option: dict[str, Any]) -> None:
    arrays = colours()
    one, every = (Shard(arrays, 60, 5, 0, 1, Images(**options)).show for options in (option, ALL))
    assert isinstance(one, augment.Augment) and isinstance(every, augment.Augment)
    both = one._draw(1), every._draw(1)
    assert both[0] and all(np.array_equal(values, both[1][purpose]) for purpose, values in both[0].items())


@given(st.integers(1, 70), st.integers(1, 6))
def test_a_sample_is_the_same_in_any_batch_on_any_worker(batch: int, workers: int) -> None:
    arrays = colours(41)
    assert torch.equal(shown(arrays, 2, **ALL), shown(arrays, 2, max(batch, workers), workers, **ALL))


def test_epochs_differ_and_go_on_from_their_middle() -> None:
    arrays = colours()
    assert torch.equal(shown(arrays, 1, **ALL), shown(arrays, 1, **ALL))
    assert not torch.equal(shown(arrays, 1, **ALL), shown(arrays, 2, **ALL))
    whole, late = (Shard(arrays, 7, 5, 0, 1, Images(**ALL)) for _ in range(2))
    list(whole.read_epoch(1))  # what an epoch leaves behind does not matter
    for one, other in zip(list(whole.read_epoch(2))[3:], late.read_epoch(2, 3), strict=True):
        assert torch.equal(one.inputs, other.inputs)


def test_draws_stay_what_they_are() -> None:
    """They are a part of what a signature stands for."""
    assert draws.create_generator(2**33 + 7, 3, draws.CROP_TOP).randint(0, 9, 8).tolist() == [4, 3, 7, 8, 3, 2, 5, 8]
    assert draws.create_generator(2**33 + 7, 3, draws.ORDER).permutation(8).tolist() == [5, 7, 4, 2, 0, 6, 3, 1]


def test_the_test_set_is_not_augmented() -> None:
    arrays = colours()
    for plain, other in zip(
        Shard(arrays, 7, 0, 0, 1).read_test_set(), Shard(arrays, 7, 0, 0, 1, Images(**ALL)).read_test_set(), strict=True
    ):
        assert torch.equal(plain[0], other[0])


def test_mean_and_deviation_can_be_given() -> None:
    arrays = colours()
    images = shown(arrays, mean=[0.5, 0.25, 1.0], std=[0.5, 1.0, 0.25])
    source = torch.from_numpy(np.asarray(arrays.train_x)).double() / 255
    for channel, (mean, std) in enumerate(((0.5, 0.5), (0.25, 1.0), (1.0, 0.25))):
        expected = (source[:, channel] - mean) / std
        assert torch.allclose(images[:, channel].double(), expected, atol=1e-6)


def test_torchs_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    shown(colours(), **ALL)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"crop_padding": 8},
            "dataset.crop_padding=8: valid is an integer up to 7 with padding_mode=reflect and images",
        ),
        ({"cutout": 9}, "dataset.cutout=9: valid is an integer up to 8: images have 8x8"),
        ({"mean": [0.5] * 3, "std": [0.5] * 3}, r"dataset.mean=\[0.5, 0.5, 0.5\]: valid is a list of 1, one number"),
    ],
)
def test_options_that_do_not_fit_the_images(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Shard(random_arrays(5), 2, 0, 0, 1, Images(**options))


@pytest.mark.parametrize("options", [{"mean": [0.5]}, {"mean": [0.5], "std": [0.0]}, {"mean": [2], "std": [1]}])
def test_means_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Images(**options)
