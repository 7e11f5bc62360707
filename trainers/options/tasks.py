"""Tasks by name: the loss of a run and the metrics of its evaluations; trainers/tasks implements them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from gradsweep.options.parameters import Checked, mapping
from trainers.options.own_code import ARGS, target


@dataclasses.dataclass(frozen=True)
class Task(Checked):
    """The base of all tasks' options."""

    metrics: ClassVar[tuple[str, ...]] = ()
    """The names of the task's metrics besides the loss; those of an own task are known when it is called."""


@dataclasses.dataclass(frozen=True)
class Auto(Task):
    """The task that suits the data set: language for text, regression for labels that are real numbers, or
    classification."""


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Cross-entropy of outputs (n, classes) for labels (n,), and accuracy."""

    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)


@dataclasses.dataclass(frozen=True)
class Language(Classification):
    """Cross-entropy of outputs (n, length, words) for the words (n, length) that come next, accuracy, perplexity, and
    bits per character if the text has characters."""

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "perplexity", "bits_per_character")


@dataclasses.dataclass(frozen=True)
class Regression(Task):
    """Mean squared error of outputs for targets of the same shape, mean absolute error `mae`, and `r2`."""

    metrics: ClassVar[tuple[str, ...]] = ("mae", "r2")


@dataclasses.dataclass(frozen=True)
class Custom(Task):
    """The task that an own function or class returns (docs/guide/your-own.md)."""

    target: str = target()
    args: dict[str, Any] = mapping(ARGS)


TASKS: dict[str, type[Task]] = {
    "auto": Auto,
    "classification": Classification,
    "regression": Regression,
    "language": Language,
    "custom": Custom,
}
