"""The command `gradsweep`: its subcommands, and how texts name commands.

`gradsweep status` is `python -m sweep status`, and `gradsweep KEY=VALUE...` is `python multirun.py KEY=VALUE...`. Texts
of all programs name commands as they are typed with `python`; `adapt_commands` rewrites them for users of `gradsweep`.
"""

from __future__ import annotations

import re
import sys
from pathlib import PurePath

NAME = "gradsweep"
COMMANDS = {
    "sweep": ("status", "watch", "resume", "cancel", "logs", "probe"),
    "reports": ("list", "show", "diff", "serve", "network", "advise", "scaling", "simulate", "export", "prune"),
}
"""Commands of a program that are subcommands by their own name."""
PROGRAMS = {
    "report": ("reports", "tables, plots and pages again, from the runs alone"),
    "compressors": ("compressors", "list, show, check and bench the compressors"),
    "topology": ("trainers.topology", "graphs of workers for decentralised training"),
}
"""Subcommands that are whole programs: the module that `python -m` runs, and a summary."""

_NAMES = {module: word for word, (module, _) in PROGRAMS.items()}
_TYPED = re.compile(
    r"python (?:multirun\.py(?P<help> --help)?"
    rf"|-m (?P<module>{'|'.join(map(re.escape, {**COMMANDS, **_NAMES}))})(?!\.?\w)(?: (?P<command>[a-z]+))?)"
)
_GAP = re.compile(r"(?<=\S) {3,}(?=\S)")


def list_names() -> list[str]:
    """List all subcommands of `gradsweep`."""
    return [*(name for names in COMMANDS.values() for name in names), *PROGRAMS]


def find_program(word: str) -> tuple[str, list[str]] | None:
    """Return the module that a subcommand runs, and the word that it puts before the user's; None without such one."""
    if word in PROGRAMS:
        return PROGRAMS[word][0], []
    return next(((module, [word]) for module, names in COMMANDS.items() if word in names), None)


def is_typed() -> bool:
    """Tell whether the user has started this process by typing `gradsweep`."""
    return find_script() is not None or PurePath(sys.argv[0]).parts[-3:] == (NAME, "cli", "__main__.py")


def find_script() -> str | None:
    """Return the path of the installed script `gradsweep` that this process runs; None if it runs something else."""
    return sys.argv[0] if PurePath(sys.argv[0]).name == NAME else None


def read_command_line() -> list[str]:
    """Return this process's command line as typed, with `python` for the interpreter's path."""
    words, script = sys.orig_argv, find_script()
    if script is not None and script in words:
        return [NAME, *words[words.index(script) + 1 :]]
    return ["python", *words[1:]]


def adapt_commands(text: str) -> str:
    """Return a text in which commands have the form that the user has typed: with `python`, or with `gradsweep`."""
    return _TYPED.sub(_translate, text) if is_typed() else text


def adapt_columns(text: str) -> str:
    """Adapt the commands of a text in columns; the columns behind commands stay where they are."""
    return "\n".join(map(_adapt_line, text.split("\n"))) if is_typed() else text


def _adapt_line(line: str) -> str:
    adapted = _TYPED.sub(_translate, line)
    gap, shorter = _GAP.search(adapted), len(line) - len(adapted)
    return adapted if gap is None else adapted[: gap.start()] + " " * shorter + adapted[gap.start() :]


def _translate(typed: re.Match[str]) -> str:
    module, command = typed["module"], typed["command"]
    if module is None:
        return f"{NAME} -m --help" if typed["help"] else NAME
    own = command in COMMANDS.get(module, ())
    return " ".join(filter(None, [NAME, None if own else _NAMES.get(module), command]))
