"""The user's own data: `dataset=custom`."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradsweep import signature, targets
from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers import data
from trainers.config import run_config
from trainers.data import own_feed
from trainers.data.__main__ import prepare_runs
from trainers.data.feeds import IGNORED, Feed
from trainers.rules.resolve import resolve

NUMBERS = itertools.count()

BEGIN = """
import numpy as np
import random
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset
"""

VECTORS = """
def build(train=23, test=9, classes=3):
    generator = np.random.RandomState(0)
    sizes = (train, test)
    return [(generator.rand(n, 4), np.arange(n) % classes) for n in sizes]
"""

NOISY = """
class Noisy(Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, row):
        noise = torch.rand(3, 8, 8) + float(np.random.rand()) + random.random()
        return noise + 10 * row, row % 5

def build():
    return Noisy(23), Noisy(9)
"""

TEXTS = """
class Texts(Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, row):
        return {"words": list(range(row % 4 + 1)), "labels": row % 2}

def pad(samples):
    longest = max(len(sample["words"]) for sample in samples)
    words = torch.tensor([sample["words"] + [0] * (longest - len(sample["words"])) for sample in samples])
    mask = torch.tensor([[1.0] * len(sample["words"]) + [0.0] * (longest - len(sample["words"])) for sample in samples])
    return {"words": words, "mask": mask, "labels": torch.tensor([sample["labels"] for sample in samples])}

def build():
    return Texts(10), Texts(6)
"""

Own = Callable[[str], str]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Own]:
    """Write a module of the user into the working directory; its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv(targets.USER_CODE, raising=False)
    written = []

    def write(text: str) -> str:
        written.append(f"own_data_{next(NUMBERS)}")
        (tmp_path / f"{written[-1]}.py").write_text(BEGIN + text)
        return written[-1]

    yield write
    for name in written:
        sys.modules.pop(name, None)


def configure(module: str, /, **changes: Any) -> dict[str, Any]:
    """The config of a run with what `build` of a module returns; `changes` may be options of the data set."""
    dataset = {"name": "custom", "target": f"{module}:build"}
    dataset |= {key: changes.pop(key) for key in ("args", "collate", "classes", "target") if key in changes}
    changes = {"batch": {"size": 4}, "workers": 1, **changes}
    return compose_config(dataset=dataset, **changes)


def feed_of(module: str, /, worker: int = 0, **changes: Any) -> Feed:
    run = run_config.parse(configure(module, **changes))
    return data.build_feed(run, worker, run.workers)


def epoch_of(feed: Feed, epoch: int, start: int = 0) -> list[tuple[Any, Any, int]]:
    return [(batch.inputs, batch.labels, batch.total) for batch in feed.read_epoch(epoch, start)]


def same(one: Any, other: Any) -> bool:
    """Whether two structures have the same tensors, to the bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def explain(module: str, /, **changes: Any) -> str:
    """What the launcher says about a run before it starts, in one line."""
    with pytest.raises(UsageError) as error:
        prepare_runs([configure(module, **changes)])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_arrays_are_read_as_our_own(own: Own) -> None:
    name = own(VECTORS)
    feed = feed_of(name, workers=1)
    assert (feed.shape, feed.kind, feed.task, feed.classes, feed.samples) == ((4,), "features", "classification", 3, 23)
    alone = epoch_of(feed, 2)
    assert [total for *_, total in alone] == [4, 4, 4, 4, 4, 3]
    assert alone[0][0].dtype == torch.float32 and alone[0][1].dtype == torch.int64
    steps = zip(*(epoch_of(feed_of(name, worker, workers=3), 2) for worker in range(3)), strict=True)
    for step, (inputs, labels, total) in zip(steps, alone, strict=True):
        assert torch.equal(torch.cat([part[0] for part in step]), inputs)
        assert torch.equal(torch.cat([part[1] for part in step]), labels)
        assert {part[2] for part in step} == {total}
    expected, test_labels = next(iter(feed.read_test_set()))
    assert torch.equal(test_labels, torch.arange(9) % 3) and expected.shape == (9, 4)


def test_a_target_is_called_with_its_arguments(own: Own) -> None:
    feed = feed_of(own(VECTORS), args={"train": 40, "classes": 7})
    assert (feed.samples, feed.classes) == (40, 7)
    assert feed_of(own(VECTORS), classes=12).classes == 12


def test_images_of_bytes_are_normalised_as_ours(own: Own) -> None:
    name = own(
        """
