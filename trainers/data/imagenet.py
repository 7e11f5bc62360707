"""Data sets of image files in a folder for each class, decoded while training because they do not fit into memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradsweep.errors import UsageError
from trainers.data import draws
from trainers.data.feeds import Batch, Feed
from trainers.data.loaders import Loaders, Places
from trainers.data.partitions import Plan, cut
from trainers.data.store import Prepared
from trainers.options.datasets import ImageNet
from trainers.options.sections import Partition

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's training set, as published with torchvision's models."""
TEST_BATCH = 64


def build(options: ImageNet, root: Path, download: bool = False) -> Prepared:
    """Return the names and classes of all files, as torchvision's ImageFolder finds them, read once for all ranks.

    Raises:
        UsageError: the tree is missing, or is not one.
    """
    from trainers.models.torchvision_import import import_torchvision

    folder = (root / options.folder).absolute()
    missing = [part for part in ("train", "val") if not (folder / part).is_dir()]
    if missing:
        raise UsageError(
            f"dataset=imagenet: not found: {', '.join(missing)} in {folder}; valid is a folder with "
            f"train/CLASS/*.JPEG and val/CLASS/*.JPEG, such as the validation images sorted by class (or "
            f"data.root=DIR, dataset.folder=NAME where it is); ImageNet's publisher offers it to registered users only"
        )
    try:
        train, test = (import_torchvision().datasets.ImageFolder(str(folder / part)) for part in ("train", "val"))
    except (FileNotFoundError, RuntimeError) as error:  # no classes, or one without images
        raise UsageError(f"dataset=imagenet: {folder}: {' '.join(str(error).split())[:300]}") from error
    if train.classes != test.classes:
        different = sorted(set(train.classes) ^ set(test.classes))
        raise UsageError(
            f"dataset=imagenet: {folder}: train and val differ in {len(different)} classes, such as {different[0]}; "
            f"valid are the same folders in both"
        )
    if len(train.classes) < 2:
        raise UsageError(f"dataset=imagenet: {folder}: has one class; valid are two or more")
    arrays: dict[str, np.ndarray] = {"test_ratios": _ratios(test)}
    for part, found in (("train", train), ("test", test)):
        names = [str(Path(path).relative_to(folder)).encode() for path, _ in found.samples]
        arrays[f"{part}_names"] = np.frombuffer(b"".join(names), dtype=np.uint8)
        arrays[f"{part}_ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
        arrays[f"{part}_y"] = np.array(found.targets, dtype=np.int64)
    classes = [folder / part / name for part in ("train", "val") for name in ("", *train.classes)]
    return Prepared(arrays, {"classes": len(train.classes)}, classes)


def _ratios(images: Any) -> np.ndarray:
    """Return the aspect ratios (width over height) of a part's images (N,), from their headers; 1 for a file that is
    no image."""
    from PIL import Image, UnidentifiedImageError

    ratios = np.ones(len(images.samples))
    for place, (path, _) in enumerate(images.samples):
        with contextlib.suppress(OSError, UnidentifiedImageError, SyntaxError, ValueError), Image.open(path) as image:
            ratios[place] = image.width / image.height
    return ratios


def find_rectangles(ratios: np.ndarray, size: int, together: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Sort images by shape into batches of `together`, and compute the rectangle to cut from the middle of each.

    The rectangles of a batch have the same shape: the shorter side is `size`; the longer side follows from the mean
    aspect ratio of the batch, rounded down to a multiple of eight pixels (Howard et al., DAWNBench 2018).

    Args:
        ratios: (N,), width over height.

    Returns:
        The numbers of the images in each batch; height and width for each image, (N, 2).
    """
    order = np.argsort(ratios, kind="stable")
    batches = [order[first : first + together] for first in range(0, len(order), together)]
    shapes = np.full((len(ratios), 2), size, dtype=np.int64)
    for batch in batches:
        ratio = float(ratios[batch].mean())
        longer = int(size * max(ratio, 1 / ratio) + 1e-9)
        shapes[batch, int(ratio >= 1)] = max(longer // 8 * 8, size)
    return batches, shapes


class Files:
    """The file names of the training or test images (N,), in a buffer that all ranks share."""

    def __init__(self, folder: Path, names: np.ndarray, ends: np.ndarray) -> None:
        self.folder, self.names, self.ends = folder, names, ends

    def __getitem__(self, row: int) -> Path:
        start = int(self.ends[row - 1]) if row else 0
        return self.folder / bytes(self.names[start : int(self.ends[row])]).decode()


class Decoded:
    """Decodes images: by a place (epoch, row), or test image `row` if the epoch is 0.

    An image is a tensor (3, height, width), or an error message if it cannot be decoded.

    Args:
        tested: height and width of the centre crop of every test image, (N, 2).
    """

    def __init__(self, options: ImageNet, train: Files, test: Files, tested: np.ndarray, seed: int) -> None:
        self.options, self.train, self.test, self.tested, self.seed = options, train, test, tested, seed

    def read(self, places: Places) -> torch.Tensor | str | None:
        """Stack images into a tensor (n, 3, H, W); return None without images, or the error message of a bad image."""
        epoch, rows = places
        images = [self[epoch, int(row)] for row in rows]
        for image in images:
            if isinstance(image, str):
                return image
        return torch.stack(images) if images else None  # type: ignore[arg-type]

    def __getitem__(self, place: tuple[int, int]) -> torch.Tensor | str:
        epoch, row = place
        path = (self.train if epoch else self.test)[row]
        from trainers.models.torchvision_import import import_torchvision

        vision = import_torchvision()
        try:
            image = vision.datasets.folder.pil_loader(str(path))
        except (OSError, SyntaxError, ValueError) as error:  # what PIL raises for files that are no images
            return f"{path}: {' '.join(str(error).split())}"
        functional = vision.transforms.functional
        if epoch:
            image = self._crop(image, vision.transforms, epoch, row)
        else:
            image = functional.center_crop(functional.resize(image, self.options.resize), self.tested[row].tolist())
        tensor: torch.Tensor = functional.normalize(functional.to_tensor(image), MEAN, STD)
        return tensor

    def _crop(self, image: Any, transforms: Any, epoch: int, row: int) -> Any:
        """Return a random crop of an image, resized, and flipped with probability 1/2.

        The random numbers depend on (seed, epoch, row) only.
        """
        words = draws.create_generator(self.seed, epoch, draws.SINGLE, row).randint(0, 2**31, 2)
        # torchvision draws from torch's global generator, which has to come out of this as it was: dropout uses it
        state = torch.default_generator.get_state()
        try:
            torch.default_generator.manual_seed(int(words[0]) << 31 | int(words[1]))
            place = transforms.RandomResizedCrop.get_params(image, [self.options.scale, 1.0], [3 / 4, 4 / 3])
            mirrored = self.options.flip and bool(torch.rand(1) < 0.5)
        finally:
            torch.default_generator.set_state(state)
        image = transforms.functional.resized_crop(image, *place, [self.options.size] * 2)
        return transforms.functional.hflip(image) if mirrored else image


class FolderFeed(Feed):
    """The feed of one worker for a folder of images, decoded in `loaders` processes, or with 0 by the rank itself.

    Raises:
        UsageError: there are fewer images than a global batch has; while reading, an image cannot be decoded.
    """

    kind, task = "images", "classification"

    def __init__(
        self,
        options: ImageNet,
        prepared: Prepared,
        folder: Path,
        global_batch: int,
        seed: int,
        worker: int,
        workers: int,
        partition: Partition | None = None,
        loaders: int = 0,
    ) -> None:
        arrays = prepared.arrays
        self.labels, self.test_labels = np.array(arrays["train_y"]), np.array(arrays["test_y"])
        self.worker, self.workers = worker, workers
        self.shape, self.classes = (3, options.size, options.size), int(prepared.facts["classes"])
        self.samples = len(self.labels)
        self.plan = Plan(self.labels, global_batch, seed, workers, partition)
        files = [Files(folder, arrays[f"{part}_names"], arrays[f"{part}_ends"]) for part in ("train", "test")]
        self.rectangles: list[np.ndarray] = []
        tested = np.full((len(self.test_labels), 2), options.size)
        if options.rectangular:
            self.rectangles, tested = find_rectangles(arrays["test_ratios"], options.size, TEST_BATCH)
        self.images = Decoded(options, files[0], files[1], tested, seed)
        self._loaders = Loaders(self.images.read, loaders)

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        batches = list(self.plan.list_batches(self.worker, epoch, start))
        places = [(epoch, rows) for rows, _ in batches]
        for inputs, (rows, total) in zip(self._decode(places), batches, strict=True):
            yield Batch(inputs, torch.from_numpy(self.labels[rows]), total)

    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        batches = self._tests(*((1, 0) if whole else (self.workers, self.worker)))
        for inputs, rows in zip(self._decode([(0, rows) for rows in batches]), batches, strict=True):
            yield inputs, torch.from_numpy(self.test_labels[rows])

    def _tests(self, parts: int, part: int) -> list[np.ndarray]:
        """Return the numbers of the test images in each batch of part `part` of `parts`."""
        if self.rectangles:
            return self.rectangles[cut(len(self.rectangles), parts, part)]
        mine = cut(len(self.test_labels), parts, part)
        firsts = range(mine.start, mine.stop, TEST_BATCH)
        return [np.arange(first, min(first + TEST_BATCH, mine.stop)) for first in firsts]

    def close(self) -> None:
        self._loaders.close()

    def _decode(self, places: list[Places]) -> Iterator[torch.Tensor]:
        for batch in self._loaders.read(places):
            if isinstance(batch, str):
                raise UsageError(f"dataset=imagenet: {batch}; valid is an image that can be decoded")
            yield torch.empty(0, *self.shape) if batch is None else batch
