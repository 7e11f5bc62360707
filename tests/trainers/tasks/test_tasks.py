"""Losses and metrics: torch's own on whole sets, own ones, and one line for what does not suit."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradsweep.errors import UsageError
from trainers import tasks
from trainers.options import tasks as options
from trainers.tasks.base import IGNORED, Scores, Sums, Task
from trainers.tasks.classification import Classification, Language, check_outputs
from trainers.tasks.custom import Custom
from trainers.tasks.regression import Regression


def judged(task: Task, outputs: Any, targets: Any, pieces: int = 3) -> Scores:
    """Evaluate in pieces of different size."""
    sums: Sums | None = None
    for some, theirs in zip(outputs.tensor_split(pieces), targets.tensor_split(pieces), strict=True):
        sums = task.add(sums, task.judge(some, theirs))
    assert sums is not None
    return task.summarise(sums)


def test_classification_is_torchs_cross_entropy_to_the_bit() -> None:
    outputs, targets = torch.randn(17, 5, requires_grad=True), torch.arange(17) % 5
    task = Classification()
    assert torch.equal(task.sum_losses(outputs, targets), F.cross_entropy(outputs, targets, reduction="sum"))
    assert task.count_correct(outputs, targets) == float((outputs.argmax(1) == targets).sum())
    scores = judged(task, outputs.detach(), targets)
    assert math.isclose(scores.loss, float(F.cross_entropy(outputs.detach(), targets)), rel_tol=1e-6)
    assert scores.accuracy == float((outputs.argmax(1) == targets).sum()) / 17 and scores.metrics == {}


def test_streams_count_by_label_and_other_samples_by_their_mean() -> None:
    outputs, targets = torch.randn(4, 3, 6), torch.randint(0, 6, (4, 3))
    targets[1, 2] = targets[2] = IGNORED
    whole = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
    assert torch.equal(Language().sum_losses(outputs, targets), whole)
    by_sample = [F.cross_entropy(one, labels) for one, labels in zip(outputs, targets, strict=True)]
    expected = sum(float(loss) for loss in (by_sample[0], by_sample[1], by_sample[3]))  # the third has no label
    assert math.isclose(float(Classification().sum_losses(outputs, targets)), expected, rel_tol=1e-6)
    right = outputs.argmax(2) == targets
    shares = right[0].float().mean() + right[1, :2].float().mean() + right[3].float().mean()
    assert math.isclose(Classification().count_correct(outputs, targets), float(shares), rel_tol=1e-6)
    assert Language().count_correct(outputs, targets) == float(right.sum())


@pytest.mark.parametrize("numbers", [(), (1,), (3,), (2, 2)])
def test_regression_by_its_formulas(numbers: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    targets = 100 + torch.randn(23, *numbers, generator=generator)
    outputs = targets + 0.3 * torch.randn(23, *(numbers or (1,)), generator=generator).reshape(targets.shape)
    task, shaped = Regression(), outputs if numbers else outputs[:, None]
    assert math.isclose(float(task.sum_losses(shaped, targets)) / 23, float(F.mse_loss(outputs, targets)), rel_tol=1e-6)
    scores = judged(task, shaped, targets)
    spread = (targets.double() - targets.double().mean(0)).square().sum()
    r2 = 1 - (outputs.double() - targets.double()).square().sum() / spread
    assert math.isclose(scores.loss, float(F.mse_loss(outputs, targets)), rel_tol=1e-5)
    assert math.isclose(scores.metrics["mae"], float(F.l1_loss(outputs, targets)), rel_tol=1e-5)
    assert math.isclose(scores.metrics["r2"], float(r2), rel_tol=1e-6) and math.isnan(scores.accuracy)


def test_r2_of_equal_targets_is_unknown() -> None:
    scores = judged(Regression(), torch.zeros(6, 1), torch.ones(6))
    assert math.isnan(scores.metrics["r2"]) and scores.loss == 1


@pytest.mark.parametrize(
    ("config", "kind", "labels", "expected"),
    [
        (options.Auto(), "images", "classification", Classification),
        (options.Auto(), "text", "language", Language),
        (options.Auto(), "features", "regression", Regression),
        (options.Regression(), "features", "classification", Regression),
        (options.Language(), "integers", "language", Classification),
    ],
)
def test_auto_goes_by_the_labels(config: Any, kind: str, labels: str, expected: type) -> None:
    task = tasks.build(config, kind, labels)
    assert type(task) is expected


def test_labels_of_several_tensors_need_an_own_task() -> None:
    with pytest.raises(
        UsageError, match="^task=auto: the labels of the data set are several tensors; valid is task=cu"
    ):
        tasks.build(options.Auto(), "several", "custom")


OWN = """
import torch
class Task:
    def __init__(self, scale=1.0, **named): self.scale, self.named = scale, named
    def loss(self, outputs, targets):
        return self.scale * (outputs["x"] - targets["y"]).square().mean()
    def metrics(self, outputs, targets):
        error = (outputs["x"] - targets["y"]).abs()
        within = int((error < 1).sum()), len(error)
        return {"largest": error.max(), "mean": error.mean(), "within": within, **self.named}
def nothing(): return 5
class Loss:
    def __init__(self, kind): self.kind = kind
    def loss(self, outputs, targets):
        return {"vector": outputs, "number": 1.0, "integer": torch.tensor(1), "none": None}[self.kind]
class Metrics:
    def __init__(self, value): self.value = value
    def loss(self, outputs, targets): return outputs.mean()
    def metrics(self, outputs, targets): return self.value
