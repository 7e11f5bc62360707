"""A sweep over data of the user's own, from the directory in which it lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Multirun = Callable[..., tuple[int, str, str]]

OWN = """
import torch
from torch.utils.data import Dataset, TensorDataset

class Digits(Dataset):
    def __init__(self, rows):
        from sklearn.datasets import load_digits
        self.images, self.targets = (values[rows] for values in load_digits(return_X_y=True))
    def __len__(self):
        return len(self.images)
    def __getitem__(self, row):
        image = torch.from_numpy(self.images[row]).reshape(1, 8, 8) / 16
        return image + 0.1 * torch.rand(1, 8, 8), int(self.targets[row])

def build(noise=True):
    sets = Digits(slice(0, 1400)), Digits(slice(1400, 1797))
    return sets if noise else [(part.images, part.targets) for part in sets]

def late():
    good, bad = build()
    bad.images[300] = float("nan")
    return good, bad

def leave():
    import os
    os._exit(3)
"""
SHORT = ("dataset=custom", "epochs=1", "max_steps=12", "schedule=constant", "workers=2")


def results(directory: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(directory.glob("**/runs/*/result.json"))]


@pytest.mark.thorough
def test_a_sweep_over_own_data(multirun: Multirun, tmp_path: Path) -> None:
    """Packed; docs/guide/your-own.md is one that is not (tests/test_your_own.py)."""
    (tmp_path / "mine.py").write_text(OWN)
    status, out, err = multirun(
        "-m",
        *SHORT,
        "dataset.target=mine:build",
        "dataset.args.noise=true,false",
        "model=mlp",
        "compressor=topk",
        "data.loaders=1",
        "sweep.pack=true",
        without=("report",),
    )
    assert status == 0, out + err
    found = results(tmp_path)
    assert len(found) == 2 and all(result["status"] == "done" and result["steps"] == 11 for result in found), out
    assert max(float(str(result["accuracy"])) for result in found) > 0.3, "it learns"


@pytest.mark.thorough
def test_own_data_that_are_wrong(multirun: Multirun, tmp_path: Path) -> None:
    """In one line and without a trace where it shows before anything starts, else as the reason of the run."""
    (tmp_path / "mine.py").write_text(OWN)
    status, _, err = multirun(*SHORT, "model=mlp", "dataset.target=mine:biuld")
    assert status == 2 and err.startswith("dataset.target=mine:biuld: did you mean build?"), err
    status, _, gone = multirun(*SHORT, "model=mlp", "dataset.target=mine:leave")
    assert status == 2 and gone.startswith(
        "dataset=custom: could not be prepared: the process that reads it ended with"
    ), gone
    assert err.count("\n") == gone.count("\n") == 1 and sorted(
        path.name for path in tmp_path.iterdir() if path.name[0] != "_"
    ) == ["mine.py"]
    status, out, err = multirun(*SHORT, "model=mlp", "dataset.target=mine:late", without=("report",))
    reason = "dataset.target=mine:late: valid is finite numbers: inputs of sample 300 of the test set have nan or inf"
    assert status == 1 and reason in out + err, out + err
    assert str(ROOT) not in reason
