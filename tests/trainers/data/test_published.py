"""Image sets in their true formats: read from the user's files, never without a look at what can be verified."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradsweep.errors import UsageError
from trainers import data
from trainers.data import published
from trainers.models.torchvision_import import import_torchvision
from trainers.options import datasets as options

Written = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Images and labels to train, then to test."""


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def random_images(count: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(count).randint(0, 256, (count, *shape)).astype(np.uint8)


def random_labels(count: int, classes: int = 10) -> np.ndarray:
    return np.random.RandomState(count + 1).randint(0, classes, count).astype(np.int64)


def write_cifar(root: Path, patch: pytest.MonkeyPatch, hundred: bool) -> Written:
    """A small CIFAR in the true format; torchvision is told its checksums."""
    one = published.SETS[options.Cifar100 if hundred else options.Cifar10]
    folder, *names = root / one.folder, *one.files[:-1]
    folder.mkdir(parents=True)
    key, classes = ("fine_labels", 100) if hundred else ("labels", 10)
    written = []
    for number, name in enumerate(names, 20):
        images, labels = random_images(number, 3072), random_labels(number, classes)
        (folder / name).write_bytes(pickle.dumps({"data": images, key: labels.tolist()}, protocol=2))
        written.append((images.reshape(-1, 3, 32, 32), labels))
    cls = getattr(import_torchvision().datasets, "CIFAR100" if hundred else "CIFAR10")
    meta = folder / one.files[-1]
    meta.write_bytes(pickle.dumps({cls.meta["key"]: ["class"] * classes}, protocol=2))
    patch.setattr(cls, "train_list", [[name, md5(folder / name)] for name in names[:-1]])
    patch.setattr(cls, "test_list", [[names[-1], md5(folder / names[-1])]])
    patch.setattr(cls, "meta", {**cls.meta, "md5": md5(meta)})
    train, test = written[:-1], written[-1]
    return np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), *test


def write_svhn(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """With the label 10 for the digit 0, as the publisher has it."""
    from scipy.io import savemat

    root.mkdir(parents=True, exist_ok=True)
    written: list[np.ndarray] = []
    lists = dict(import_torchvision().datasets.SVHN.split_list)
    for part, count in (("train", 30), ("test", 12)):
        images, labels = random_images(count, 3, 32, 32), random_labels(count)
        path = root / f"{part}_32x32.mat"
        savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None]})
        lists[part] = [lists[part][0], path.name, md5(path)]
        written += [images, labels]
    patch.setattr(import_torchvision().datasets.SVHN, "split_list", lists)
    return written[0], written[1], written[2], written[3]


