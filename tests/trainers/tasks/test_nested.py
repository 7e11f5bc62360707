"""Tensors in tuples, lists and dicts."""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainers.tasks.base import count_labels
from trainers.tasks.nested import count_rows, list_tensors, map_tensors, split_rows


class Pair(NamedTuple):
    one: torch.Tensor
    other: list[torch.Tensor]


def test_structures_stay() -> None:
    value = {"a": torch.ones(3), "b": (torch.ones(3, 2), ["text", 5]), "c": Pair(torch.ones(3), [torch.ones(3)])}
    doubled = map_tensors(lambda tensor: 2 * tensor, value)
    assert doubled.keys() == value.keys() and doubled["b"][1] == ["text", 5] and isinstance(doubled["c"], Pair)
    assert [float(tensor.sum()) for tensor in list_tensors(doubled)] == [6, 12, 6, 6]
    assert count_rows(value) == 3 and count_rows({"a": 1}) == count_rows(torch.tensor(1.0)) == 0


def test_parts_are_those_of_tensor_split() -> None:
    tensor, other = torch.arange(7), torch.arange(14).view(7, 2)
    parts = split_rows({"a": tensor, "b": (other,)}, 3)
    assert [len(part["a"]) for part in parts] == [3, 2, 2]
    assert torch.equal(torch.cat([part["a"] for part in parts]), tensor)
    assert torch.equal(torch.cat([part["b"][0] for part in parts]), other)
    assert [torch.equal(one, two) for one, two in zip(split_rows(tensor, 3), tensor.tensor_split(3), strict=True)]


def test_samples_are_counted_by_targets_or_else_outputs() -> None:
    assert count_labels(torch.zeros(3), torch.zeros(5)) == 3
    assert count_labels({"none": 1}, (torch.zeros(5, 2),)) == 5
