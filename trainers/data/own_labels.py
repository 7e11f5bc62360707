"""Labels of the user's own data: which there are, and how many classes."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from gradsweep.errors import bad_value
from trainers.data.feeds import IGNORED
from trainers.data.own_samples import refuse
from trainers.options.datasets import Custom
from trainers.options.sections import Partition


def count_classes(options: Custom, task: str, *labels: np.ndarray) -> int:
    """Return the width of the model's output for labels (N, ...): for classes, `dataset.classes` or 1 + the largest.

    Raises:
        UsageError: labels are below 0, or not below `dataset.classes`, or this is given for real numbers.
    """
    if task == "regression":
        if options.classes is not None:
            raise bad_value("dataset.classes", options.classes, "null with targets that are real numbers")
        return math.prod(labels[0].shape[1:])
    kept = [each[each != IGNORED] for each in labels]
    least, most = (int(function([function(each) for each in kept if each.size] or [0])) for function in (min, max))
    if least < 0:
        raise refuse(options, f"labels from 0 up, or {IGNORED} for none: the smallest is {least}")
    if options.classes is not None and most >= options.classes:
        raise bad_value("dataset.classes", options.classes, f"an integer from {most + 1} up: there is a label {most}")
    return options.classes or most + 1


def require_classes(partition: Partition, task: str) -> None:
    """Refuse a partition by class of data without classes.

    Raises:
        UsageError: names the partition.
    """
    if partition.by_class and task != "classification":
        valid = "iid or contiguous with targets of dataset=custom that are no classes"
        raise bad_value("partition.scheme", partition.scheme, valid)


def find_labels(part: Any, at_ends: torch.Tensor) -> np.ndarray | None:
    """Return the labels (N,) of a data set as it tells them itself, without reading a sample.

    Args:
        at_ends: labels of its first and last sample.

    Returns:
        None if it does not tell them, or tells others than its samples have, such as before a `target_transform`.
    """
    labels = _find_told_labels(part)
    if labels is None or not np.array_equal(labels[[0, -1]][: len(at_ends)], at_ends.numpy()):
        return None
    return labels


def _find_told_labels(part: Any) -> np.ndarray | None:
    if isinstance(part, Subset):
        labels = _find_told_labels(part.dataset)
        return None if labels is None else labels[np.asarray(part.indices, dtype=np.int64)]
    if isinstance(part, ConcatDataset):
        pieces = [_find_told_labels(piece) for piece in part.datasets]
        return None if any(piece is None for piece in pieces) else np.concatenate(pieces)  # type: ignore[arg-type]
    if isinstance(part, TensorDataset):
        return _convert_labels(part.tensors[-1], len(part))
    for name in ("targets", "labels"):
        with contextlib.suppress(Exception):
            if (labels := _convert_labels(getattr(part, name), len(part))) is not None:
                return labels
    return None


def _convert_labels(value: Any, count: int) -> np.ndarray | None:
    if not isinstance(value, (list, tuple, np.ndarray, torch.Tensor)) or len(value) != count:
        return None
    labels = np.asarray(value)
    return labels.astype(np.int64) if labels.ndim == 1 and labels.dtype.kind in "iub" else None
