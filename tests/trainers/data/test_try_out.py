"""Own models, tasks and optimizers are tried before anything starts; each fault is one line with its key."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers.data.__main__ import prepare_runs
from trainers.rules.resolve import resolve

CODE = """
import numpy
import torch
from torch import nn

SCALE = torch.tensor([2.0])
BUILT = []

def build(width=16, classes=3, shape=None):
    inputs = numpy.prod(shape)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, classes)
    )
    BUILT.append(str(next(net.parameters()).device))
    return net

class Values(nn.Module):  # that the meta device lacks
    def __init__(self, out=10):
        super().__init__()
        self.net = nn.Linear(64, out)
        self.scale = float(torch.ones(1).sum())
    def forward(self, x):
        return self.net(x.flatten(1)) * self.scale * float(SCALE)

class Keyword(nn.Module):
    def __init__(self, classes, kind="dict"):
        super().__init__()
        self.net, self.kind = nn.Linear(64, classes), kind
    def forward(self, x):
        y = self.net(x.flatten(1))
        return {"scores": y} if self.kind == "dict" else y[:1] if self.kind == "few" else y.detach()

def number(): return 5
def lazy(): return nn.LazyLinear(10)
def frozen():
    net = nn.Linear(64, 10)
    return net.requires_grad_(False)
def raising(): raise RuntimeError("no weights today")
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(63, 10)
    def forward(self, x): return self.net(x.flatten(1))

class Task:
    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs["scores"], targets)
    def metrics(self, outputs, targets):
        return {"top3": outputs["scores"].topk(3).indices.eq(targets[:, None]).any(1).float().mean()}
class Raising(Task):
    def loss(self, outputs, targets): return outputs["skores"]
class Flat(Task):
    def loss(self, outputs, targets): return outputs["scores"].argmax(1).float().mean()