def build():
    images = np.arange(20 * 3 * 8 * 8, dtype=np.uint8).reshape(20, 3, 8, 8)
    return (torch.from_numpy(images), torch.arange(20) % 4), (images[:6], np.arange(6).reshape(6, 1) % 4)
"""
    )
    feed = feed_of(name, batch={"size": 20})
    images = epoch_of(feed, 1)[0][0]
    assert feed.kind == "images" and feed.classes == 4
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(images.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert next(iter(feed.read_test_set()))[1].tolist() == [0, 1, 2, 3, 0, 1]


def test_integers_stay_integers_and_real_targets_real(own: Own) -> None:
    name = own(
        """
def build():
    words = np.arange(30, dtype=np.int32).reshape(10, 3)
    return (words, np.linspace(0, 1, 20).reshape(10, 2)), (words[:4], np.zeros((4, 2)))
"""
    )
    feed = feed_of(name)
    inputs, labels, _ = epoch_of(feed, 1)[0]
    assert inputs.dtype == torch.int64 and labels.dtype == torch.float32 and labels.shape == (4, 2)
    assert (feed.kind, feed.task, feed.classes) == ("integers", "regression", 2)


def test_sparse_arrays(own: Own) -> None:
    name = own(
        """
from scipy import sparse
def build():
    matrix = sparse.random(20, 50, 0.1, "coo", random_state=0)
    return (matrix, np.arange(20) % 2), (matrix, np.arange(20) % 2)
"""
    )
    feed = feed_of(name, batch={"size": 20})
    from scipy import sparse

    dense = sparse.random(20, 50, 0.1, "coo", random_state=0).toarray()
    inputs, labels = next(iter(feed.read_test_set()))
    assert np.allclose(inputs.numpy(), dense) and feed.shape == (50,) and labels.tolist() == [0, 1] * 10


def _keys() -> list[int]:
    """The state of numpy's global generator."""
    state: Any = np.random.get_state()
    return list(state[1])


