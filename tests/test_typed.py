"""Every command of the README, the docs and the comments of conf/ can be typed: as it is printed, into a shell.

Commands stand in blocks, behind `$ ` or not, and in inline code; those in the tables of docs/guide/README.md may be
shorter (see `rows`). Nothing is started (tests/unstarted.py). A page that shows a command which is refused shows the
line that refuses it under it; nothing else marks it. Not typed are a command with ... for a word, which is a part of
one, a synopsis, whose words in [brackets] may be left out, and the pages that add classes, whose commands want them
(tests/compressors/test_add_a_compressor.py, tests/test_plugins.py, tests/test_your_own.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.plugin_distribution import read_block
from tests.test_help import programs

README, GUIDE = ROOT / "README.md", ROOT / "docs/guide/README.md"
ADDING = {ROOT / "docs/guide" / f"{name}.md" for name in ("add-a-compressor", "plugins", "your-own")}
PAGES = [README, GUIDE, ROOT / "CONTRIBUTING.md", *sorted(set(ROOT.glob("docs/**/*.md")) - {*ADDING, GUIDE})]
PRESETS = sorted(ROOT.glob("conf/**/*.yaml"))
PROGRAM = rf"(?:python (?:multirun\.py|-m (?:{'|'.join(map(re.escape, programs()))})(?![.\w]))|gradsweep(?= ))"
COMMAND = re.compile(rf'\s*(?:\$ )?((?:[A-Z_]+=\S+ )*(?:eval "\$\()?{PROGRAM}.*)')
NAME = re.compile(rf"{PROGRAM}(?: [a-z]+)?")
"""Of a program or of one of its commands: no more is typed where a text only speaks of it."""
COMMENT = re.compile(r"\s{2,}\S.*| +# .*")
PART = re.compile(r"[A-Z\s]\.\.\.(?!\S)|\s\[[A-Z-]|->")
NO_COMMANDS = [
    "kill -USR1",
    "make gpu",
    'gradsweep.load("output")',
    'model.register_comm_hook(*gradsweep.ddp_hook("topk", ratio=0.01))',
]
PROGRAMS = ("srun", "sbatch", "squeue", "sacct", "scancel", "scontrol", "notify-send", "mail-me")
"""Of other packages: they have to be there, no more."""


@dataclasses.dataclass(frozen=True)
class Command:
    """What is to be typed, and where it stands."""

    place: str
    text: str
    below: str = ""
    """What the page shows under it: the next line of its block."""


def commands(pages: Sequence[Path]) -> list[Command]:
    """Those of some pages, each once."""
    found: dict[str, Command] = {}
    for page in pages:
        for command in [*written(page), *(rows() if page == GUIDE else ())]:
            found.setdefault(command.text, command)
    return list(found.values())


def written(page: Path) -> Iterator[Command]:
    """The commands of a page that stand there in full."""
    name, text = str(page).removeprefix(f"{ROOT}/"), page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        text = re.sub("^#", " ", text, flags=re.MULTILINE)
    for code in re.findall(r"^```.*\n((?:.*\n)*?)```$|((?:^ {4}.*\n)+)", text, re.MULTILINE):
        lines = re.sub(r"\\\n\s*", "", "".join(code)).splitlines()
        for number, line in enumerate(lines):
            if (command := COMMAND.fullmatch(line)) and not PART.search(line):
                yield Command(name, COMMENT.sub("", command[1]), "".join(lines[number + 1 : number + 2]).strip())
    for code in inline(re.sub(r"^```.*\n(?:.*\n)*?```$|(?:^ {4}.*\n)+", "\n", text, flags=re.MULTILINE)):
        if COMMAND.fullmatch(code) and not PART.search(code) and not NAME.fullmatch(code):
            yield Command(name, code)


def inline(text: str) -> list[str]:
    """The inline code of a text, each in one line."""
    paragraphs = re.split(r"\n\s*\n|\n(?=\|)", text)
    return [" ".join(code.split()) for each in paragraphs for code in re.findall(r"`([^`]+)`", each)]


def rows() -> Iterator[Command]:
    """Yield the commands of the tables of docs/guide/README.md, in full.

    Words that begin with a key or a flag stand behind `python multirun.py`. Others go on with what stands before them
    in the row: a command of the same program, another value of the same key.
    """
    for row in table():
        before = ""
        for code in inline(row):
            module, key = re.match(r"python -m \S+ ", f"{before} "), re.match(r"[\w./]+=", before)
            if not COMMAND.fullmatch(code) and not re.match(r"'?-|'?[\w./]+=", code):
                code = f"{module[0]}{code}" if module else f"{key[0]}{code}" if key else code
            before = code
            if code not in NO_COMMANDS:
                yield Command(
                    f"docs/guide/README.md, {row.split('|')[1].strip()}",
                    code if COMMAND.fullmatch(code) else f"python multirun.py {code}",
                )


def table() -> list[str]:
    """Return the rows of the guide's tables of what one may type."""
    parts = GUIDE.read_text(encoding="utf-8").split("| you want | type |\n|---|---|\n")[1:]
    return [row for part in parts for row in part.split("\n\n")[0].splitlines()]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell in which `python` and `gradsweep` write down their words, the latter its name first.

    The machine has what pages speak of.
    """
    programs = tmp_path_factory.mktemp("bin")
    for name in ("python", "gradsweep", *PROGRAMS):
        first = "gradsweep " if name == "gradsweep" else ""
        (programs / name).write_text(f"""#!/bin/sh\n[ -z "$TYPED" ] || printf '%s\\0' {first}"$@" > "$TYPED"\n""")
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "0,1"}