class OnlyLoss:
    def loss(self, outputs, targets): return outputs.mean()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    (tmp_path / "own_tasks.py").write_text(OWN)
    yield
    sys.modules.pop("own_tasks", None)
    sys.path[:] = path


def build(name: str, **args: Any) -> Custom:
    return Custom(options.Custom(f"./own_tasks.py:{name}", args))


@pytest.mark.usefixtures("own")
def test_an_own_task_gives_sums_and_means() -> None:
    task = build("Task", scale=2.0)
    outputs = {"x": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)}
    targets = {"y": torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0])}
    assert float(task.sum_losses(outputs, targets)) == 2.0 * (0 + 1 + 4 + 9 + 16)
    sums: Sums | None = None
    with torch.no_grad():
        for part in (slice(0, 3), slice(3, 5)):
            sums = task.add(sums, task.judge({"x": outputs["x"][part]}, {"y": targets["y"][part]}))
    assert sums is not None
    scores = task.summarise(sums)
    assert scores.loss == 2.0 * 30 / 5 and math.isnan(scores.accuracy)
    assert scores.metrics == {"largest": (3 * 2 + 2 * 4) / 5, "mean": 2.0, "within": 1 / 5}


@pytest.mark.usefixtures("own")
def test_an_accuracy_of_an_own_task_is_the_accuracy() -> None:
    scores = judged(build("Metrics", value={"accuracy": [3, 4]}), torch.zeros(4), torch.zeros(4), pieces=1)
    assert scores.accuracy == 0.75 and scores.metrics == {}
    assert judged(build("OnlyLoss"), torch.ones(4), torch.zeros(4)).loss == 1


@pytest.mark.usefixtures("own")
def test_text_counts_by_label() -> None:
    task = Custom(options.Custom("./own_tasks.py:OnlyLoss"), is_text=True)
    targets = torch.tensor([[1, IGNORED], [2, 3]])
    assert float(task.sum_losses(torch.full((2, 2, 4), 2.0), targets)) == 6.0


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("nothing", {}, "returns a int without loss; valid is an object with loss(outputs, targets) and"),
        ("Loss", {"kind": "vector"}, "loss returns a tensor (4,) of float32; valid is a floating-point tensor ()"),
        ("Loss", {"kind": "number"}, "loss returns a float; valid is"),
        ("Loss", {"kind": "integer"}, "loss returns a tensor () of int64; valid is"),
        ("Loss", {"kind": "none"}, "loss returns a NoneType; valid is"),
        ("Metrics", {"value": 3}, "metrics returns a int; valid is a dict by name"),
        ("Metrics", {"value": {"loss": 1}}, "metrics has the name 'loss'; valid are letters"),
        ("Metrics", {"value": {"a b": 1}}, "metrics has the name 'a b'; valid are letters"),
        ("Metrics", {"value": {1: 1}}, "metrics has the name 1; valid are letters"),
        (
            "Metrics",
            {"value": {"a": "x"}},
            "the metric a is a str; valid is a number, the mean over the samples, or a pa",
        ),
        ("Metrics", {"value": {"a": [1, 2, 3]}}, "the metric a is a list; valid is a number"),
        ("Metrics", {"value": {"a": torch.zeros(2)}}, "the metric a is a tensor (2,) of float32; valid is a number"),
    ],
)
def test_wrong_returns_are_one_line(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        judged(build(name, **args), torch.zeros(4), torch.zeros(4), pieces=1)
    assert f"task.target=./own_tasks.py:{name}" in str(error.value) and message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_and_shapes_are_the_same_in_all_batches() -> None:
    task = Regression()
    with pytest.raises(
        UsageError, match="^task=regression: the metrics of one worker are a, b, those of another a; val"
    ):
        task.add(
            {"loss": np.ones(2), "a": np.ones(2), "b": np.ones(2)}, {"loss": np.ones(2), "a": np.ones(2)}, "worker"
        )
    with pytest.raises(UsageError, match="the targets of one batch have another shape than those of another"):
        task.add({"loss": np.ones(2)}, {"loss": np.ones(3)})


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2), "the labels are a tensor (2,) of float32; valid are numbers of classes"),
        (torch.zeros(2, 3), (torch.zeros(2),), "the labels are a tuple; valid are"),
        (
            torch.zeros(2, 4),
            torch.zeros(2, dtype=torch.int64),
            "the output is a tensor (2, 4) of float32 for labels (2,)",
        ),
        (
            torch.zeros(2),
            torch.zeros(2, dtype=torch.int64),
            "valid is a tensor (2, 3), a number for each of the 3 classes",
        ),
        ({}, torch.zeros(2, dtype=torch.int64), "the output is a dict for labels (2,)"),
    ],
)
def test_outputs_of_a_classifier_are_checked(outputs: Any, targets: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        check_outputs(outputs, targets, 3, "model.target=mine:build")
    assert message in str(error.value) and "\n" not in str(error.value)
    check_outputs(torch.zeros(2, 5, 3), torch.zeros(2, 5, dtype=torch.int64), 3, "")


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2), "the output is a tensor (2, 3) of float32; valid is a tensor (2, 1)"),
        (torch.zeros(2), torch.zeros(2, 2), "the output is a tensor (2,) of float32; valid is a tensor (2, 2)"),
        (None, torch.zeros(2), "the output is a NoneType; valid is a tensor (2, 1), as the targets are"),
        (torch.zeros(2), {}, "the targets are a dict; valid is a tensor, or task=custom"),
    ],
)
def test_outputs_of_a_regression_are_checked(outputs: Any, targets: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Regression().sum_losses(outputs, targets)
    assert message in str(error.value) and "\n" not in str(error.value)
