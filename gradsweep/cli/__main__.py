"""`gradsweep`: all programs as one command; `gradsweep --help` lists its subcommands.

The exit status is that of the program. A subcommand loads its own program only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from gradsweep.cli import command_names
from gradsweep.cli.command_names import COMMANDS, NAME, PROGRAMS
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean, one_of

HELP = ("--help", "-h", "help")
HEADINGS = {"sweep": "Sweeps, from any shell:", "reports": "Results:"}
USAGE = """\
usage: gradsweep KEY=VALUE...        one run: gradsweep compressor=svd workers=2
       gradsweep -m KEY=VALUE,...    a sweep: gradsweep -m compressor=qsgd,svd,none workers=2,4
       gradsweep -m --help           all keys; gradsweep compressor=topk --help: the options of a choice
       gradsweep COMMAND ...         COMMAND --help tells more"""
FOOTER = """\
gradsweep --version prints what is installed. Tab completion: eval "$(gradsweep -sc install=bash)\""""


def main() -> int:
    """Run the command line, and return its exit status."""
    try:
        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def run(words: Sequence[str]) -> int:
    """Run the program of a subcommand, or multirun.py if the words are those of a run or a sweep."""
    first = words[0] if words else HELP[0]
    if first in HELP and len(words) < 2:
        return _answer(format_help)
    if first == "--version":
        from gradsweep.cli.version import version

        return _answer(version)
    if (found := command_names.find_program(first)) is not None:
        module, before = found
        return int(importlib.import_module(f"{module}.__main__").main([*before, *words[1:]]))
    if first in ("-sc", "--shell-completion"):
        from gradsweep.cli import completion

        if completion.answer(words[1:]):
            return 0
    elif "=" not in first and first[:1] not in ("-", "+", "~"):
        return _answer(lambda: _refuse(first))
    return int(importlib.import_module("multirun").run_command_line())


def _answer(build_text: Callable[[], str]) -> int:
    """Print a text, and return the command's exit status."""
    from gradsweep.cli.exit_status import run_command  # no subcommand waits for it

    def print_text() -> int:
        print(build_text())
        return 0

    return run_command(NAME, print_text)


def _refuse(word: str) -> NoReturn:
    names = command_names.list_names()
    shown = word if word.isprintable() else repr(word)
    valid = one_of(names, f"{NAME} --help", "commands")
    raise UsageError(f"{shown}: {did_you_mean(word, names)}valid is KEY=VALUE, or {valid}")


def format_help() -> str:
    """Return the list of all subcommands with their summaries."""
    lines = [USAGE]
    for module, names in COMMANDS.items():
        summaries = importlib.import_module(f"{module}.__main__").COMMANDS
        own = {name: summary for name, (program, summary) in PROGRAMS.items() if program == module}
        lines += ["", HEADINGS[module], *_format_lines({**own, **{name: summaries[name] for name in names}})]
    others = {name: summary for name, (program, summary) in PROGRAMS.items() if program not in COMMANDS}
    return "\n".join([*lines, "", "Methods:", *_format_lines(others), "", FOOTER])


def _format_lines(summaries: dict[str, str]) -> list[str]:
    return [f"  {name:11}  {summary}" for name, summary in summaries.items()]


if __name__ == "__main__":
    sys.exit(main())
