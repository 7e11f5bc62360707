"""Signatures: which changes of a config make another run, and which keep the run that it was."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gradsweep import run_directory
from gradsweep.signature import signature
from tests.conftest import ROOT

RUN = {"workers": 2, "compressor": {"name": "qsgd"}, "launcher": {"cluster": "local"}}
BEFORE = {"command": ["mpirun"], "environment": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp"}}


def sign(mpi: Any) -> str:
    return signature({**RUN, "mpi": mpi})


@pytest.mark.parametrize("transport", [{}, {"transport": "shm"}, {"transport": None}])
def test_the_transport_that_held_before_is_in_no_signature(transport: dict[str, Any]) -> None:
    assert sign({"command": ["mpirun"], "environment": {}, **transport}) == sign(BEFORE) == signature(RUN)


def test_each_other_transport_is_another_run() -> None:
    signed = [sign({**BEFORE, "transport": each}) for each in ("shm", "tcp", "ucx", "ofi", "auto")]
    assert len(set(signed)) == 5
    assert signed[1] == sign({"transport": "tcp", "command": ["srun"]}), "how ranks are started does not count"


def test_added_options_are_in_a_signature_where_they_differ_from_what_held_before() -> None:
    def sign_exchange(**options: Any) -> str:
        return signature({**RUN, "exchange": {"name": "allreduce", "overlap": False, **options}})

    for name in ("gossip", "sharded"):
        assert sign_exchange(name=name, transport="mpi") == sign_exchange(name=name)
        assert sign_exchange(name=name, transport="torch") != sign_exchange(name=name)
    before = sign_exchange()
    assert sign_exchange(part_mib=None, allreduce=None, tune=False) == before
    others = [{"part_mib": 1.0}, {"part_mib": 4.0}, {"allreduce": "ring"}, {"tune": True}, {"overlap": True}]
    assert len({before, *(sign_exchange(**each) for each in others)}) == 6


@pytest.mark.parametrize(
    ("section", "values", "added", "other"),
    [
        ("compressor", {"name": "sign_norm"}, {"scale": "l1", "zeros": "coin"}, {"scale": "l2"}),
        ("compressor", {"name": "topk"}, {"mean": "all"}, {"mean": "senders"}),
        (
            "policy",
            {"dense_1d": False},
            {"lgreco": {"option": None, "values": [], "interval": 50, "factor": 1.0}},
            {"lgreco": {"option": "ratio", "values": [0.1], "interval": 50, "factor": 1.0}},
        ),
        ("dataset", {"name": "text", "bptt": 35}, {"order": "streams", "tokens": "words"}, {"order": "windows"}),
        ("memory", {"name": "scaled_residual"}, {"decay": 1.0}, {"decay": 0.999}),
        (
            *("memory", {"name": "ef21"}, {"gradient_weight": 1.0, "double_momentum": False}),
            {"gradient_weight": 0.1, "double_momentum": False},
        ),
        ("optimizer", {"name": "adam", "lr": 1e-3}, {"groups": []}, {"groups": [{"match": "a"}]}),
        ("schedule", {"name": "cosine"}, {"warmup_steps": None, "final": None}, {"final": 0.1}),
    ],
)
def test_sections_with_added_options_are_those_of_earlier_versions(
    section: str, values: dict[str, Any], added: dict[str, Any], other: dict[str, Any]
) -> None:
    before = signature({**RUN, section: values})
    assert signature({**RUN, section: {**values, **added}}) == before
    assert signature({**RUN, section: {**values, **other}}) != before


def test_a_task_is_in_a_signature_unless_the_data_set_chooses_it() -> None:
    tasks = [{"name": "auto"}, {"name": "regression"}, {"name": "custom", "target": "mine:A", "args": {}}]
    tasks += [{**tasks[-1], "target": "mine:B"}, {**tasks[-1], "args": {"width": 1}}]
    signed = [signature({**RUN, "task": task}) for task in tasks]
    assert signed[0] == signature(RUN) and len(set(signed)) == len(tasks)


def test_runs_of_earlier_versions_are_still_the_same() -> None:
    """The files are configs of the first version that had signatures, named by these."""
    paths = list((ROOT / "tests/gradsweep/earlier_runs").glob("*.yaml"))
    assert len(paths) == 3
    for path in paths:
        config = yaml.safe_load(path.read_text())
        assert "transport" not in config["mpi"]
        for mpi in (config["mpi"], {**config["mpi"], "transport": "shm"}):
            assert signature({**config, "mpi": mpi}) == path.stem


def test_the_runs_of_the_gallery_are_still_the_same() -> None:
    runs = run_directory.runs_of(ROOT / "docs" / "gallery" / "digits")
    assert len(runs) > 10
    for run in runs:
        assert signature(yaml.safe_load(run.path(run_directory.CONFIG).read_text())).startswith(run.signature)


def test_our_own_training_and_the_place_of_a_script_are_in_no_signature() -> None:
    assert signature({**RUN, "trainer": {"name": "sgd"}}) == signature(RUN)

    def sign_script(directory: str, command: str) -> str:
        return signature({**RUN, "trainer": {"name": "script", "command": [command], "directory": directory}})

    assert sign_script("/a", "x") == sign_script("/b", "x") != sign_script("/a", "y")