@pytest.mark.thorough
def test_samples_are_the_same_on_any_worker_in_any_process_and_after_a_resume(own: Own) -> None:
    """Also where a data set draws random numbers; and the global generators are as they were."""
    name = own(NOISY)
    feed = feed_of(name)
    assert (feed.shape, feed.kind, feed.task, feed.classes) == ((3, 8, 8), "images", "classification", 5)
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    states = torch.get_rng_state(), _keys(), random.getstate()
    alone, tested = epoch_of(feed, 2), list(feed.read_test_set())
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[2]
    assert _keys() == states[1]
    rows = torch.cat([inputs.amin((1, 2, 3)) // 10 for inputs, *_ in alone]).long()
    assert sorted(rows.tolist()) == list(range(23)) and rows.tolist() != list(range(23))
    assert torch.equal(torch.cat([labels for _, labels, _ in alone]), rows % 5)
    assert not same(alone, epoch_of(feed, 1)) and not same(alone, epoch_of(feed_of(name, seed=1), 2))
    assert same(alone[3:], epoch_of(feed, 2, 3)), "an epoch goes on from its middle"
    for loaders in (1, 2):
        loaded = feed_of(name, data={"loaders": loaders})
        next(loaded.read_epoch(1))  # an epoch that is left in its middle
        assert same(alone, epoch_of(loaded, 2)) and same(tested, list(loaded.read_test_set()))
        assert same(alone[4:], epoch_of(loaded, 2, 4))
        rest = loaded.read_epoch(2)
        next(rest)
        assert same(tested, list(loaded.read_test_set())), "an evaluation within an epoch"
        assert len(list(rest)) == len(alone) - 1
        loaded.close()
    steps = zip(*(epoch_of(feed_of(name, worker, workers=3), 2) for worker in range(3)), strict=True)
    for step, (inputs, *_) in zip(steps, alone, strict=True):
        assert torch.equal(torch.cat([part[0] for part in step]), inputs)
    parts = [part for worker in range(3) for part in feed_of(name, worker, workers=3).read_test_set()]
    assert torch.equal(torch.cat([inputs for inputs, _ in parts]), torch.cat([inputs for inputs, _ in tested]))
    whole = list(feed_of(name, 2, workers=3).read_test_set(whole=True))
    assert torch.equal(torch.cat([labels for _, labels in whole]), torch.arange(9) % 5)


def test_a_split_that_a_target_draws_is_the_same_for_all(own: Own) -> None:
    name = own(
        """
def build():
    order = torch.randperm(30)
    whole = TensorDataset(torch.arange(30.0).reshape(30, 1), torch.arange(30) % 3)
    return Subset(whole, order[:20].tolist()), Subset(whole, order[20:].tolist())
"""
    )

    def tested() -> list[float]:
        return torch.cat([inputs for inputs, _ in feed_of(name).read_test_set()]).flatten().tolist()

    torch.manual_seed(1)
    first = tested()
    torch.manual_seed(2)
    assert first == tested() != sorted(first)


def test_texts_of_dicts_with_an_own_collate_function(own: Own) -> None:
    name = own(TEXTS)
    feeds = [feed_of(name, worker, collate=f"{name}:pad", workers=3, batch={"size": 3}) for worker in range(3)]
    assert (feeds[0].shape, feeds[0].kind, feeds[0].task, feeds[0].classes) == ((), "several", "classification", 2)
    steps = list(zip(*(epoch_of(feed, 1) for feed in feeds), strict=True))
    assert [step[0][2] for step in steps] == [3, 3, 3, 1]
    for step in steps:
        for inputs, labels, _ in step:
            assert set(inputs) == {"words", "mask"} and len(inputs["words"]) == len(inputs["mask"]) == len(labels)
            assert inputs["words"].dtype == labels.dtype == torch.int64 and inputs["mask"].dtype == torch.float32
    assert sorted(len(labels) for _, labels, _ in steps[-1]) == [0, 0, 1]
    assert sum(float(inputs["mask"].sum()) for step in steps for inputs, *_ in step) == sum(
        row % 4 + 1 for row in range(10)
    )


def test_a_sample_of_more_than_two_has_several_inputs(own: Own) -> None:
    name = own(
        """
def build():
    sets = [TensorDataset(torch.rand(n, 2), torch.rand(n, 3, dtype=torch.float64), torch.rand(n)) for n in (8, 4)]
    return tuple(sets)
"""
    )
    feed = feed_of(name)
    inputs, labels, _ = epoch_of(feed, 1)[0]
    assert [tuple(each.shape) for each in inputs] == [(4, 2), (4, 3)] and inputs[1].dtype == torch.float32
    assert (feed.kind, feed.task, feed.classes, labels.dtype) == ("several", "regression", 1, torch.float32)


def test_labels_of_a_language_may_be_ignored(own: Own) -> None:
    name = own(
        f"""
def build():
    words = torch.arange(40).reshape(8, 5) % 11
    labels = words.clone()
    labels[:, 3:] = {IGNORED}
    return TensorDataset(words, labels), TensorDataset(words, labels)
"""
    )
    feed = feed_of(name)
    assert (feed.kind, feed.task, feed.classes) == ("integers", "language", 11)


LABELLED = """
class Labelled(Dataset):
    def __init__(self, told=True, transform=False):
        self.rows = [5, 3, 1, 0, 2, 4] * 4
        self.transform = transform
        if told:
            self.targets = self.rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, row):
        label = self.rows[row]
        return torch.full((2,), float(label)), label // 2 if self.transform else label

def build(told=True, transform=False):
    whole = Labelled(told, transform)
    return ConcatDataset([Subset(whole, range(12)), Subset(whole, range(12, 24))]), whole
"""


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("transform", [True, False])
def test_labels_are_told_or_read(own: Own, told: bool, transform: bool) -> None:
    """A target_transform counts, whatever the data set tells."""
    name = own(LABELLED)
    given: dict[str, Any] = {"args": {"told": told, "transform": transform}, "workers": 3}
    classes = 3 if transform else 6
    assert feed_of(name, **given).classes == classes
    seen = [
        set(torch.cat([labels for _, labels, _ in epoch_of(feed, 1)]).tolist())
        for feed in (feed_of(name, worker, partition={"scheme": "label"}, **given) for worker in range(3))
    ]
    per_worker = classes // 3
    assert seen == [set(range(first, first + per_worker)) for first in range(0, classes, per_worker)]


def test_many_labels_are_not_read(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_feed, "READ_FOR_LABELS", 23)
    name = own(LABELLED)
    given: dict[str, Any] = {"args": {"told": False}}
    assert explain(name, **given).startswith("dataset.classes=null: valid is the number of classes: with 24 samples")
    assert feed_of(name, classes=6, **given).classes == 6
    found = explain(name, classes=6, partition={"scheme": "label"}, **given)
    assert found.startswith("partition.scheme=label: valid is iid or contiguous, or a training set with an attribute")


def test_arrays_have_all_partitions(own: Own) -> None:
    name = own(VECTORS)
    for scheme in ("label", "dirichlet", "contiguous"):
        labels = [
            torch.cat(
                [labels for _, labels, _ in epoch_of(feed_of(name, worker, workers=3, partition={"scheme": scheme}), 1)]
            )
            for worker in range(3)
        ]
        assert torch.bincount(torch.cat(labels)).tolist() == [8, 8, 7]
    name = own("def build():\n    return [(np.zeros((9, 2)), np.arange(9.0)) for _ in range(2)]")
    assert explain(name, partition={"scheme": "label"}) == (
        "partition.scheme=label: valid is iid or contiguous with targets of dataset=custom that are no classes"
    )


WRONG = {
    "no pair": ("def build(): return [1, 2, 3]", "it returns a list of 3"),
    "no pair at all": ("def build(): return None", "it returns a NoneType"),
    "an array without targets": (
        "def build(): return np.zeros((4, 2)), np.zeros((4, 2))",
        "the training set is a ndarray",
    ),
    "lists": ("def build(): return ([1.0], [0]), ([1.0], [0])", "the training set is a tuple"),
    "dicts": ("def build(): return {'x': [1.0]}, {'x': [1.0]}", "the training set is a dict"),
    "raises": ("def build(): raise ValueError('no such file: a.bin')", "ValueError: no such file: a.bin (own_data_"),
    "exits": ("def build(): raise SystemExit(3)", "SystemExit: 3"),
    "no samples": ("def build(): return TensorDataset(torch.zeros(0, 2)), [1]", "the training set has 0"),
    "no test samples": (
        "def build(): return [(torch.zeros(2, 1), torch.zeros(1)), (torch.zeros(2, 1), torch.zeros(1))], []",
        "the test set has 0",
    ),
    "no samples in arrays": (
        "def build(): return (np.zeros((3, 2)), np.zeros(3)), (np.zeros((0, 2)), np.zeros(0))",
        "the test set has 0",
    ),
    "an iterable data set": (
        """
class Stream(IterableDataset):
    def __iter__(self): return iter([1])
def build(): return Stream(), Stream()""",
        "the training set is a Stream, which can only be iterated",
    ),
    "no length": (
        """
class Endless(Dataset):
    def __getitem__(self, row): return row
def build(): return Endless(), Endless()""",
        "that of the training set raises TypeError",
    ),
    "other lengths": (
        "def build(): return [(np.zeros((3, 2)), np.zeros(4)) for _ in range(2)]",
        "the training set has 3 inputs and 4 targets",
    ),
    "texts for targets": (
        "def build(): return [(np.zeros((3, 2)), np.array(list('abc'))) for _ in range(2)]",
        "targets of the training set have dtype <U1",
    ),
    "single numbers": ("def build(): return [(np.zeros(3), np.zeros(3)) for _ in range(2)]", "have one"),
    "other shapes": (
        "def build(): return [(np.zeros((3, n)), np.zeros(3)) for n in (2, 3)]",
        "inputs to train have 2 of float64, to test 3 of float64",
    ),
    "negative labels": ("def build(): return [(np.zeros((3, 2)), np.arange(-1, 2)) for _ in range(2)]", "is -1"),
    "height first": (
        "def build(): return [(np.zeros((3, 8, 8, 3), dtype=np.uint8), np.arange(3)) for _ in range(2)]",
        "channels x height x width for images of uint8, not 8x8x3",
    ),
    "nan in arrays": (
        """
def build():
    x = np.zeros((30, 2))
    x[17, 1] = np.nan
    return (x, np.arange(30) % 2), (np.zeros((2, 2)), np.arange(2))""",
        "sample 17 of the training set has nan or inf",
    ),
    "inf in targets": (
        "def build(): return [(np.zeros((3, 2)), np.array([0.0, 1.0, np.inf])) for _ in range(2)]",
        "sample 2 of the training set has nan or inf",
    ),
    "a sample that raises": (
        """
class Broken(TensorDataset):
    def __getitem__(self, row):
        if row == 2: raise KeyError("two")
        return super().__getitem__(row)
def build():
    sets = Broken(torch.zeros(4, 2), torch.arange(4)), TensorDataset(torch.zeros(4, 2), torch.arange(4))
    return sets""",
        "sample 2 of the training set raises KeyError: 'two' (own_data_",
    ),
    "samples without targets": (
        "def build(): return TensorDataset(torch.zeros(4, 2)), TensorDataset(torch.zeros(4, 2))",
        "a batch is a list of 1",
    ),
    "dicts without labels": (
        "def build(): return [[{'x': 1.0, 'y': 2}] * 4] * 2",
        "one of labels, label, targets, target: they have x, y",
    ),
    "samples of text": ("def build(): return [[('abc', 0)] * 4] * 2", "there is a tuple of str"),
    "no tensors": ("def build(): return [[(object(), 0)] * 4] * 2", "found <class 'object'>"),
    "unequal shapes": (
        "def build(): return [[(torch.zeros(2 + n), 0) for n in range(4)]] * 2",
        "stack expects each tensor to be equal size",
    ),
    "nan in samples": (
        "def build(): return [[(torch.tensor([float('nan') if n == 2 else 0.0]), n) for n in range(4)]] * 2",
        "inputs of sample 2 of the training set have nan or inf",
    ),
    "other kinds": (
        "def build(): return [(torch.zeros(2), 0)] * 4, [(torch.zeros(2), 0.5)] * 4",
        "features for classification to train, features for regression to test",
    ),
}
"""What a target can do wrong, and words of the line about it."""


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_one_line_before_anything_starts(own: Own, fault: str) -> None:
    code, words = WRONG[fault]
    name = own(code)
    found = explain(name)
    assert found.startswith(f"dataset.target={name}:build: valid is ") and words in found, found


def test_options_that_are_wrong(own: Own) -> None:
    name = own(VECTORS + "\nnumber = 3\n")
    assert explain(name, classes=2) == "dataset.classes=2: valid is an integer from 3 up: there is a label 2"
    assert explain(name, collate=f"{name}:build").endswith("null with a target that returns arrays")
    assert explain(name, collate=f"{name}:number").startswith(f"dataset.collate={name}:number: valid is a function")
    assert explain(name, target="no_such_module_of_mine:build").startswith("dataset.target=no_such_module_of_mine:")
    assert explain(name, target=f"{name}:biuld").startswith(f"dataset.target={name}:biuld: did you mean build?")
    assert explain(name, args={"trian": 3}).startswith("dataset.args.trian=3: did you mean train?")
    assert explain(name, model={"name": "lstm"}).startswith("model=lstm takes text")
    for option, value in (("target", "no target"), ("collate", "no target"), ("classes", 1)):
        with pytest.raises(UsageError, match=rf"dataset\.{option}={value}: valid is "):
            resolve(configure(name, **{option: value}))
    with pytest.raises(UsageError, match=r"^dataset\.target: missing with dataset=custom; valid is package"):
        resolve(configure(name, target=""))
    real = own("def build():\n    return [(np.zeros((9, 2)), np.arange(9.0)) for _ in range(2)]")
    assert explain(real, classes=4) == "dataset.classes=4: valid is null with targets that are real numbers"


def test_several_tensors_need_a_model_of_the_users(own: Own) -> None:
    name = own(TEXTS)
    assert explain(name, collate=f"{name}:pad").startswith(
        "model=mlp takes images or features, the data set has several"
    )


def test_collate_functions_that_are_wrong(own: Own) -> None:
    name = own(
        NOISY
        + """
def fails(samples): raise IndexError("no")
def half(samples): return torch.zeros(len(samples) // 2 + 1, 2), torch.zeros(len(samples), dtype=torch.long)
def nothing(samples): return None
short = lambda samples: (torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples]))
"""
    )
    starts = f"dataset.collate={name}:{{}}: valid is ".format
    found = explain(name, collate=f"{name}:fails")
    assert found.startswith(starts("fails")) and "it raises IndexError: no (own_data_" in found
    found = explain(name, collate=f"{name}:half", classes=5)
    assert found.startswith(starts("half")) and "counts samples, here 4: they have 3x2" in found
    assert explain(name, collate=f"{name}:nothing").startswith(starts("nothing"))
    prepare_runs([configure(name, collate=f"{name}:short")])
    found = explain(name, collate=f"{name}:short", data={"loaders": 2})
    assert found.startswith(starts("short")) and "that can be pickled for data.loaders=2, or data.loaders=0" in found


def test_data_sets_that_cannot_be_pickled(own: Own) -> None:
    name = own(
        NOISY
        + "\nclass Local(Noisy):\n    f = None\ndef locked():\n    a = Noisy(9)\n    a.f = lambda: 0\n    return a, a"
    )
    prepare_runs([configure(name, target=f"{name}:locked")])
    found = explain(name, target=f"{name}:locked", data={"loaders": 1})
    assert found.startswith(f"dataset.target={name}:locked: valid is data sets that can be pickled for data.loaders=1")


@pytest.mark.thorough
@pytest.mark.parametrize("loaders", [0, 1])
def test_what_shows_later_is_the_reason_of_the_run(own: Own, loaders: int, capfd: pytest.CaptureFixture[str]) -> None:
    name = own(
        """
class Late(Dataset):
    def __init__(self, fault): self.fault = fault
    def __len__(self): return 300
    def __getitem__(self, row):
        fault = self.fault if row == 150 else ""
        if fault == "raises": raise OSError("gone")
        return torch.full((2,), float("inf") if fault == "inf" else 1.0), 7 if fault == "label" else 0

def build(fault): return Late(fault), Late("")
"""
    )
    for fault, words in (
        (
            "raises",
            r"valid is data whose samples can be read: sample 150 of the training set raises OSError: gone \(own_data_",
        ),
        ("inf", "valid is finite numbers: inputs of sample 150 of the training set have nan or inf"),
        ("label", r"valid is labels from 0 to 2 \(dataset.classes=3\): sample 150 of the training set has 7"),
    ):
        feed = feed_of(name, args={"fault": fault}, classes=3, data={"loaders": loaders})
        with pytest.raises(UsageError, match=f"^dataset.target={name}:build: {words}"):
            epoch_of(feed, 1)
        feed.close()
    assert "OSError: gone" in capfd.readouterr().err, "with its traceback in the log"


@pytest.mark.thorough
def test_late_nan_in_arrays(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    name = own(WRONG["nan in arrays"][0])
    with pytest.raises(UsageError, match="valid is finite numbers: sample 17 of the training set has nan or inf"):
        epoch_of(feed_of(name), 1)
    with pytest.raises(UsageError, match="sample 17 of the training set"):
        epoch_of(feed_of(name), 3, 0)


def test_runs_of_a_race_share_the_data(own: Own) -> None:
    name = own(VECTORS + "\ncalls = []\nplain = build\ndef build():\n    calls.append(1)\n    return plain()\n")
    feeds = [feed_of(name), feed_of(name, seed=1)]
    calls = sys.modules[name].calls
    assert len(calls) == 1 and len(feeds) == 2
    del feeds
    feed_of(name)
    assert len(calls) == 2, "but not runs one after the other"


def test_the_launcher_calls_a_target_once_for_all_runs(own: Own, capfd: pytest.CaptureFixture[str]) -> None:
    name = own(
        VECTORS
        + "\ncalls = []\nplain = build\ndef build():\n    print('loading')\n    calls.append(1)\n    return plain()\n"
    )
    prepare_runs([configure(name, workers=workers, model=model) for workers in (1, 2) for model in ("mlp", "logistic")])
    assert len(sys.modules[name].calls) == 1
    assert capfd.readouterr().out == "", "stdout is the launcher's"


def test_target_and_arguments_are_in_the_signature(own: Own) -> None:
    configs = [
        configure("one"),
        configure("other"),
        configure("one", args={"root": "a"}),
        configure("one", collate="one:pad"),
        configure("one", classes=3),
    ]
    assert len({signature.signature(config) for config in configs}) == len(configs)
    loaders = configure("one", data={"loaders": 3})
    assert signature.signature(loaders) == signature.signature(configs[0])


def test_phases_with_own_images(own: Own) -> None:
    phases = [{"epoch": 0, "size": 8}, {"epoch": 1, "size": 16, "batch": 8}]
    feed = feed_of(own(NOISY), phases=phases, epochs=2)
    assert feed.shapes == [(3, 8, 8), (3, 16, 16)]
    assert [next(iter(feed.read_epoch(epoch))).inputs.shape for epoch in (1, 2)] == [(4, 3, 8, 8), (8, 3, 16, 16)]
    texts = own(TEXTS)
    batches = feed_of(texts, collate=f"{texts}:pad", phases=[{"epoch": 0}, {"epoch": 1, "batch": 2}], epochs=2)
    assert len(epoch_of(batches, 2)) == 5 and len(list(batches.read_test_set(2))) == 3
    with pytest.raises(UsageError, match="phases: the samples of dataset=custom are no images"):
        feed_of(own(VECTORS), phases=phases, epochs=2)


@pytest.mark.thorough
def test_samples_of_a_file_are_found_by_loaders(own: Own, tmp_path: Path) -> None:
    """A file that is no module of the search path, and defines the data set's class."""
    own("")
    (tmp_path / "sub").mkdir()
    file = f"own_file_{next(NUMBERS)}"
    (tmp_path / "sub" / f"{file}.py").write_text(BEGIN + NOISY)
    feeds = [feed_of("", target=f"./sub/{file}.py:build", data={"loaders": loaders}) for loaders in (0, 1)]
    assert same(epoch_of(feeds[0], 1), epoch_of(feeds[1], 1))
    feeds[1].close()
    sys.modules.pop(file)


@pytest.mark.thorough
def test_runs_with_loaders_and_stops_are_the_same_to_the_bit(own: Own, tmp_path: Path) -> None:
    run_ranks(
        2,
        f"{own(NOISY)}:build",
        str(tmp_path),
        module="tests.trainers.ranks.own_data",
        PYTHONPATH=str(tmp_path),
    )
