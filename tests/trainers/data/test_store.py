"""Prepared data sets: built once, verified, built again when they are damaged or out of date."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gradsweep.errors import UsageError
from tests.conftest import ROOT
from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from trainers import data
from trainers.config import groups, run_config
from trainers.data import store
from trainers.data.__main__ import main, prepare_runs
from trainers.data.arrays import from_prepared, read_rows
from trainers.options import datasets as options
from trainers.rules.resolve import resolve

ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def test_digits_are_the_real_ones_in_a_fixed_stratified_split(tmp_path: Path) -> None:
    arrays = data.load(options.Digits(), tmp_path)
    assert arrays.train_x.shape == (1437, 1, 8, 8) and arrays.test_x.shape == (360, 1, 8, 8)
    assert isinstance(arrays.train_x, np.memmap)
    assert arrays.classes == 10 and arrays.train_x.max() == 16
    shares = [np.bincount(labels, minlength=10) / len(labels) for labels in (arrays.train_y, arrays.test_y)]
    assert np.abs(shares[0] - shares[1]).max() < 0.005
    # the split is part of what a signature stands for: it must not change with a version of scikit-learn
    digest = hashlib.sha256(arrays.train_x.tobytes() + arrays.train_y.tobytes() + arrays.test_y.tobytes())
    assert digest.hexdigest()[:16] == "30ffde501e6421ea"


@pytest.mark.parametrize("name", [f"{name}.npy" for name in ARRAYS] + ["meta.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_damage_is_noticed_and_mended(tmp_path: Path, name: str, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    prepared = random_arrays(20, 10).to_prepared()
    path = store.ensure(tmp_path, "some", lambda: prepared)
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
    assert store.find_damage(path) is not None
    with caplog.at_level(logging.WARNING):
        store.ensure(tmp_path, "some", lambda: prepared)
    assert "built again" in caplog.text
    assert store.find_damage(path) is None
    assert np.array_equal(store.load(path).arrays["train_x"], prepared.arrays["train_x"])


def test_what_is_in_order_is_not_built_again(tmp_path: Path) -> None:
    store.ensure(tmp_path, "some", lambda: random_arrays(5).to_prepared())
    store.ensure(tmp_path, "some", lambda: pytest.fail("built again"))


def test_what_was_made_from_files_is_built_again_when_they_change(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    source.write_text("one")
    folder.mkdir()
    built = []

    def build() -> store.Prepared:
        built.append(1)
        return random_arrays(5).to_prepared([source, folder])

    for expected, change in (
        (1, lambda: None),
        (1, lambda: None),
        (2, lambda: source.write_text("other")),
        (3, lambda: os.utime(source, (1, 1))),
        (4, lambda: (os.utime(folder, (1, 1)), (folder / "new").touch())),
        (4, source.unlink),  # which needs not be kept
    ):
        change()
        store.ensure(tmp_path, "some", build)
        assert len(built) == expected


def test_many_at_once_build_once(tmp_path: Path) -> None:
    built = []

    def build() -> store.Prepared:
        built.append(1)
        return random_arrays(5).to_prepared()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: store.ensure(tmp_path, "some", build), range(8)))) == 1
    assert built == [1]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_checksum", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.ensure(tmp_path, "some", lambda: random_arrays(5).to_prepared())
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [".some.lock"]


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="data.root="):
        data.prepare(options.Digits(), blocked)


def test_every_data_set_can_be_made_and_kept_apart() -> None:
    assert set(data.SOURCES) == set(options.DATASETS.values()) - {options.Custom}
    names = [
        options.name_prepared_arrays("synthetic", options.Synthetic()),
        options.name_prepared_arrays("synthetic", options.Synthetic(height=33)),
        options.name_prepared_arrays("synthetic", options.Synthetic(noise=5)),
        options.name_prepared_arrays("libsvm", options.LibSVM(train="a/b")),
        options.name_prepared_arrays("libsvm", options.LibSVM(train="a_b")),
        options.name_prepared_arrays("libsvm", options.LibSVM(train="a" * 300)),
        options.name_prepared_arrays("libsvm", options.LibSVM(train="a" * 301)),
    ]
    assert len(set(names)) == len(names) and all("/" not in name and len(name) < 250 for name in names)
    assert options.name_prepared_arrays("cifar10", options.Cifar10()) == "cifar10"
    assert options.name_prepared_arrays("cifar10", options.Cifar10(flip=False, cutout=8)) == "cifar10"
    assert options.name_prepared_arrays("ptb", options.PennTreebank(bptt=3, evaluate="valid")) == "ptb"


SMALL = options.Synthetic(channels=2, height=9, width=6, classes=7, train=700, test=140)


def test_synthetic_images_are_deterministic_and_learnable(tmp_path: Path) -> None:
    arrays = data.load(SMALL, tmp_path)
    assert arrays.shape == (2, 9, 6) and arrays.classes == 7
    assert np.bincount(arrays.train_y).tolist() == [100] * 7 and np.bincount(arrays.test_y).tolist() == [20] * 7
    train, test = (np.asarray(x).reshape(len(x), -1).astype(float) for x in (arrays.train_x, arrays.test_x))
    means = np.stack([train[arrays.train_y == label].mean(0) for label in range(7)])
    nearest = ((test[:, None] - means) ** 2).sum(2).argmin(1)
    assert (nearest == arrays.test_y).mean() > 0.9
    assert len(np.unique(train, axis=0)) == 700 and not (train[:140] == test).all(1).any(), "no image twice"
    digest = hashlib.sha256(np.asarray(arrays.train_x).tobytes() + np.asarray(arrays.test_x).tobytes())
    assert digest.hexdigest()[:16] == "7c2a08c71a0e3eb4", "a part of what a signature stands for"
    larger = data.load(options.Synthetic(train=3, test=2, height=40, width=50, classes=1000), tmp_path)
    assert larger.shape == (3, 40, 50) and len(larger.train_y) == 3


def test_synthetic_text_is_deterministic_and_learnable(tmp_path: Path) -> None:
    dataset = options.SyntheticText(vocabulary=11, branches=3, train=40_000, test=4_000)
    prepared = data.map_arrays(dataset, tmp_path)
    train, test = (np.asarray(prepared.arrays[part]) for part in ("train", "test"))
    assert len(train) == 40_000 and len(prepared.arrays["valid"]) == len(test) == 4_000
    assert prepared.facts["classes"] == 11 and train.max() == 10
    assert not np.array_equal(test, prepared.arrays["valid"])
    counts = np.zeros((11, 11, 11))
    np.add.at(counts, (train[:-2], train[1:-1], train[2:]), 1)
    assert ((counts > 0).sum(2) <= 3).all(), "three tokens may follow"
    guesses = counts.argmax(2)[test[:-2], test[1:-1]]
    assert (guesses == test[2:]).mean() == pytest.approx(4 / 7, abs=0.03)
    by_one = counts.sum(0).argmax(1)[test[1:-1]]
    assert (by_one == test[2:]).mean() < 0.45, "one token alone does not tell"
    assert hashlib.sha256(train.tobytes()).hexdigest()[:16] == "930696a12ad38c6e", (
        "a part of what a signature stands for"
    )


def test_features_come_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text("+1 1:0.5 4:2\n-1\n-1 2:1 # why\n+1 1:-1 2:-2 3:-3 4:-4\n")
    (tmp_path / "test.svm").write_text("-1 4:1\n")
    expected = np.array([[0.5, 0, 0, 2], [0, 0, 0, 0], [0, 1, 0, 0], [-1, -2, -3, -4]], dtype=np.float32)
    for dense in (False, True):
        arrays = data.load(options.LibSVM(test="test.svm", dense=dense), tmp_path)
        assert arrays.shape == (4,) and arrays.classes == 2
        for rows in (slice(0, 4), slice(1, 3), np.array([3, 0, 3]), np.array([], dtype=int), slice(2, 2)):
            found = read_rows(arrays.train_x, rows)
            assert found.dtype == np.float32 and np.array_equal(found, expected[rows])
        assert arrays.train_y.tolist() == [1, 0, 0, 1] and arrays.test_y.tolist() == [0]
        assert np.array_equal(read_rows(arrays.test_x, slice(None)), [[0, 0, 0, 1]])


def run_of(root: Path, **changes: object) -> dict[str, object]:
    changes = {"data": {"root": str(root)}, **changes}
    return json.loads(json.dumps(resolve(compose_config(**changes))))  # as the launcher hands it over


@pytest.mark.parametrize("size", [1437, 1438, 5000])
def test_a_batch_may_be_larger_than_the_set(tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int) -> None:
    run = run_of(tmp_path, batch={"size": size}, workers=4)
    prepare_runs([run, run])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (size > 1437) and all(
        f"{size} samples (workers=4) is more than the 1437" in one for one in said
    )
    shares = [list(data.build_feed(run_config.parse(run), rank, 4).read_epoch(1)) for rank in range(4)]
    assert all(len(batches) == 1 and batches[0].total == 1437 for batches in shares)
    assert sum(len(batches[0].labels) for batches in shares) == 1437


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": {"cutout": 9}}, "dataset.cutout=9: valid is an integer up to 8"),
        (
            {"model": {"name": "torchvision", "arch": "squeezenet1_1"}},
            "model.input_size=null: valid is a larger one, .*squeezenet1_1 cannot take images of 8x8",
        ),
        ({"dataset": {"name": "cifar100"}}, "dataset=cifar100: not found: train, test, meta in /.*/cifar-100-python;"),
        (
            {"model": {"name": "resnet18"}},
            "model.input_size=null: valid is an integer from 16 up: model=resnet18 takes",
        ),
        (
            {"model": {"name": "torchvision", "arch": "alexnet"}},
            "model.input_size=null: valid is a larger one, such as 224: model.arch=alexnet cannot take images of 8x8",
        ),
    ],
)
def test_what_does_not_fit_the_data_is_one_line_before_a_start(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    good = run_of(tmp_path)
    with pytest.raises(UsageError, match=message) as error:
        prepare_runs([good, run_of(tmp_path, **changes)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("model", [{"arch": "squeezenet1_1", "input_size": 32}, {"arch": "regnet_x_400mf"}], ids=str)
def test_what_fits_or_cannot_be_tried_is_left_to_the_ranks(tmp_path: Path, model: dict[str, object]) -> None:
    prepare_runs([run_of(tmp_path, model={"name": "torchvision", **model})])


@pytest.mark.parametrize(
    ("takes", "changes", "message"),
    [
        (
            None,
            {"dataset": "ptb"},
            "model=mlp with dataset=ptb: the model takes images or features, the data set has text; valid is ",
        ),
        (
            ("images",),
            {"dataset": "rcv1"},
            "model=mlp with dataset=rcv1: the model takes images, the data set has features",
        ),
        (("text",), {}, "valid is dataset=wikitext2,ptb,text,synthetic_text,pydoc,tinyshakespeare, or another model"),
        (
            ("text",),
            {"dataset": "ptb", "partition": {"scheme": "label"}},
            "partition.scheme=label with dataset=ptb: a text is not sorted into classes; valid is iid or contiguous",
        ),
        (
            None,
            {"partition": {"scheme": "label", "reshuffle": True}},
            "partition.reshuffle=True: valid is false or null",
        ),
        (
            None,
            {"partition": {"scheme": "dirichlet", "alpha": 0}},
            "partition.alpha=0: valid is a number from 0.001",
        ),
    ],
)
def test_what_cannot_be_learned_from(
    takes: tuple[str, ...] | None, changes: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if takes:
        monkeypatch.setattr(groups.GROUPS["model"]["mlp"], "takes", takes, raising=False)
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("model", "name"), [("resnet", "cifar10"), ("logistic", "epsilon"), ("lstm", "ptb")])
def test_what_can_be_learned_from(model: str, name: str) -> None:
    resolve(compose_config(model=model, dataset=name))


@pytest.mark.thorough
def test_the_launcher_hands_over_the_configs_of_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainers.data", "--runs"],
        cwd=ROOT, input=json.dumps([run_of(tmp_path)]), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert from_prepared(store.load(tmp_path / "prepared" / "digits")).shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "cifar10",
            "dataset=cifar10: not found: data_batch_1, data_batch_2, data_batch_3, data_batch_4, data_batch_5, "
            "test_batch, batches.meta in {root}/cifar-10-batches-py; valid is an extracted cifar-10-python.tar.gz "
            "there (or data.root=DIR where it is), which data.download=true or "
            "`python -m trainers.data --root {root} --download cifar10` fetches\n",
        ),
        ("cifar11", "NAME=cifar11: did you mean cifar10? valid is one of the "),
        ("", "NAME: missing; valid is one of the "),
    ],
)
def test_the_command_by_hand(
    name: str, lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["data", "--root", str(tmp_path), *name.split()])
    assert main() == 2
    error = capsys.readouterr().err
    assert error.startswith(lines.format(root=tmp_path)) and error.count("\n") == 1
