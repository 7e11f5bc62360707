"""Tasks by name: the loss of a batch, and the metrics of an evaluation."""

from __future__ import annotations

from typing import Any

from gradsweep.errors import UsageError
from trainers.options import tasks as options
from trainers.tasks.base import Task


def build(config: Any, kind: str, labels: str = "classification", characters_per_token: float | None = None) -> Task:
    """Build the task that `config` describes, one of the dataclasses of trainers.options.tasks.

    Args:
        kind: of the data, such as `images` or `text`.
        labels: what the data set's labels are for (`Feed.task`), which `auto` chooses.
        characters_per_token: of the test set of a text; None: it has no characters.

    Raises:
        UsageError: the target of an own task cannot be used, or no task but an own one suits the labels.
    """
    if isinstance(config, options.Custom):
        from trainers.tasks.custom import Custom

        return Custom(config, is_text=kind == "text")
    if isinstance(config, options.Auto) and labels == "custom":
        raise UsageError("task=auto: the labels of the data set are several tensors; valid is task=custom")
    if isinstance(config, options.Regression) or (isinstance(config, options.Auto) and labels == "regression"):
        from trainers.tasks.regression import Regression

        return Regression()
    from trainers.tasks.classification import Classification, Language

    return Language(characters_per_token) if kind == "text" else Classification()