def write_stl10(root: Path, patch: pytest.MonkeyPatch) -> Written:
    folder = root / "stl10_binary"
    folder.mkdir(parents=True)
    written: list[np.ndarray] = []
    for part, count in (("train", 6), ("test", 4)):
        images, labels = random_images(count, 3, 96, 96), random_labels(count)
        (folder / f"{part}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
        (folder / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
        written += [images, labels]
    cls = import_torchvision().datasets.STL10
    for part, more in (("train", [["unlabeled_X.bin", "none"]]), ("test", [])):
        files = [[f"{part}_{what}.bin", md5(folder / f"{part}_{what}.bin")] for what in "Xy"]
        patch.setattr(cls, f"{part}_list", files + more)
    return written[0], written[1], written[2], written[3]


def write_mnist(root: Path, patch: pytest.MonkeyPatch, name: str = "MNIST") -> Written:
    """The archives alone; torchvision is told their checksums."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    written: list[np.ndarray] = []
    for part, count in (("train", 25), ("t10k", 10)):
        images, labels = random_images(count, 28, 28), random_labels(count)
        for what, array in (("images-idx3", images), ("labels-idx1", labels.astype(np.uint8))):
            head = struct.pack(f">{1 + array.ndim}i", 0x0800 + array.ndim, *array.shape)
            (folder / f"{part}-{what}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
        written += [images[:, None], labels]
    cls = getattr(import_torchvision().datasets, name)
    patch.setattr(cls, "resources", [(file, md5(folder / file)) for file, _ in cls.resources])
    return written[0], written[1], written[2], written[3]


SETS: dict[str, tuple[Any, Callable[[Path, pytest.MonkeyPatch], Written], str]] = {
    "cifar10": (options.Cifar10(), lambda root, patch: write_cifar(root, patch, False), "data_batch_2"),
    "cifar100": (options.Cifar100(), lambda root, patch: write_cifar(root, patch, True), "train"),
    "svhn": (options.SVHN(), write_svhn, "test_32x32.mat"),
    "stl10": (options.STL10(), write_stl10, "train_y.bin"),
    "mnist": (options.MNIST(), write_mnist, "t10k-images-idx3-ubyte.gz"),
    "fashion_mnist": (
        options.FashionMNIST(),
        lambda root, patch: write_mnist(root, patch, "FashionMNIST"),
        "train-labels-idx1-ubyte.gz",
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_read_from_the_users_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, write, _ = SETS[name]
    expected = write(tmp_path, monkeypatch)
    arrays = data.load(dataset, tmp_path)
    for found, wanted in zip((arrays.train_x, arrays.train_y, arrays.test_x, arrays.test_y), expected, strict=True):
        assert isinstance(found, np.memmap) and np.array_equal(found, wanted)
    assert arrays.classes == (100 if name == "cifar100" else 10) and arrays.train_x.dtype == np.uint8
    assert arrays.shape == expected[0].shape[1:]


@pytest.mark.parametrize("name", SETS)
def test_a_wrong_checksum_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, write, file = SETS[name]
    write(tmp_path, monkeypatch)
    monkeypatch.setattr(pickle, "load", lambda *a, **k: pytest.fail("unpickled"))
    path = tmp_path / published.SETS[type(dataset)].folder / file
    content = path.read_bytes()
    path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    with pytest.raises(
        UsageError, match=rf"dataset={name}: {tmp_path}.*: {file} fails its MD5 checksum; valid is"
    ) as error:
        data.load(dataset, tmp_path)
    assert "\n" not in str(error.value) and not list((tmp_path / "prepared").glob("[!.]*"))


@pytest.mark.parametrize("name", SETS)
def test_missing_files_are_named_with_their_place(name: str, tmp_path: Path) -> None:
    dataset = SETS[name][0]
    one = published.SETS[type(dataset)]
    folder = tmp_path / one.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / one.files[1]).write_bytes(b"")
    rest = ", ".join((one.files[0], *one.files[2:]))
    with pytest.raises(UsageError) as error:
        data.load(dataset, tmp_path)
    assert str(error.value).startswith(f"dataset={name}: not found: {rest} in {folder.absolute()}; valid is ")
    assert "data.download=true" in str(error.value)


def test_mnists_files_are_compared_with_their_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_mnist(tmp_path, monkeypatch)
    folder = tmp_path / "MNIST" / "raw"
    data.load(options.MNIST(), tmp_path)
    labels = folder / "train-labels-idx1-ubyte"
    content = labels.read_bytes()
    labels.write_bytes(content[:-1] + bytes([(content[-1] + 1) % 10]))
    with pytest.raises(UsageError, match=r"train-labels-idx1-ubyte is not what is in train-labels-idx1-ubyte.gz"):
        data.prepare(options.MNIST(), tmp_path)
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    data.prepare(options.MNIST(), tmp_path)
    assert "train-labels-idx1-ubyte: not verified" in caplog.text


@pytest.mark.parametrize(
    "harm", [lambda content: b"", lambda content: content[:-5], lambda content: b"\0\0\7\3" + content[4:]]
)
def test_what_cannot_be_verified_is_still_looked_at(
    harm: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path, monkeypatch)
    folder = tmp_path / "MNIST" / "raw"
    for archive in folder.glob("*.gz"):
        archive.with_suffix("").write_bytes(gzip.decompress(archive.read_bytes()))
        archive.unlink()
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(UsageError, match=r"dataset=mnist: .*: cannot be read: ") as error:
        data.load(options.MNIST(), tmp_path)
    assert "\n" not in str(error.value)


def test_what_was_asked_for_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a network that fails is one line."""
    dataset = import_torchvision().datasets.SVHN
    asked = []

    def download(self: Any) -> None:
        asked.append(self.filename)
        if len(asked) == 1:
            write_svhn(tmp_path, monkeypatch)
            self.split_list = dataset.split_list

    monkeypatch.setattr(dataset, "download", download)
    data.prepare(options.SVHN(), tmp_path, download=True)
    assert set(asked) == {"train_32x32.mat", "test_32x32.mat"}

    def unreachable(self: Any) -> None:
        raise OSError("<urlopen error: no\nroute>")

    monkeypatch.setattr(dataset, "download", unreachable)
    with pytest.raises(UsageError, match=r"^dataset=svhn: <urlopen error: no route>$"):
        data.prepare(options.SVHN(), tmp_path / "other", download=True)
