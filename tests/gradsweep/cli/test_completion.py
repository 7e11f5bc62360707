"""Tab completion of `gradsweep`: its subcommands, their arguments, and the keys of runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gradsweep.cli import command_names
from gradsweep.cli.completion import complete
from tests.conftest import ROOT
from tests.gradsweep.cli.conftest import Command, write_script


@pytest.mark.parametrize(
    ("module", "words", "begun", "completed"),
    [
        ("sweep", ["status"], "--js", ["--json"]),
        ("sweep", ["status"], "", []),
        ("sweep", ["status", "last"], "--fa", ["--failed"]),
        ("reports", [], "sh", ["show"]),
        ("reports", [], "--base", ["--baseline"]),
        ("reports", ["export"], "t", ["tensorboard"]),
        ("reports", ["export", "tensorboard"], "", []),
        ("reports", ["output"], "--no-p", ["--no-plots"]),
        ("compressors", [], "", ["list", "show", "check", "bench"]),
        ("compressors", ["sh"], "zz", []),
        ("compressors", ["show"], "qsg", ["qsgd"]),
        ("compressors", ["bench", "qsgd", "--model"], "", ["flat", "resnet18"]),
        ("compressors", ["bench", "--output"], "", []),
        ("compressors", ["check"], "--al", ["--all"]),
        ("trainers.topology", [], "tor", ["torus"]),
        ("trainers.topology", ["ring"], "--wor", ["--workers"]),
    ],
    ids=str,
)
def test_arguments_are_completed(module: str, words: list[str], begun: str, completed: list[str]) -> None:
    assert complete(module, words, begun) == completed


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("gradsweep stat", ["status"]),
        ("gradsweep re", ["resume", "report"]),
        ("gradsweep compressors show qsg", ["qsgd"]),
        ("gradsweep sched", ["schedule.", "schedule="]),
        ("gradsweep comp", ["compressors", "compile=", "compressor.", "compressor="]),
        ("gradsweep -m compressor=qsgd,top", ["compressor=qsgd,top_k", "compressor=qsgd,topk"]),
        (
            "gradsweep probe network=ethernet_1",
            ["network=ethernet_100m", "network=ethernet_10g", "network=ethernet_1g"],
        ),
        ("gradsweep probe --sec", ["--seconds"]),
    ],
)
def test_a_shell_is_answered(line: str, completed: list[str], command: Command) -> None:
    done = command("-sc", "query=bash", COMP_LINE=line, COMP_POINT="99")
    assert done.stdout.split() == completed, done.stderr


def test_all_subcommands_are_offered(command: Command) -> None:
    offered = command("-sc", "query=bash", COMP_LINE="gradsweep ").stdout.split()
    assert offered[: len(command_names.list_names())] == command_names.list_names() and "compressor=" in offered


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "word", "completed"),
    [
        ("gradsweep res", 1, ["resume"]),
        ("gradsweep status --fai", 2, ["--failed"]),
        ("gradsweep -m compressor=qsgd,top", 2, ["compressor=qsgd,top_k", "compressor=qsgd,topk"]),
    ],
)
def test_bash_completes(line: str, word: int, completed: list[str], tmp_path: Path) -> None:
    script = f"""
eval "$(gradsweep -sc install=bash)"
complete -p gradsweep >&2
COMP_LINE='{line}' COMP_POINT=99 COMP_CWORD={word}
hydra_bash_completion
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    path = f"{write_script(tmp_path / 'bin').parent}:/usr/bin:/bin"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == completed, done.stderr
    assert "hydra_bash_completion gradsweep" in done.stderr
