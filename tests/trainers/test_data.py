"""Prepared data sets: built once, verified, built again when they are damaged."""

from __future__ import annotations

import hashlib
import logging
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sweep.run import UsageError
from tests.conftest import ROOT
from tests.trainers.arrays import random_arrays
from trainers import data
from trainers.data import cifar10, store


def test_digits_are_the_real_ones_in_a_fixed_stratified_split(tmp_path: Path) -> None:
    arrays = data.load("digits", tmp_path)
    assert arrays.train_x.shape == (1437, 1, 8, 8) and arrays.test_x.shape == (360, 1, 8, 8)
    assert isinstance(arrays.train_x, np.memmap)
    assert arrays.classes == 10 and arrays.train_x.max() == 16
    shares = [np.bincount(labels, minlength=10) / len(labels) for labels in (arrays.train_y, arrays.test_y)]
    assert np.abs(shares[0] - shares[1]).max() < 0.005
    # the split is part of what a signature stands for: it must not change with a version of scikit-learn
    digest = hashlib.sha256(arrays.train_x.tobytes() + arrays.train_y.tobytes() + arrays.test_y.tobytes())
    assert digest.hexdigest()[:16] == "30ffde501e6421ea"


@pytest.mark.parametrize("name", [f"{name}.npy" for name in store.ARRAYS] + ["meta.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_damage_is_noticed_and_mended(tmp_path: Path, name: str, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    arrays = random_arrays(20, 10)
    path = store.ensure(tmp_path, "some", lambda: arrays)
    file = path / name
    content = file.read_bytes()
    if harm == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    else:
        file.unlink()
    if name == "meta.json" and harm == "flip":
        file.write_bytes(content.replace(b"crc32", b"crc33"))
    assert store.damage(path) is not None
    with caplog.at_level(logging.WARNING):
        store.ensure(tmp_path, "some", lambda: arrays)
    assert "built again" in caplog.text
    assert store.damage(path) is None
    assert np.array_equal(store.load(path).train_x, arrays.train_x)


def test_what_is_in_order_is_not_built_again(tmp_path: Path) -> None:
    store.ensure(tmp_path, "some", lambda: random_arrays(5))
    store.ensure(tmp_path, "some", lambda: pytest.fail("built again"))


def test_many_at_once_build_once(tmp_path: Path) -> None:
    built = []

    def build() -> store.Arrays:
        built.append(1)
        return random_arrays(5)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: store.ensure(tmp_path, "some", build), range(8)))) == 1
    assert built == [1]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_checksum", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.ensure(tmp_path, "some", lambda: random_arrays(5))
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [".some.lock"]


def write_cifar10(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A small CIFAR-10 in the true format; torchvision is told its checksums."""
    from trainers.vision import torchvision

    random = np.random.RandomState(0)
    folder.mkdir(parents=True)
    written = {}
    for name in cifar10.FILES[:-1]:
        images = random.randint(0, 256, (20, 3072)).astype(np.uint8)
        labels = random.randint(0, 10, 20).tolist()
        (folder / name).write_bytes(pickle.dumps({"data": images, "labels": labels}, protocol=2))
        written[name] = images
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["class"] * 10}, protocol=2))
    dataset = torchvision().datasets.CIFAR10
    md5 = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in cifar10.FILES}
    monkeypatch.setattr(dataset, "train_list", [[name, md5[name]] for name in cifar10.FILES[:5]])
    monkeypatch.setattr(dataset, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(dataset, "meta", {**dataset.meta, "md5": md5["batches.meta"]})
    return written


def test_cifar10_is_read_from_the_users_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_cifar10(tmp_path / cifar10.FOLDER, monkeypatch)
    arrays = data.load("cifar10", tmp_path)
    assert arrays.shape == (3, 32, 32) and len(arrays.train_y) == 100 and len(arrays.test_y) == 20
    assert np.array_equal(arrays.train_x[:20].reshape(20, -1), written["data_batch_1"])
    assert np.array_equal(arrays.test_x.reshape(20, -1), written["test_batch"])


def test_cifar10_with_a_wrong_checksum_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / cifar10.FOLDER
    write_cifar10(folder, monkeypatch)
    monkeypatch.setattr(pickle, "load", lambda *a, **k: pytest.fail("unpickled"))
    (folder / "data_batch_2").write_bytes(b"evil")
    with pytest.raises(UsageError, match=r"dataset=cifar10: .*checksum"):
        data.load("cifar10", tmp_path)


def test_missing_files_are_named_with_their_place(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainers.data", "--root", str(tmp_path), "cifar10"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert (
        f"data_batch_1, data_batch_2, data_batch_3, data_batch_4, data_batch_5, test_batch, batches.meta in {tmp_path}"
        in done.stderr
    )
    assert "--download cifar10" in done.stderr


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="data.root="):
        data.prepare("digits", blocked)
