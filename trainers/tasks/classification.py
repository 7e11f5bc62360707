"""Classification, and language: a classification of the next word at every position."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from gradsweep.errors import UsageError
from trainers.tasks.base import IGNORED, Scores, Sums, Task, describe


class Classification(Task):
    """Cross-entropy, and the share of labels that are predicted correctly.

    Outputs are (n, classes) for labels (n,), or (n, length, classes) for labels (n, length), int64. Labels that are
    IGNORED do not count.
    """

    fixed = ("loss", "correct", "labels")
    key = "task=classification"
    by_label: ClassVar[bool] = False
    """Whether the labels of a sample count one by one in training. If not, a sample with several labels counts by the
    mean over them, because how many they are is known to their worker only."""

    def sum_losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scores, labels = flatten_scores(outputs, targets)
        if self.by_label or targets.dim() == 1:
            return F.cross_entropy(scores, labels, reduction="sum")
        return _average_by_sample(F.cross_entropy(scores, labels, reduction="none"), targets).sum()

    def count_correct(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scores, labels = flatten_scores(outputs, targets)
        correct = scores.detach().argmax(1) == labels
        if self.by_label or targets.dim() == 1:
            return correct.sum()
        return _average_by_sample(correct.float(), targets).sum()

    def judge(self, outputs: torch.Tensor, targets: torch.Tensor) -> Sums:
        scores, labels = flatten_scores(outputs, targets)
        sums = (
            float(F.cross_entropy(scores, labels, reduction="sum")),
            float((scores.argmax(1) == labels).sum()),
            float((labels != IGNORED).sum()),
        )
        return dict(zip(self.fixed, map(np.array, sums), strict=True))

    def summarise(self, sums: Sums) -> Scores:
        return Scores(float(sums["loss"] / sums["labels"]), float(sums["correct"] / sums["labels"]), {})


class Language(Classification):
    """Classification of the next token at every position of a text.

    Metrics are the perplexity, exp(loss), and the bits per character, loss / ln 2 / (characters per token).

    Args:
        characters_per_token: of the test set; None: it has no characters, and no bits per character.
    """

    key = "task=language"
    by_label = True

    def __init__(self, characters_per_token: float | None = None) -> None:
        self.characters_per_token = characters_per_token

    def summarise(self, sums: Sums) -> Scores:
        scores = super().summarise(sums)
        metrics = {"perplexity": float(np.exp(scores.loss))}
        if self.characters_per_token is not None:
            metrics["bits_per_character"] = scores.loss / math.log(2) / self.characters_per_token
        return scores._replace(metrics=metrics)


def _average_by_sample(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean of the values, one for each label, of each sample, (n,); those of IGNORED labels are 0."""
    counts = (labels != IGNORED).flatten(1).sum(1).clamp(min=1)
    return values.view(labels.shape).flatten(1).sum(1) / counts


def flatten_scores(outputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Reshape outputs to (n, classes) and labels to (n,), because language models have outputs for every position."""
    return outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1)


def check_outputs(outputs: object, targets: object, classes: int, key: str) -> None:
    """Check that a classifier's outputs have the shape of its labels and a number for each class.

    Args:
        key: the key and value of the model in the config, which the error names.

    Raises:
        UsageError: they have not.
    """
    if not isinstance(targets, torch.Tensor) or targets.dtype != torch.int64:
        raise UsageError(
            f"task=classification: the labels are {describe(targets)}; valid are numbers of classes as int64, or "
            f"task=regression or custom"
        )
    expected = (*targets.shape, classes)
    if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != expected:
        raise UsageError(
            f"{key}: the output is {describe(outputs)} for labels {tuple(targets.shape)}; valid is a tensor "
            f"{expected}, a number for each of the {classes} classes, or a task of your own (task=custom)"
        )