def words_of(command: str, shell: dict[str, str], directory: Path) -> list[str]:
    """What a shell makes of a command: the words that Python gets, or `gradsweep` and its words.

    Raises:
        ValueError: the shell refuses it; so are unquoted [brackets], which only some shells take as they are.
    """
    typed = directory / "typed"
    typed.write_text("")
    done = subprocess.run(
        ["bash", "-O", "failglob", "-c", command],
        cwd=directory,
        env={**shell, "TYPED": str(typed)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if not typed.read_text():
        raise ValueError(done.stderr.strip())
    return typed.read_text().split("\0")[:-1]


@pytest.mark.parametrize(
    ("pages", "least"),
    [
        pytest.param(PAGES[:1], 7, id="README"),
        pytest.param(PAGES[1:2], 60, id="guide", marks=pytest.mark.thorough),
        pytest.param(PAGES[2:], 100, id="docs", marks=pytest.mark.thorough),
        pytest.param(PRESETS, 40, id="conf", marks=pytest.mark.thorough),
    ],
)
def test_commands_work_as_they_are_printed(
    pages: list[Path], least: int, shell: dict[str, str], tmp_path: Path
) -> None:
    found = commands(pages)
    assert len(found) > least
    (tmp_path / "mine.py").write_text(read_block("your-own.md", "python"), encoding="utf-8")
    (tmp_path / "nets.py").write_text(read_block("../../README.md", "python"), encoding="utf-8")
    for name in ("train.py", "train_ddp.py"):
        shutil.copy(ROOT / "docs/guide/examples/train_ddp.py", tmp_path / name)
    assert not (wrong := mistakes(found, shell, tmp_path)), "\n".join(wrong)


@pytest.mark.thorough
def test_commands_that_do_not_work_are_found(shell: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    wrong = mistakes(list(written(page)), shell, tmp_path)
    assert [each.partition("\n")[0].partition(": ")[2] for each in wrong] == [
        "python multirun.py -m seed=range(4)",
        "python multirun.py workers=0",
        "python multirun.py workers=2",
        "gradsweep workers=-1",
        "python multirun.py memory=dgc",
        "python -m reports show RUN --al",
        "gradsweep show RUN --al",
    ]


PAGE = """
    $ python multirun.py -m seed=range(4)
    $ python multirun.py workers=0
    workers=0: valid is something else
    $ python multirun.py workers=0 seed=1
    workers=0: valid is an integer from 1 to ...
    $ python multirun.py workers=2
    workers=2: valid is an integer from 3 up
    $ gradsweep workers=-1
    $ gradsweep workers=3

Such as `python multirun.py memory=dgc` or `python -m reports show RUN --al` or `gradsweep show RUN --al`, but not
`python -m sweep logs` or `gradsweep logs`, which are names, `python -m sweep logs [DIR] RUN` or
`python multirun.py -m ... seed=a`.
"""


def mistakes(found: list[Command], shell: dict[str, str], directory: Path) -> list[str]:
    """What is wrong with commands, or with what their pages say of them, for each of which that is so."""
    wrong, typed = [], {}
    for command in found:
        try:
            typed[command] = words_of(command.text, shell, directory)
        except ValueError as error:
            wrong.append(f"{command.place}: {command.text}\n  {error}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/unstarted.py")],
        cwd=directory,
        env=shell,
        input="\n".join(map(json.dumps, typed.values())),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for command, line in zip(typed, done.stdout.splitlines(), strict=True):
        status, said = json.loads(line)
        if why := mistaken(command, status, said.strip()):
            wrong.append(f"{command.place}: {command.text}\n  {why}")
    return wrong


def mistaken(command: Command, status: int, said: str) -> str:
    """What is wrong with a command and what a page says of it; nothing where it is right."""
    if status == 0:
        is_run = re.search(r"multirun\.py|^gradsweep ", command.text)
        refused = is_run and ": valid is " in command.below
        return f"is not refused: {command.below}" if refused else ""
    shown = re.escape(command.below).replace(re.escape("..."), ".*")
    return "" if status == 2 and shown and re.fullmatch(shown, said) else said or f"exit status {status}"
