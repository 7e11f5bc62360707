"""`--help` of every program and of its commands tells all that may be typed, and the docs name nothing else."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

OURS = ("compressors", "reports", "sweep", "trainers")
HEAVY = {
    "compressors": ("torch", "numba", "matplotlib"),
    "reports": ("torch", "numpy", "pandas", "matplotlib", "jinja2"),
    "sweep": ("torch", "numpy", "pandas", "hydra", "omegaconf"),
}
"""What a help must not load, by program."""
TWICE = "ignore:.*found in sys.modules:RuntimeWarning"  # another test has imported what runs as a program here
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])


def programs() -> list[str]:
    """What `python -m` runs and a parser of arguments is in."""
    found = []
    for room in OURS:
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if '__name__ == "__main__"' in text and re.search(r"Parser\(", text):
                found.append(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__"))
    return sorted(found)


class Parsers(list[argparse.ArgumentParser]):
    """Those that are asked for their help."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown = argparse.ArgumentParser.print_help

        def print_help(parser: argparse.ArgumentParser, file: object = None) -> None:
            self.append(parser)
            shown(parser, file)  # type: ignore[arg-type]

        monkeypatch.setattr(argparse.ArgumentParser, "print_help", print_help)


def commands(program: str, parser: argparse.ArgumentParser | None) -> dict[str, str]:
    """The commands of a program and what it says of each; of a command, the choices of its first argument."""
    if (ROOT / program / "__main__.py").exists():
        main = importlib.import_module(f"{program}.__main__")
        if found := getattr(main, "COMMANDS", None):
            return dict(found)
    actions = parser._actions if parser else []
    subparsers = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    return {one.dest: one.help or "" for action in subparsers for one in action._choices_actions}


def helps(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[list[str], argparse.ArgumentParser | None, str]]:
    """Of a program and its commands what is typed before --help, the parser that answers, and its answer in a line."""
    monkeypatch.setenv("COLUMNS", "10000")  # nothing is broken into lines, or within a word
    parsers = Parsers(monkeypatch)

    def asked(*words: str) -> tuple[list[str], argparse.ArgumentParser | None, str]:
        monkeypatch.setattr(sys, "argv", [program, *words, "--help"])
        parsers.clear()
        with pytest.raises(SystemExit) as end:
            runpy.run_module(program, run_name="__main__")
        said = capsys.readouterr()
        assert not end.value.code and not said.err, words
        return list(words), parsers[0] if parsers else None, " ".join(said.out.split())

    first = asked()
    yield first
    for command in commands(program, first[1]):
        found = asked(command)
        yield found
        for action in found[1]._actions if found[1] else ():
            if not action.option_strings:  # its choices are commands of the command
                yield from (asked(command, choice) for choice in action.choices or ())


def expected(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """What is said of an option, with its defaults and percent signs in place."""
    return " ".join(parser._get_formatter()._expand_help(action).split())


def test_programs_are_found() -> None:
    assert {"compressors", "reports", "sweep", "trainers.topology", "trainers.consensus"} <= set(programs())


@pytest.mark.filterwarnings(TWICE)
@pytest.mark.parametrize("program", programs())
def test_help_tells_every_option(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, parser, text in helps(program, monkeypatch, capsys):
        typed = " ".join([program, *words])
        if not words:
            for command, summary in commands(program, parser).items():
                assert f"{command} {summary}" in text and summary, f"{typed}: {command}"
        assert text.startswith(f"usage: python -m {program}{f' {words[0]}' if words else ''}"), typed
        assert "%" not in re.sub(r"\d %", "", text) and "Traceback" not in text, typed
        assert not re.search(r"\b(Args|Raises|Returns):", text), f"{typed}: a docstring for programmers"
        if parser is None:
            assert words == [], typed
            continue
        assert parser.description, typed
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
            assert action.help, f"{typed}: nothing is said of {name}"
            assert f"{name} " in text and expected(parser, action) in text, f"{typed}: {name}"


PROGRAM = re.compile(r"python -m ((?:compressors|reports|sweep|trainers)[.\w]*)((?: [^`|#\n]*)?)")


def documented() -> Iterator[tuple[str, str, str]]:
    """Where a page shows a command with options, its program, and what follows it."""
    for page in DOCS:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            yield from ((f"{page.name}:{number}", *found) for found in PROGRAM.findall(line))


@pytest.mark.filterwarnings(TWICE)
@pytest.mark.parametrize("program", programs())
def test_options_of_the_docs_and_of_the_parsers_are_the_same(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {
        " ".join(words): {name for action in parser._actions for name in action.option_strings}
        for words, parser, _ in helps(program, monkeypatch, capsys)
        if parser is not None
    }
    shown = 0
    for place, name, words in documented():
        command = next((word for word in words.split()[:1] if word in known), "")
        for option in re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*|-f\b)", words) if name == program else ():
            assert option in known[command], f"{place}: python -m {name}{words}"
            shown += 1
    assert shown
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS)
    named = set(re.findall(r"--[a-z][a-z-]*", text))
    untold = {
        f"{command} {name}".strip()
        for command, options in known.items()
        for name in options - named - {"--help"}
        if name.startswith("--")
    }
    assert not untold


@pytest.mark.parametrize(
    ("page", "head", "program"),
    [("reports.md", "| `python -m reports` | |", "reports"), ("sweeps.md", "| command | what it does |", "sweep")],
)
def test_the_tables_of_commands_are_the_programs(page: str, head: str, program: str) -> None:
    table = (ROOT / "docs/guide" / page).read_text(encoding="utf-8").split(head)[1].split("\n\n")[0]
    rows = re.findall(rf"^\| `(?:python -m {program} )?([a-z]+)\b", table, re.MULTILINE)
    assert sorted(rows) == sorted(importlib.import_module(f"{program}.__main__").COMMANDS)


def loaded(program: str, words: list[list[str]]) -> dict[str, list[str]]:
    """The modules that are loaded by the time each of these has got its help, in one process."""
    code = f"""
import contextlib, json, runpy, sys
found = {{}}
for words in {words!r}:
    sys.argv = [{program!r}, *words, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_module({program!r}, run_name="__main__")
    found[" ".join(words)] = [name for name in {HEAVY[program]!r} if name in sys.modules]
print("\\n" + json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.filterwarnings(TWICE)
@pytest.mark.parametrize("program", HEAVY)
def test_help_loads_nothing_heavy(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = loaded(program, [words for words, _, _ in helps(program, monkeypatch, capsys)])
    assert len(found) > 3 and not any(found.values()), found
