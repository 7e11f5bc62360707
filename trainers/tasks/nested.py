"""Tensors within tuples, lists and dicts, as batches of own data sets have them; dimension 0 is that of the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Return the same structure with `function` applied to each tensor; whatever is neither stays as it is."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(function, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(map_tensors(function, item) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(function, item) for item in value)
    return value


def list_tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors of a structure, in its order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in list_tensors(part)]


def count_rows(value: Any) -> int:
    """Return the number of samples of a structure, which all its tensors have as their first dimension; 0 if none."""
    tensors = list_tensors(value)
    return len(tensors[0]) if tensors and tensors[0].dim() else 0


def split_rows(value: Any, count: int) -> list[Any]:
    """Split a structure into `count` with the same structure and similar numbers of samples, as `tensor_split` does."""
    if isinstance(value, torch.Tensor):
        return list(value.tensor_split(count))
    return [_take_part(value, count, number) for number in range(count)]


def _take_part(value: Any, count: int, number: int) -> Any:
    return map_tensors(lambda tensor: tensor.tensor_split(count)[number], value)
