"""`gradsweep` runs every program by one name, says so in its lines, and loads no more than the program itself."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep.cli import command_names
from gradsweep.cli.__main__ import format_help
from gradsweep.cli.command_names import COMMANDS, PROGRAMS
from tests.conftest import ROOT
from tests.gradsweep.cli.conftest import Command

LINES = 40
"""Of a screen."""
HEAVY = ("torch", "numpy", "pandas", "hydra", "omegaconf", "matplotlib")

FORM = re.compile(r"python (?:multirun|-m (?:sweep|reports|compressors|trainers\.topology)\b)")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has typed `gradsweep`."""
    monkeypatch.setattr(sys, "argv", ["/where/bin/gradsweep", "status"])


def test_subcommands_are_those_of_the_programs() -> None:
    sweep, reports = (importlib.import_module(f"{module}.__main__").COMMANDS for module in COMMANDS)
    assert COMMANDS["sweep"] == tuple(sorted(sweep, key=COMMANDS["sweep"].index))
    assert set(COMMANDS["reports"]) == set(reports) - set(sweep)  # `gradsweep report watch` is that of the reports
    names = command_names.list_names()
    assert len(set(names)) == len(names)
    for module, _ in PROGRAMS.values():
        assert callable(importlib.import_module(f"{module}.__main__").main)


def test_the_help_lists_all_on_one_screen() -> None:
    lines = format_help().splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= 120
    for name in command_names.list_names():
        assert any(re.match(rf"  {name} {{2,}}\S", line) for line in lines), name


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]], ids=str)
def test_help_is_what_is_asked_for(words: list[str], command: Command) -> None:
    done = command(*words)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == f"{format_help()}\n"


@pytest.mark.parametrize("name", command_names.list_names())
def test_every_subcommand_names_itself(name: str, command: Command) -> None:
    done = command(name, "--help", COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(rf"usage: gradsweep {name}\b", done.stdout)
    assert not FORM.search(done.stdout)


def test_options_of_runs_have_their_own_help(command: Command) -> None:
    done = command("-m", "--help")
    assert done.returncode == 0 and not FORM.search(done.stdout)
    head = done.stdout.splitlines()[:9]
    columns = [line.rindex("   ") + 3 for line in head if re.match(r"  gradsweep .*   \w", line)]
    assert len(columns) > 4 and len(set(columns)) == 1
    assert "gradsweep -m --help shows the rest." in command("compressor=topk", "--help").stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["statsu"], r"gradsweep: statsu: did you mean status\? valid is KEY=VALUE, or one of the \d+ commands"),
        (["report", "lits"], "gradsweep: lits: .*did you mean list"),
        (["status", "--jsn"], "gradsweep status: --jsn: unknown; did you mean --json"),
        (["show", "--al"], "gradsweep show: --al: unknown"),
        (["compressors", "shwo"], r"gradsweep compressors: .*shwo: did you mean show"),
        (["topology", "rign"], "gradsweep topology: topology=rign: did you mean ring"),
        (["compressors", "show", "qsdg"], "gradsweep compressors: .*qsdg.* that `gradsweep compressors list` lists"),
        (["workers=0"], "workers=0: valid is "),
        (["comprssor=svd"], "comprssor.*: .*did you mean compressor"),
        (["compressor=nothing"], "compressor=nothing: .* that `gradsweep -m --help` lists"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_error_is_one_line_in_the_form_that_was_typed(words: list[str], line: str, command: Command) -> None:
    done = command(*words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert re.match(line, done.stderr), done.stderr


def test_keys_make_a_run(command: Command) -> None:
    done = command("compressor=svd", "workers=3", "--cfg", "job")
    assert done.returncode == 0 and "name: svd" in done.stdout and "workers: 3" in done.stdout
    done = command("-m", "compressor=qsgd,none", "workers=2", "sweep.dry_run=true")
    assert done.returncode == 0 and "compressor=qsgd" in done.stdout, done.stderr


def test_version_is_told_without_loading_anything(command: Command) -> None:
    done = command("--version", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0 and done.stdout.startswith("gradsweep ")
    assert not [name for name in HEAVY if re.search(rf"\| +{name}$", done.stderr, re.MULTILINE)]


def test_a_reader_that_closes_the_pipe_ends_it_quietly(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = f"set -o pipefail; {sys.executable} -m gradsweep.cli --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() in ("0", "141") and not done.stderr


def load_modules(code: str, directory: Path) -> set[str]:
    """Return the modules that are loaded after `code`."""
    code = f"import contextlib, json, runpy, sys\nwith contextlib.suppress(SystemExit):\n    {code}\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print(json.dumps(list(sys.modules)))"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("name", "module"), [("status", "sweep"), ("list", "reports")])
def test_a_subcommand_loads_no_more_than_its_program(name: str, module: str, tmp_path: Path) -> None:
    alone = load_modules(
        f"sys.argv = ['x', '{name}']; runpy.run_module('{module}', run_name='__main__', alter_sys=True)", tmp_path
    )
    ours = load_modules(
        f"from gradsweep.cli.__main__ import main; sys.argv = ['gradsweep', '{name}']; main()", tmp_path
    )
    assert not ours & set(HEAVY)
    assert ours - alone <= {"gradsweep.cli.__main__", f"{module}.__main__"}


@pytest.mark.parametrize(
    ("text", "adapted"),
    [
        ("python multirun.py -m workers=2,4", "gradsweep -m workers=2,4"),
        ("`python multirun.py --help` lists", "`gradsweep -m --help` lists"),
        ("python multirun.py compressor=topk --help", "gradsweep compressor=topk --help"),
        ("python -m sweep resume output/a", "gradsweep resume output/a"),
        ("python -m sweep COMMAND", "gradsweep COMMAND"),
        ("what `python -m sweep probe` writes.", "what `gradsweep probe` writes."),
        ("python -m reports output", "gradsweep report output"),
        ("python -m reports list", "gradsweep list"),
        ("The same as python -m sweep logs.", "The same as gradsweep logs."),
        ("python -m reports watch", "gradsweep report watch"),
        ("python -m compressors list", "gradsweep compressors list"),
        ("python -m trainers.topology ring", "gradsweep topology ring"),
        ("python -m sweep.emulation", "python -m sweep.emulation"),
        ("python -m trainers.topology.graphs", "python -m trainers.topology.graphs"),
        ("python -m trainers RUN_DIR", "python -m trainers RUN_DIR"),
    ],
)
def test_commands_are_named_as_the_user_types_them(
    text: str, adapted: str, typed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command_names.adapt_commands(text) == adapted
    monkeypatch.setattr(sys, "argv", ["multirun.py"])
    assert command_names.adapt_commands(text) == text


def test_columns_behind_commands_stay(typed: None) -> None:
    text = "  python -m sweep status     how it stands\n  seed=1                     a seed"
    assert command_names.adapt_columns(text).splitlines() == [
        "  gradsweep status           how it stands",
        "  seed=1                     a seed",
    ]


def test_the_command_line_is_kept_as_it_was_typed(typed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["/venv/bin/python", "/where/bin/gradsweep", "-m", "workers=2"])
    assert command_names.read_command_line() == ["gradsweep", "-m", "workers=2"]
    monkeypatch.setattr(sys, "argv", ["multirun.py", "workers=2"])
    monkeypatch.setattr(sys, "orig_argv", ["/venv/bin/python", "multirun.py", "workers=2"])
    assert command_names.read_command_line() == ["python", "multirun.py", "workers=2"]
