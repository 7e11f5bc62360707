"""A distribution with plug-ins, as an installer would lay it out: a package, its YAML files and its metadata."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "guide"


def read_block(page: str, language: str, number: int = 0) -> str:
    """Return a block of a page of the guide."""
    text = (GUIDE / page).read_text(encoding="utf-8")
    return str(re.findall(f"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[number])


CHUNK_TOP = read_block("add-a-compressor.md", "python")
PERCEPTRON = read_block("plugins.md", "python")
TASKS = '''
from torch import nn


class Smooth:
    """Classification with smoothed labels."""

    loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def metrics(self, outputs, targets):
        return {"top3": outputs.topk(3).indices.eq(targets[:, None]).any(1).float().mean()}
'''

MORE = '''
import dataclasses
from typing import ClassVar

from compressors.memories.error_feedback import Residual
from gradsweep.options.parameters import integer, number
from trainers.options.datasets import Dataset
from trainers.options.exchanges import Exchange
from trainers.options.schedules import Schedule
from trainers.options.topologies import Topology


@dataclasses.dataclass(frozen=True)
class Stripes(Dataset):
    """Vectors whose class is the place of their largest element."""

    kind: ClassVar[str] = "features"
    name: ClassVar[str] = "stripes"
    train: int = integer(256, low=2)

    def build(self, root, download):
        import numpy as np

        from trainers.data.arrays import Arrays

        draws = np.random.default_rng(0)
        x = [draws.normal(size=(count, 8)).astype(np.float32) for count in (self.train, 64)]
        y = [one.argmax(1).astype(np.int64) for one in x]
        return Arrays(x[0], y[0], x[1], y[1], 8).to_prepared()


@dataclasses.dataclass(frozen=True)
class Halving(Schedule):
    """Half the rate after every epoch."""

    name: ClassVar[str] = "halving"
    part: float = number(0.5, 0.0, 1.0)

    def factor(self, now):
        return self.part**now.epoch


@dataclasses.dataclass(frozen=True)
class Wheel(Topology):
    """A ring whose workers all have a spoke to worker 0."""

    name: ClassVar[str] = "wheel"

    def build_graph(self, workers):
        import networkx

        return networkx.wheel_graph(workers)


@dataclasses.dataclass(frozen=True)
class Forgetting(Residual):
    """Error feedback that forgets half of what was not sent."""

    name: ClassVar[str] = "forgetting"
    beta: float = number(0.5, low=0, high=1)


@dataclasses.dataclass(frozen=True)
class Gathering(Exchange):
    """Every worker gets every payload."""

    name: ClassVar[str] = "gathering"

    def explain_unfit(self, compressor):
        return "it gathers no sums; valid is exchange=allreduce" if compressor.name == "fp16" else None

    def build(self, setup):
        from trainers.exchange.base import Exchange

        return Exchange(*setup, sums=False, gathers=True)
'''

NAMES = {
    "compressor": "chunk_top",
    "memory": "forgetting",
    "exchange": "gathering",
    "topology": "wheel",
    "schedule": "halving",
    "model": "perceptron",
    "dataset": "stripes",
}
"""The name of a class in each group that plug-ins can join."""

ENTRY_POINTS = {
    "gradsweep.compressors": {"chunk_top": "my_plugin.methods:ChunkTop"},
    "gradsweep.memories": {"forgetting": "my_plugin.more:Forgetting"},
    "gradsweep.exchanges": {"gathering": "my_plugin.more:Gathering"},
    "gradsweep.topologies": {"wheel": "my_plugin.more:Wheel"},
    "gradsweep.schedules": {"halving": "my_plugin.more:Halving"},
    "gradsweep.models": {"perceptron": "my_plugin.nets:Perceptron"},
    "gradsweep.datasets": {"stripes": "my_plugin.more:Stripes"},
    "gradsweep.conf": {"my_plugin": "my_plugin.conf"},
}


def lay_out(site: Path, entry_points: Mapping[str, Mapping[str, str]] = ENTRY_POINTS, name: str = "my-plugin") -> Path:
    """Lay out the distribution in `site`, a folder for PYTHONPATH; return the folder of its package."""
    package = site / "my_plugin"
    conf = package / "conf" / "compressor"
    conf.mkdir(parents=True, exist_ok=True)
    for module, text in (
        ("__init__", ""),
        ("methods", CHUNK_TOP),
        ("nets", PERCEPTRON),
        ("tasks", TASKS),
        ("more", MORE),
    ):
        (package / f"{module}.py").write_text(text, encoding="utf-8")
    (conf / "chunk_top.yaml").write_text(read_block("add-a-compressor.md", "yaml"), encoding="utf-8")
    metadata = site / f"{name.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
    (metadata / "top_level.txt").write_text("my_plugin\n", encoding="utf-8")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {to}\n" for key, to in of.items()) for group, of in entry_points.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return package


def write_project(folder: Path) -> None:
    """Write the distribution as a project that pip can install from `folder`."""
    lay_out(folder)
    shutil.rmtree(folder / "my_plugin-1.2.dist-info")
    lines = [
        "[build-system]",
        'requires = ["setuptools"]',
        'build-backend = "setuptools.build_meta"',
        '[project]\nname = "my-plugin"\nversion = "1.2"',
        '[tool.setuptools]\npackages = ["my_plugin"]',
        '[tool.setuptools.package-data]\nmy_plugin = ["conf/**/*.yaml"]',
    ]
    for group, of in ENTRY_POINTS.items():
        lines += [f'[project.entry-points."{group}"]', *(f'{name} = "{target}"' for name, target in of.items())]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
