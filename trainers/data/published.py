"""Image sets that torchvision can read: from the user's own copy, or downloaded on request."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import logging
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradsweep.errors import UsageError
from trainers.data.arrays import from_images
from trainers.data.store import Prepared
from trainers.options import datasets as options_of

log = logging.getLogger(__name__)

Part = tuple[np.ndarray, np.ndarray]
"""Images (N, C, H, W) uint8 and labels (N,)."""


@dataclasses.dataclass(frozen=True)
class Published:
    """The paths of a data set's files below data.root in torchvision's layout, and how torchvision reads them."""

    name: str
    dataset: str
    """Its class in torchvision.datasets."""
    folder: str
    files: tuple[str, ...]
    archive: str
    """What a user finds at the publisher, in words."""
    read: Callable[[Any, str, bool, bool], Part]
    """(the class, root, train, download); compares checksums, or `verify` does."""
    classes: int = 10
    verify: Callable[[Any, Path], None] | None = None
    """(the class, folder)"""

    def list_missing(self, root: Path) -> list[str]:
        return [name for name in self.files if not (root / self.folder / name).is_file()]


def _cifar(cls: Any, root: str, train: bool, download: bool) -> Part:
    part = cls(root, train=train, download=download)
    return part.data.transpose(0, 3, 1, 2), np.asarray(part.targets)


def _svhn(cls: Any, root: str, train: bool, download: bool) -> Part:
    part = cls(root, split="train" if train else "test", download=download)
    return part.data, part.labels


def _stl10(cls: Any, root: str, train: bool, download: bool) -> Part:
    class Labelled(cls):
        """STL-10 without the 2.6 GB of unlabelled images, which torchvision would require too."""

        train_list = cls.train_list[:2]

    return _svhn(Labelled, root, train, download)


def _mnist(cls: Any, root: str, train: bool, download: bool) -> Part:
    part = cls(root, train=train, download=download)
    images = part.data.numpy()
    if len(images) != len(part.targets):
        raise ValueError(f"{len(images)} images with {len(part.targets)} labels")
    return images[:, None], part.targets.numpy()


def _verify_mnist(cls: Any, folder: Path) -> None:
    """Compare MNIST's archives with their checksums, and the extracted files with the archives.

    torchvision checks the archives when it downloads them, and nothing when it reads the files.
    """
    for name, md5 in cls.resources:
        archive, extracted = folder / name, folder / name.removesuffix(".gz")
        if not archive.is_file():
            log.warning("%s: not verified: its published checksum is that of %s", extracted, name)
            continue
        packed = archive.read_bytes()
        if hashlib.md5(packed, usedforsecurity=False).hexdigest() != md5:
            raise RuntimeError(f"{name} fails its MD5 checksum")
        content = gzip.decompress(packed)
        if not extracted.is_file():
            extracted.write_bytes(content)
        elif zlib.crc32(extracted.read_bytes()) != zlib.crc32(content):
            raise RuntimeError(f"{extracted.name} is not what is in {name}, which matches its MD5 checksum")


_IDX = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
_STL10 = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
_SVHN = ("train_32x32.mat", "test_32x32.mat")
_CIFAR100 = ("train", "test", "meta")
_CIFAR10 = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")

_MNIST = "the four files, or the .gz with them"

SETS: dict[type, Published] = {
    options_of.Cifar10: Published(
        "cifar10", "CIFAR10", "cifar-10-batches-py", _CIFAR10, "an extracted cifar-10-python.tar.gz", _cifar
    ),
    options_of.Cifar100: Published(
        "cifar100", "CIFAR100", "cifar-100-python", _CIFAR100, "an extracted cifar-100-python.tar.gz", _cifar, 100
    ),
    options_of.SVHN: Published("svhn", "SVHN", ".", _SVHN, "the two files of format 2 (cropped digits)", _svhn),
    options_of.MNIST: Published("mnist", "MNIST", "MNIST/raw", _IDX, _MNIST, _mnist, verify=_verify_mnist),
    options_of.FashionMNIST: Published(
        "fashion_mnist", "FashionMNIST", "FashionMNIST/raw", _IDX, _MNIST, _mnist, verify=_verify_mnist
    ),
    options_of.STL10: Published("stl10", "STL10", "stl10_binary", _STL10, "an extracted stl10_binary.tar.gz", _stl10),
}


def check(published: Published, root: Path) -> None:
    """Refuse a data set whose files are missing, without loading torch.

    Raises:
        UsageError: says where the files are expected and how to get them.
    """
    folder = (root / published.folder).absolute()
    missing = published.list_missing(root)
    if published.verify is not None:  # whose archives do as well
        missing = [name for name in missing if not (folder / f"{name}.gz").is_file()]
    if missing:
        raise UsageError(
            f"dataset={published.name}: not found: {', '.join(missing)} in {folder}; valid is {published.archive} "
            f"there (or data.root=DIR where it is), which data.download=true or "
            f"`python -m trainers.data --root {root} --download {published.name}` fetches"
        )


def build(options: Any, root: Path, download: bool = False) -> Prepared:
    """Read the data set that `options` names.

    torchvision compares the files of CIFAR, SVHN and STL-10 with their published MD5 before it uses them. For MNIST
    only the archives have published checksums: they are compared if the archives are there.

    Raises:
        UsageError: files are missing, differ from their checksum, or have an unexpected content.
    """
    one = SETS[type(options)]
    if not download:
        check(one, root)
    from trainers.models.torchvision_import import import_torchvision

    cls, folder = getattr(import_torchvision().datasets, one.dataset), (root / one.folder).absolute()
    try:
        if download and one.list_missing(root):
            one.read(cls, str(root), True, True)
        if one.verify is not None:
            one.verify(cls, folder)
        parts = [one.read(cls, str(root), train, download) for train in (True, False)]
        images = [np.ascontiguousarray(part) for part, _ in parts]
        labels = [np.asarray(part, dtype=np.int64) for _, part in parts]
        for x, y in zip(images, labels, strict=True):
            if len(x) != len(y) or not len(y) or y.min() < 0 or y.max() >= one.classes:
                raise ValueError(f"labels are not those of {len(x)} images of {one.classes} classes")
    # what torchvision raises for a wrong checksum, and its readers for what is no such file
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError, EOFError, struct.error) as error:
        text = _one_line(error)
        if "corrupted" in text and (damaged := _find_damaged(one, cls, folder)):  # torchvision does not say which
            text = ", ".join(damaged) + (" fail their MD5 checksums" if damaged[1:] else " fails its MD5 checksum")
        valid = f"; valid is {one.archive} there, as its publisher has it" if "checksum" in text else ""
        raise UsageError(f"dataset={one.name}: {folder}: {text}{valid}") from error
    except (pickle.UnpicklingError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"dataset={one.name}: {folder}: {_one_line(error)}") from error
    sources = [folder / name for name in one.files]
    return from_images(images[0], labels[0], images[1], labels[1], one.classes).to_prepared(sources)


def _find_damaged(published: Published, cls: Any, folder: Path) -> list[str]:
    """Return the files in `folder` whose MD5 differs from the one that torchvision has for them."""
    checksums = [*getattr(cls, "train_list", ()), *getattr(cls, "test_list", ())]
    checksums += [entry[1:] for entry in getattr(cls, "split_list", {}).values()]
    if meta := getattr(cls, "meta", None):
        checksums.append([meta["filename"], meta["md5"]])
    sums = dict(checksums)

    def matches(name: str) -> bool:
        with (folder / name).open("rb") as file:
            digest = hashlib.md5(usedforsecurity=False)
            while piece := file.read(2**20):
                digest.update(piece)
        return digest.hexdigest() == sums[name]

    there = [name for name in published.files if name in sums and (folder / name).is_file()]
    return [name for name in there if not matches(name)]


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    known = ("checksum", "corrupted", "Error downloading")
    return text if any(words in text for words in known) else f"cannot be read: {text}"