"""


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    (tmp_path / "tried.py").write_text(CODE)
    yield
    sys.modules.pop("tried", None)
    sys.path[:] = path


def prepare(digits: Path, metric: str | None = None, **changes: Any) -> None:
    config = resolve(compose_config(**{"data": {"root": str(digits)}, "batch": {"size": 32}, **changes}))
    prepare_runs([config, config], metric)


def model(name: str, **args: Any) -> dict[str, Any]:
    return {"name": "custom", "target": f"tried:{name}", "args": args}


def task(name: str, **args: Any) -> dict[str, Any]:
    return {"name": "custom", "target": f"tried:{name}", "args": args}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": model("build", width=8)},
        {"model": model("Values")},
        {"model": model("Keyword"), "task": task("Task")},
        {
            "model": model("Keyword"),
            "task": task("Task"),
            "optimizer": {"name": "torch", "target": "torch.optim.Adagrad"},
        },
        {"optimizer": {"name": "torch", "target": "torch.optim.Adagrad"}},
        {"model": {"name": "mlp"}, "task": {"name": "classification"}},
        {"model": model("Values", out=1), "task": {"name": "regression"}},
    ],
    ids=str,
)
def test_what_works_passes(digits: Path, changes: dict[str, Any]) -> None:
    prepare(digits, **changes)


def test_a_model_is_tried_without_memory_where_that_works(digits: Path) -> None:
    prepare(digits, model=model("build"))
    assert sys.modules["tried"].BUILT == ["meta"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "custom"}}, "model.target: missing with model=custom; valid is package.module:name, "),
        ({"task": {"name": "custom"}}, "task.target: missing with task=custom; valid is package.module:name, "),
        (
            {"optimizer": {"name": "torch"}},
            "optimizer.target: missing with optimizer=torch; valid is package.module:name",
        ),
        ({"model": {"name": "custom", "target": "a b"}}, "model.target=a b: valid is package.module:name, "),
        (
            {"model": model("biuld")},
            "model.target=tried:biuld: did you mean build? valid is a name that is in it: tried ",
        ),
        (
            {"model": {"name": "custom", "target": "gone:build"}},
            "model.target=gone:build: valid is a module that Python fi",
        ),
        (
            {"model": model("build", wdith=5)},
            "model.args.wdith=5: did you mean width? valid is the parameters of tried:b",
        ),
        (
            {"model": model("number")},
            "model.target=tried:number returns a int; valid is a function or class that makes an ",
        ),
        (
            {"model": model("frozen")},
            "model.target=tried:frozen returns a module without parameters to train; valid is o",
        ),
        ({"model": model("lazy")}, "model.target=tried:lazy returns a module with lazy parameters; valid is one whose"),
        ({"model": model("raising")}, "can be called with its args: RuntimeError: no weights today (tried.py:"),
        (
            {"model": model("Deep")},
            "model.target=tried:Deep raises RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        ),
        (
            {"model": model("build", classes=7)},
            "model.target=tried:build: the output is a tensor (2, 7) of float32 for labels",
        ),
        (
            {"model": model("Keyword")},
            "model.target=tried:Keyword: the output is a dict for labels (2,); valid is a tensor (2",
        ),
        ({"model": model("Keyword", kind="few")}, "the output is a tensor (1, 10) of float32 for labels (2,)"),
        (
            {"model": model("Keyword"), "task": task("Raising")},
            "task.target=tried:Raising: loss raises KeyError: 'skores' (tried.p",
        ),
        (
            {"model": model("Keyword"), "task": task("Flat")},
            "task.target=tried:Flat: loss does not depend on the outputs",
        ),
        (
            {"model": model("Keyword"), "task": task("number")},
            "task.target=tried:number returns a int without loss; valid is",
        ),
        (
            {"task": {"name": "regression"}},
            "model=mlp: the output is a tensor (2, 10) of float32; valid is a tensor (2, 1), ",
        ),
        (
            {"optimizer": {"name": "torch", "target": "torch.optim.Adam", "args": {"beta": 1}}},
            "optimizer.args.beta=1: did you mean betas? valid is",
        ),
        ({"optimizer": {"name": "torch", "target": "torch.optim.Muon"}}, "optimizer.target=torch.optim.Muon: "),
        (
            {"task": {"name": "language"}},
            "task=language with dataset=digits: its labels are no words; valid is task=classi",
        ),
        (
            {"dataset": "synthetic_text", "model": "lstm", "task": "classification"},
            "task=classification with dataset=synthetic_text: a text has a label at every position; valid is task=lang",
        ),
        (
            {
                "memory": "dgc",
                "compressor": "dgc",
                "optimizer": {"name": "torch", "target": "torch.optim.SGD", "args": {"momentum": 0.9}},
            },
            "memory=dgc with optimizer.args.momentum=0.9: the memory has the momentum; valid is ",
        ),
    ],
    ids=str,
)
def test_faults_are_one_line(digits: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        prepare(digits, **changes)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("metric", "changes", "message"),
    [
        ("top3", {"model": model("Keyword"), "task": task("Task")}, None),
        (
            "top5",
            {"model": model("Keyword"), "task": task("Task")},
            "sweep.metric=top5: did you mean top3? valid is one of to",
        ),
        (
            "accuracy",
            {"model": model("Keyword"), "task": task("Task")},
            "sweep.metric=accuracy: valid is one of top3 of tas",
        ),
        ("best_accuracy", {}, None),
        (
            "mae",
            {},
            "sweep.metric=mae: valid is one of accuracy, best_accuracy of task=auto, or another number of result",
        ),
        ("r2", {"model": model("Values", out=1), "task": {"name": "regression"}}, None),
    ],
    ids=str,
)
def test_the_metric_of_a_search_is_one_of_the_task(
    digits: Path, metric: str, changes: dict[str, Any], message: str | None
) -> None:
    if message is None:
        prepare(digits, metric, **changes)
    else:
        with pytest.raises(UsageError) as error:
            prepare(digits, metric, **changes)
        assert message in str(error.value)
