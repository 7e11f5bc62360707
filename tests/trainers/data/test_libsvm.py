"""Features in LIBSVM's format."""

from __future__ import annotations

import bz2
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers import data
from trainers.config import run_config
from trainers.data import libsvm
from trainers.data.arrays import read_rows
from trainers.options import datasets as options


def lines_of(x: np.ndarray, labels: list[str]) -> str:
    rows = [" ".join(f"{column + 1}:{row[column]!r}" for column in np.flatnonzero(row)) for row in x.tolist()]  # type: ignore[call-overload]
    return "".join(f"{label} {row}\n" for label, row in zip(labels, rows, strict=True))


def random_rows(count: int, width: int, share: float) -> np.ndarray:
    random = np.random.RandomState(count)
    return np.where(random.rand(count, width) < share, random.randint(-8, 9, (count, width)) / 8, 0.0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["epsilon", "rcv1"])
def test_a_known_set_is_read(name: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm, "LINES", 7)  # several pieces
    dataset: options.Epsilon | options.RCV1 = options.Epsilon() if name == "epsilon" else options.RCV1()
    monkeypatch.setattr(libsvm, name.upper(), dataclasses.replace(libsvm.find_source(dataset), samples=(31, 14)))
    source = libsvm.find_source(dataset)
    expected = []
    for file, count in ((source.train, 31), (source.test, 14)):
        x = random_rows(count, 60, 0.9 if source.dense else 0.1)
        labels = [("-1", "+1")[i % 3 == 0] for i in range(count)]
        text = lines_of(x, labels).encode()
        (tmp_path / f"{file}.bz2" if packed else tmp_path / str(file)).write_bytes(
            bz2.compress(text) if packed else text
        )
        expected.append((x.astype(np.float32), [int(i % 3 == 0) for i in range(count)]))
    arrays = data.load(dataset, tmp_path)
    assert arrays.shape == ((2000,) if name == "epsilon" else (47236,)) and arrays.classes == 2
    assert hasattr(arrays.train_x, "toarray") == (name == "rcv1")
    for found, y, (x, labels) in (
        (read_rows(arrays.train_x, slice(None)), arrays.train_y, expected[0]),
        (read_rows(arrays.test_x, slice(None)), arrays.test_y, expected[1]),
    ):
        assert np.array_equal(found[:, :60], x) and not found[:, 60:].any()
        assert y.tolist() == labels and y.dtype == np.int64


@pytest.mark.parametrize("dense", [False, True])
def test_a_share_is_the_test_set_and_batches_are_dense(dense: bool, tmp_path: Path) -> None:
    x = random_rows(40, 9, 0.3)
    x[:, 0] = np.arange(1, 41)
    (tmp_path / "train.svm").write_text(lines_of(x, [str(3 * (i % 4)) for i in range(40)]))
    changes = {"dataset": {"name": "libsvm", "test_share": 0.25, "dense": dense}, "batch": {"size": 7}}
    run = run_config.parse(compose_config(workers=2, data={"root": str(tmp_path)}, **changes))
    feeds = [data.build_feed(run, worker, 2) for worker in range(2)]
    assert (feeds[0].shape, feeds[0].classes, feeds[0].samples) == ((9,), 4, 30)
    seen = []
    for parts in (
        [(part.inputs, part.labels) for feed in feeds for part in feed.read_epoch(1)],
        [part for feed in feeds for part in feed.read_test_set()],
    ):
        for inputs, labels in parts:
            assert inputs.dtype == torch.float32 and labels.dtype == torch.int64
            rows = inputs[:, 0].long() - 1
            assert torch.equal(inputs, torch.from_numpy(x)[rows].float()) and torch.equal(labels, rows % 4)
            seen += rows.tolist()
    assert sorted(seen) == list(range(40))


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("+1 1:1\n-1 2:x\n", None, "train.svm: line 2: "),
        ("+1 1:1\n-1 2:1\n-1 2:1\nwhat is this\n", None, "train.svm: line 4: "),
        ("+1 1:1\n-1 0:1\n", None, "train.svm: line 2: "),
        ("+1 2:1 1:1\n-1 2:1\n", None, "train.svm: line 1: "),
        ("+1 1:1\n\n-1 2:1\n", None, "train.svm: line 2: has no sample"),
        ("+1 1:1\n-1 2:inf\n", None, "train.svm: line 2: has a value that is not finite"),
        ("+1 1:1\n-1 2:1e99\n", None, "train.svm: line 2: has a value that is not finite"),
        ("", None, "train.svm: is empty"),
        ("+1 1:1\n+1 2:1\n", None, "train.svm: all labels are alike"),
        ("+1 1:1\n-1 2:1\n", "-1 3:1\n", "test.svm: has index 3; valid is up to 2"),
        ("+1 1:1\n-1 2:1\n", "0 1:1\n", "test.svm: has label 0; valid is one of train.svm's"),
    ],
)
def test_bad_files_are_one_line(train: str, test: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text(train)
    if test:
        (tmp_path / "test.svm").write_text(test)
    with pytest.raises(UsageError) as error:
        data.prepare(options.LibSVM(test="test.svm" if test else None), tmp_path)
    assert str(error.value).startswith(f"dataset=libsvm: {tmp_path / message}") and "\n" not in str(error.value)


def test_lines_are_counted_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm, "LINES", 7)
    (tmp_path / "train.svm").write_text("+1 1:1\n" * 16 + "-1 1:x\n")
    with pytest.raises(UsageError, match=r"train.svm: line 17: "):
        data.prepare(options.LibSVM(), tmp_path)


def test_files_that_are_missing_or_torn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dataset=rcv1: not found: rcv1_train.binary, rcv1_test.binary in /"):
        data.prepare(options.RCV1(), tmp_path)
    packed = bz2.compress(("+1 1:1\n-1 2:1\n" * 5000).encode())
    for content in (packed[:-9], b"no archive"):
        (tmp_path / "train.svm.bz2").write_bytes(content)
        with pytest.raises(UsageError, match=r"dataset=libsvm: .*train.svm.bz2: cannot be unpacked: "):
            data.prepare(options.LibSVM(), tmp_path)
    for name in ("rcv1_train.binary", "rcv1_test.binary"):
        (tmp_path / name).write_text("+1 1:1\n-1 2:1\n")
    with pytest.raises(UsageError, match=r"rcv1_train.binary: has 2 samples instead of 20,242; valid is the published"):
        data.prepare(options.RCV1(), tmp_path)
    (tmp_path / "train.svm").write_text("+1 1:1\n-1 2:1\n")
    with pytest.raises(UsageError, match=r"dataset.test_share=0.2: valid is a share that leaves 2 samples"):
        data.prepare(options.LibSVM(), tmp_path)
