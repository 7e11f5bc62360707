"""`python -m reports advise`: measures and advises, and what it refuses in one line."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from reports.__main__ import main
from tests.conftest import ROOT
from tests.reports.scaling import truth

NETS = """\
from torch import nn


def build(width=8):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10))


def fail():
    raise ValueError("no such width")


number = 3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the user's, with a package; the current one."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def advise(*words: str, status: int = 0) -> None:
    assert main(["advise", *words]) == status


def read_rows(place: Path) -> dict[str, dict[str, str]]:
    with (place / "advice.csv").open() as file:
        return {row["compressor"]: row for row in csv.DictReader(file)}


def read_sweep(out: str) -> list[str]:
    """The words of the sweep that confirms an advice."""
    return shlex.split(out.partition("to confirm it, on that network:\n")[2].partition("\n")[0])


QUICK = ("--seconds", "0.01", "--methods", "qsgd,topk")


@pytest.mark.thorough
def test_advises_on_a_target(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = "my_package.nets:build model.args.width=12 --batch 4 --shape 16 --workers 16 --network 100mbit --into made"
    advise(*words.split(), *QUICK)
    out, _ = capfd.readouterr()
    names = {"advice.csv", "advice.md", "advice.tex", "advice.html", "advice.png", "measured.json", "request.json"}
    assert {path.name for path in (place / "made").iterdir()} == names
    rows = read_rows(place / "made")
    assert set(rows) == {"none", "qsgd", "topk"}
    assert rows["none"]["advice"] == "baseline" and rows["topk"]["memory"] == "residual"
    assert all(
        0 < float(row["step_s_low"]) <= float(row["step_s"]) <= float(row["step_s_high"]) for row in rows.values()
    )
    parameters = 16 * 12 + 12 + 12 * 10 + 10
    assert float(rows["none"]["sent_bytes"]) == pytest.approx(2 * 15 / 16 * 4 * parameters)
    assert "16 workers on 100 Mbit/s" in out and "to confirm it, on that network:\n" in out
    lines = [line for line in out.splitlines() if line and not line.startswith("measuring ")]
    assert "on 100 Mbit/s with 16 workers" in lines[0], "the answer is the first line"
    assert "model=custom model.target=my_package.nets:build model.args.width=12" in out


@pytest.mark.thorough
def test_its_sweep_can_be_typed(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = "model=lenet --batch 4 --shape 1,28,28 --workers 4 --network 1gbit --into made"
    advise(*words.split(), *QUICK)
    typed = read_sweep(capfd.readouterr().out)
    assert typed[:2] == ["python", "multirun.py"]
    command = [sys.executable, str(ROOT / "multirun.py"), *typed[2:], "sweep.dry_run=true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (methods,) = (word.partition("=")[2].split(",") for word in typed if word.startswith("compressor="))
    assert "none" in methods and all(name in done.stdout for name in methods)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"name": "real"}, ["network=real"]),
        (
            {"name": "ethernet_1g", "bandwidth": "1gbit", "latency": "200us", "loss": 0.0},
            ["network=emulated", "network.bandwidth=1gbit", "network.latency=200us"],
        ),
    ],
)
def test_its_sweep_is_on_the_network_of_the_probe(
    network: dict[str, Any], words: list[str], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = {"latency_s": 1e-4, "bandwidth": 9e8, "ring_bandwidth": 9e8}
    (place / "network.json").write_text(json.dumps({"network": network, "measured": measured}))
    typed_words = ["model=mlp", "--shape", "16", "--workers", "4"]
    advise(*typed_words, "--probe", "network.json", "--device", "cpu", "--into", "made", *QUICK)
    out, _ = capfd.readouterr()
    typed = read_sweep(out)
    assert [word for word in typed if word.startswith("network")] == words and "device=cpu" in typed
    assert f"on probe ({network['name']}) with 4 workers" in out


def test_advises_by_a_sweep(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = truth.sweep(place / "2026-11-20" / "10-00-00", noise=0.02)
    advise(str(sweep), "--workers", "64", "--network", "1gbit", "--format", "csv")
    rows = read_rows(sweep / "advise")
    assert rows["none"]["advice"] == "baseline"
    assert {row["advice"] for row in rows.values()} <= {"baseline", "worth it", "too close to tell", "not worth it"}
    assert all(
        0 < float(row["step_s_low"]) <= float(row["step_s"]) <= float(row["step_s_high"]) for row in rows.values()
    )
    out = capsys.readouterr().out
    assert "by the finished runs" in out and "to confirm it" not in out, "its command is not known"


def test_a_sweep_is_confirmed_by_its_own_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = truth.sweep(place / "2026-11-20" / "10-00-00", noise=0.02)
    with (sweep / "sweep.yaml").open("a") as file:
        file.write(
            "command: python multirun.py -m compressor=none,qsgd workers=2,4 network=wan_100m network.loss=0.1\n"
        )
    advise(str(sweep), "--workers", "64", "--network", "1gbit", "--format", "csv")
    wanted = "python multirun.py -m compressor=none,qsgd workers=64 network=real race=only"
    assert read_sweep(capsys.readouterr().out) == wanted.split()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("my_package.nets:build --shape 16 --workers 1", "--workers 1: valid is an integer from 2"),
        ("my_package.nets:build --shape 16 --workers 4 --network fast", "--network=fast: valid is infiniband"),
        ("my_package.nets:build --shape 16 --workers 4 --network 1gbit,10gbit", "valid is one network"),
        ("my_package.nets:build --shape 3,x --workers 4", "--shape 3,x: valid is 1 to 4 integers"),
        ("my_package.nets:build --shape 0 --workers 4", "--shape 0: valid is 1 to 4 integers"),
        ("my_package.nets:build other.nets:build --shape 16 --workers 4", "valid is one target"),
        ("nowhere --shape 16 --workers 4", "nowhere: valid is my_package.nets:build"),
        ("my_package.nets:build --shape 16 --workers 4 --seconds 0", "--seconds 0: valid is a number above 0"),
        ("model=mlp dataset=digits --classes 5 --workers 4", "--classes 5: valid with --shape"),
        (". my_package.nets:build --workers 4", "is a directory; valid is directories of sweeps, or a model"),
        (". --shape 16 --workers 4", "--shape 16: valid with a model"),
        ("model=mlp model=vgg --shape 16 --workers 4", "model=vgg: model is given twice; valid is one value"),
        (
            "my_package.nets:build model=vgg --shape 16 --workers 4",
            "model=vgg: valid is left out with the target",
        ),
        ("model=mlp batch.size=8 --batch 4 --shape 16 --workers 4", "batch.size=8: valid is left out with --batch 4"),
        ("model=mlp --shape 16 --workers 4 --probe none.json", "--probe none.json: no such file"),
        ("model=mlp --shape 16 --workers 4 --network emulated", "--network=emulated: valid is infiniband"),
        ("model=mlp --shape 16 --workers 4 network.bandwidth=1gbit", "network.bandwidth=1gbit: valid is --network"),
        ("model=mlp workers=2 --shape 16 --workers 4", "workers=2: valid is --workers"),
    ],
)
def test_refuses_before_it_measures(words: str, line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advise(*words.split(), status=2)
    out, error = capsys.readouterr()
    assert not out and error.startswith("reports: ") and error.count("\n") == 1 and line in error, error
    assert not (place / "output").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "line"),
    [
        pytest.param(
            "my_package.nets:build --shape 16 --device cuda",
            "device=cuda: valid is cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        ("my_package.nets:nope --shape 16", "model.target=my_package.nets:nope: valid is a name that is in it"),
        ("my_package.nets:number --shape 16", "model.target=my_package.nets:number: valid is a function or class"),
        ("my_package.nets:fail --shape 16", "no such width"),
        ("my_package.nets:build --shape 17", "model.target=my_package.nets:build raises RuntimeError: mat1"),
        ("model=mlp --shape 100000000 --batch 1000000", "--batch 1000000: not enough memory for a step"),
        ("modell=mlp --shape 16", "modell=mlp: unknown key; did you mean model?"),
        ("model=mlp optimzer.lr=3", "optimzer.lr=3: unknown key; did you mean optimizer.lr?"),
        ("my_package.nets:build", "--shape: missing; valid is the shape"),
    ],
)
def test_refuses_what_shows_when_it_measures(
    words: str, line: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    advise(*words.split(), "--workers", "4", *QUICK, "--into", "made", status=2)
    out, error = capfd.readouterr()
    assert not out and error.startswith("reports: ") and error.count("\n") == 1 and line in error, error


def test_is_a_subcommand_of_gradsweep(place: Path) -> None:
    command = [sys.executable, "-m", "gradsweep.cli", "advise", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "gradsweep advise my_package.nets:build" in done.stdout, done.stdout + done.stderr
