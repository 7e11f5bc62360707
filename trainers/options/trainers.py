"""Trainers by name: the program that trains a run, ours or the user's own (docs/guide/own-scripts.md)."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsweep.options.parameters import Checked, sequence

COMMAND = "a program and its arguments, such as [python,train.py]"


@dataclasses.dataclass(frozen=True)
class OwnTraining(Checked):
    """Gradsweep's own training, which all other groups of the config describe."""


@dataclasses.dataclass(frozen=True)
class Script(Checked):
    """A program of the user, which every rank starts in place of our training.

    Args:
        command: the program and its arguments.
        directory: where it is started; null: where the command was typed.
    """

    command: list[str] = sequence(COMMAND, lambda word: isinstance(word, str) and bool(word) and "\0" not in word)
    directory: str | None = None


TRAINERS: dict[str, type[Any]] = {"sgd": OwnTraining, "script": Script}
