"""Tab completion of `gradsweep`: subcommands and their arguments; Hydra completes the keys and values of runs.

The functions for the shells are Hydra's: `eval "$(gradsweep -sc install=bash)"`. On each Tab they start
`gradsweep -sc query=bash` with the line in COMP_LINE. Without completions, the shell offers names of files.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Sequence

from gradsweep.cli import command_names
from gradsweep.source_tree import CONF

LINE = "COMP_LINE"
OVERRIDES = "probe"
"""The subcommand whose words are keys of a run."""
GROUPS = {"compressors": "compressor", "trainers.topology": "topology"}
"""Programs whose words are names in a group of conf/."""


def answer(words: Sequence[str]) -> bool:
    """Answer a shell's question, unless it is a matter of Hydra's; return whether it is answered.

    Args:
        words: the words behind `-sc`, such as `query=bash`.
    """
    line = os.environ.get(LINE, "")
    if not (words and words[0].startswith("query=")):
        return False
    typed = line.split()[1:]
    begun = typed.pop() if typed and not line[-1:].isspace() else ""
    if not typed:  # a key of a run may stand here, too
        print("\n".join(name for name in command_names.list_names() if name.startswith(begun)))
        return False
    if (found := command_names.find_program(typed[0])) is None:
        return False
    if typed[0] == OVERRIDES and not begun.startswith("-"):
        os.environ[LINE] = line.replace(f" {OVERRIDES}", "", 1)
        return False
    module, before = found
    print("\n".join(complete(module, [*before, *typed[1:]], begun)))
    return True


def complete(module: str, words: Sequence[str], begun: str) -> list[str]:
    """Return the completions of a word that has begun after `words` of a program (`python -m module`).

    These are commands, options and their choices, and names of methods. They are empty where any file may stand.
    """
    program = importlib.import_module(f"{module}.__main__")
    commands = list(getattr(program, "COMMANDS", ()))
    if commands and not words:
        found = commands if begun[:1] != "-" else _list_options(program.build_parser(None))
    else:
        command = words[0] if commands and words[0] in commands else None
        found = _list_words(program.build_parser(command), words[command is not None :], begun)
        if not found and module in GROUPS and not any(word.startswith("-") for word in (*words[-1:], begun)):
            found = sorted(path.stem for path in (CONF / GROUPS[module]).glob("*.yaml"))
    return [word for word in found if word.startswith(begun)]


def _list_words(parser: argparse.ArgumentParser, words: Sequence[str], begun: str) -> list[str]:
    """List what may stand after `words`: options if the word begins with -, else choices; empty where it is free."""
    actions = parser._actions
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            commands: dict[str, argparse.ArgumentParser] = dict(action.choices)
            chosen = next((number for number, word in enumerate(words) if word in commands), None)
            if chosen is not None:
                return _list_words(commands[words[chosen]], words[chosen + 1 :], begun)
            return _list_options(parser) if begun[:1] == "-" else list(commands)
    if begun[:1] == "-":
        return _list_options(parser)
    options = {name: action for action in actions for name in action.option_strings}
    last = options.get(words[-1]) if words else None
    if last is not None and last.nargs != 0:
        return list(map(str, last.choices or ()))
    taken = 0
    for word, previous in zip(words, ["", *words], strict=False):
        before = options.get(previous)
        taken += word[:1] != "-" and (before is None or before.nargs == 0)
    positionals = [action for action in actions if not action.option_strings]
    return list(map(str, positionals[taken].choices or ())) if taken < len(positionals) else []


def _list_options(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
