"""Trees of images that are decoded as they are needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers import data
from trainers.config import run_config
from trainers.options import datasets as options

TRAIN, TEST = 11, 7


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes; an image is of one colour, which tells which one it is, darker in its right half."""
    root = tmp_path_factory.mktemp("data")
    for part, count in (("train", TRAIN), ("val", TEST)):
        for number in range(count):
            folder = root / "imagenet" / part / f"n{number % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (60 + number, 50), (20 * number, 10, 200))
            image.paste((20 * number, 10, 60), (image.width // 2, 0, image.width, 50))
            if number == 1:
                image = image.convert("L")
            image.save(folder / f"{part} {number:02}.{'png' if number % 2 else 'JPEG'}", quality=95)
    return root


def feed_of(root: Path, worker: int = 0, workers: int = 1, loaders: int = 0, **dataset: Any) -> Any:
    dataset = {"name": "imagenet", "size": 16, "resize": 20, "scale": 0.3, **dataset}
    changes = {"data": {"root": str(root), "loaders": loaders}, "batch": {"size": 4}, "workers": workers}
    return data.build_feed(run_config.parse(compose_config(dataset=dataset, **changes)), worker, workers)


def epoch_of(feed: Any, epoch: int, start: int = 0) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    return [(batch.inputs, batch.labels, batch.total) for batch in feed.read_epoch(epoch, start)]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(one, other, strict=True))


def test_workers_see_every_image_once(tree: Path) -> None:
    feeds = [feed_of(tree, worker, 3) for worker in range(3)]
    assert feeds[0].shape == (3, 16, 16) and (feeds[0].classes, feeds[0].samples) == (3, TRAIN)
    alone = epoch_of(feed_of(tree), 2)
    steps = list(zip(*(epoch_of(feed, 2) for feed in feeds), strict=True))
    assert [step[0][2] for step in steps] == [4, 4, 3]
    for step, (inputs, labels, _) in zip(steps, alone, strict=True):
        assert torch.equal(torch.cat([part[0] for part in step]), inputs)
        assert torch.equal(torch.cat([part[1] for part in step]), labels)
    labels = torch.cat([labels for _, labels, _ in alone])
    assert torch.bincount(labels).tolist() == [4, 4, 3]
    tested = [part for feed in feeds for part in feed.read_test_set()]
    assert sorted(torch.cat([labels for _, labels in tested]).tolist()) == [0, 0, 0, 1, 1, 2, 2]
    assert same(list(feeds[2].read_test_set(whole=True)), list(feed_of(tree).read_test_set()))


def test_test_images_are_the_middle(tree: Path) -> None:
    (images, labels), *rest = feed_of(tree).read_test_set()
    assert not rest and labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    levels = images * torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1) + torch.tensor([0.485, 0.456, 0.406]).view(
        3, 1, 1
    )
    reds = (levels[:, 0, :, 2].mean(1) * 255 / 20).round().tolist()
    assert [reds[place] for place in (0, 1, 2, 4, 5, 6)] == [0, 3, 6, 4, 2, 5], "by class, then by name"
    blue = levels[:, 2, 8] * 255
    assert (blue[[0, 1, 2, 4, 5, 6], :6] - 200).abs().max() < 9 and (blue[[0, 1, 2, 4, 5, 6], -6:] - 60).abs().max() < 9


def test_crops_and_flips_are_drawn_for_each_epoch_and_image(tree: Path) -> None:
    feed = feed_of(tree)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, second = epoch_of(feed, 1), epoch_of(feed_of(tree), 1), epoch_of(feed, 2)
    assert torch.equal(state, torch.get_rng_state()), "torch's generator is left alone"
    assert same(first, again) and same(epoch_of(feed_of(tree), 2, 1), second[1:])

    def edges(**more: Any) -> np.ndarray:
        """Of every image in some epochs: 1 where its left side is the brighter one, -1 the right, 0 neither."""
        images = torch.cat([part[0] for epoch in range(1, 9) for part in epoch_of(feed_of(tree, **more), epoch)])
        difference = (images[:, 2, :, 0] - images[:, 2, :, -1]).mean(1).numpy()
        return np.sign(difference) * (np.abs(difference) > 0.5)

    found = edges()
    assert 0.25 < (found == -1).sum() / (found != 0).sum() < 0.75
    assert -1 not in edges(flip=False) and set(edges(scale=1.0, flip=False)) >= {1}


@pytest.mark.parametrize("size", [12, 17])
def test_sizes_are_options(tree: Path, size: int) -> None:
    feed = feed_of(tree, size=size)
    assert feed.shape == (3, size, size)
    assert all(images.shape[1:] == feed.shape for images, *_ in [*feed.read_test_set(), *epoch_of(feed, 1)])


def test_loaders_give_the_same_and_stay(tree: Path) -> None:
    """Processes of their own, also where an epoch is left in its middle and where this worker has no image."""
    alone, loaded = feed_of(tree, 4, 4 + 1), feed_of(tree, 4, 4 + 1, loaders=1)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    next(loaded.read_epoch(1))
    processes = {worker.pid for worker in loaded._loaders._loaders[False]._iterator._workers}
    assert same(epoch_of(alone, 2), epoch_of(loaded, 2)) and same(
        list(alone.read_test_set()), list(loaded.read_test_set())
    )
    assert processes == {worker.pid for worker in loaded._loaders._loaders[False]._iterator._workers}
    assert torch.equal(state, torch.get_rng_state())


def test_an_image_that_cannot_be_decoded(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path, dirs_exist_ok=True)
    files = sorted((tmp_path / "imagenet" / "train").rglob("*.JPEG"))
    files[0].write_bytes(files[0].read_bytes()[:300])
    files[1].write_bytes(b"no image")
    val = next((tmp_path / "imagenet" / "val").rglob("*.JPEG"))
    val.unlink()
    feed = feed_of(tmp_path)
    val.write_bytes(b"")
    with pytest.raises(UsageError, match=r"^dataset=imagenet: .*/train/n\d/train \d\d.JPEG: .*; valid is an image"):
        epoch_of(feed, 1)


def test_a_tree_that_changed_is_read_anew(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path, dirs_exist_ok=True)
    assert feed_of(tmp_path).samples == TRAIN
    shutil.copy(*(tmp_path / "imagenet" / "train" / "n1" / name for name in ("train 01.png", "more.png")))
    data.prepare(options.ImageNet(), tmp_path)  # as the launcher does
    feed = feed_of(tmp_path)
    assert feed.samples == TRAIN + 1
    twice = [row for row in range(feed.samples) if feed.images.train[row].name in ("train 01.png", "more.png")]
    shown = [[feed.images[epoch, row] for epoch in range(1, 5)] for row in twice]
    assert not any(torch.equal(one, other) for one, other in zip(*shown, strict=True)), "numbers are drawn for a row"


def test_trees_that_are_none(tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"

    def error() -> str:
        with pytest.raises(UsageError) as raised:
            data.prepare(options.ImageNet(), tmp_path)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    (folder / "train").mkdir(parents=True)
    assert error().startswith(
        f"dataset=imagenet: not found: val in {folder}; valid is a folder with train/CLASS/*.JPEG"
    )
    (folder / "val").mkdir()
    assert "Couldn't find any class folder" in error()
    shutil.copytree(tree / "imagenet", folder, dirs_exist_ok=True)
    (folder / "val" / "n1").rename(folder / "val" / "n9")
    assert "train and val differ in 2 classes, such as n1; valid are" in error()
    shutil.rmtree(folder / "val" / "n9")
    (folder / "val" / "n1").mkdir()
    assert "Found no valid file for the classes n1" in error()
