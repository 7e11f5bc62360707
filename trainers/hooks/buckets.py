"""The buckets that DistributedDataParallel makes of its parameters, the units in them, and states by parameter.

DDP makes other buckets after its first step, in the order in which gradients were ready. So the units of a bucket are
known by their parameters, and a state that was kept for other buckets is cut anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from gradsweep.errors import UsageError
from trainers.gradients.flat import Unit


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A bucket: its buffer, (n,), with the gradients of some parameters one after another."""

    buffer: torch.Tensor
    parameters: list[torch.Tensor]

    def is_same(self, other: Bucket) -> bool:
        """Tell whether both have the same parameters in the same memory."""
        return (
            self.buffer.data_ptr() == other.buffer.data_ptr()
            and len(self.parameters) == len(other.parameters)
            and all(one is another for one, another in zip(self.parameters, other.parameters, strict=True))
        )

    def cut_gradients(self) -> list[torch.Tensor]:
        """Return the gradient of each parameter, with its shape, as a view of the buffer."""
        pieces = self.buffer.split([parameter.numel() for parameter in self.parameters])
        return [piece.view(parameter.shape) for piece, parameter in zip(pieces, self.parameters, strict=True)]


class JoinedUnit(Unit):
    """All parameters of a bucket as a unit."""

    def __init__(self, index: int, bucket: Bucket) -> None:
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "name", f"bucket-{index}")
        object.__setattr__(self, "gradient", bucket.buffer)
        object.__setattr__(self, "_parameters", bucket.parameters)

    @property
    def values(self) -> torch.Tensor:
        """A copy of the parameters, one after another."""
        parameters: list[torch.Tensor] = self.__dict__["_parameters"]
        return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


class Numbering:
    """The numbers and names of the parameters, from the first step's buckets.

    Args:
        named: the model's parameters; None: they have no names, and are numbered in the order of the buckets. The first
            bucket has the last parameters of the model, but those in a bucket are in the order of the model.

    Raises:
        UsageError: a parameter is not among the named ones.
    """

    def __init__(self, buckets: Sequence[Bucket], named: Iterable[tuple[str, torch.Tensor]] | None) -> None:
        ordered = [parameter for bucket in reversed(buckets) for parameter in bucket.parameters]
        if named is None:
            self.names = [f"parameter-{number}" for number in range(len(ordered))]
        else:
            present = set(ordered)
            chosen = [(name, parameter) for name, parameter in named if parameter in present]
            if len(chosen) < len(ordered):
                raise UsageError(
                    f"module: {len(ordered) - len(chosen)} of the parameters in DistributedDataParallel's buckets are "
                    f"not in it; valid is the module that it wraps"
                )
            self.names = [name for name, _ in chosen]
            ordered = [parameter for _, parameter in chosen]
        self._numbers = {parameter: number for number, parameter in enumerate(ordered)}

    def find(self, bucket: Bucket) -> list[int]:
        """Return the numbers of a bucket's parameters."""
        return [self._numbers[parameter] for parameter in bucket.parameters]


class Layout:
    """The buckets of a step, and their units.

    Args:
        joined: a bucket is a unit; else every parameter is.

    Attributes:
        by_bucket: the units of each bucket, in the order of its parameters.
        units: all units, by index.
        members: the number and the count of elements of each parameter of a unit, by unit.
    """

    def __init__(self, buckets: Sequence[Bucket], numbering: Numbering, *, joined: bool) -> None:
        self.buckets = list(buckets)
        numbers = [numbering.find(bucket) for bucket in buckets]
        self.by_bucket: list[list[Unit]] = []
        self.members: list[list[list[int]]] = []
        for index, bucket in enumerate(buckets):
            if joined:
                self.by_bucket.append([JoinedUnit(index, bucket)])
                counts = [parameter.numel() for parameter in bucket.parameters]
                self.members.append([[number, count] for number, count in zip(numbers[index], counts, strict=True)])
            else:
                parts = zip(numbers[index], bucket.cut_gradients(), bucket.parameters, strict=True)
                names = numbering.names
                self.by_bucket.append([Unit(number, names[number], part, p.detach()) for number, part, p in parts])
        self.units = sorted((unit for units in self.by_bucket for unit in units), key=lambda unit: unit.index)
        if not joined:
            self.members = [[[unit.index, unit.gradient.numel()]] for unit in self.units]

    def has(self, buckets: Sequence[Bucket]) -> bool:
        """Tell whether the buckets are these."""
        return len(buckets) == len(self.buckets) and all(map(Bucket.is_same, self.buckets, buckets))


Members = Sequence[Sequence[Sequence[int]]]
"""The number and the count of elements of each parameter of a unit, by unit."""

NamedTensors = Mapping[str, Mapping[str, torch.Tensor]]
"""Tensors by unit, in the form of a saved state, and name."""


def recut_state(state: Mapping[str, Any], old: Members, fresh: Mapping[str, Any], new: Members) -> dict[str, Any]:
    """Return the state of an exchange, whose units were `old`, as the state of one whose units are `new`.

    Tensors with an element for each element of a unit are cut by parameter and joined anew, so that each parameter
    keeps its part. Other tensors of a memory (a learning rate) are those of the unit that had the first parameter.
    Compressors with other tensors begin anew, and so do Accordion and a second phase.

    Args:
        fresh: the state of the new exchange before its first step.
    """
    selector = state["selector"]
    kept = {
        key: _recut(tensors, old, new)
        for key, tensors in selector["compressors"].items()
        if not _find_scalars(tensors, old)
    }
    before = _recut({unit: {"values": values} for unit, values in state["before"].items()}, old, new)
    return {
        **fresh,
        "memory": state["memory"],
        "kept": _recut(state["kept"], old, new),
        "selector": {**fresh["selector"], "epoch": selector["epoch"], "lr": selector["lr"], "compressors": kept},
        "before": {unit: named["values"] for unit, named in before.items()} if len(before) == len(new) else {},
    }


def _find_scalars(tensors: NamedTensors, members: Members) -> bool:
    """Tell whether a tensor has another shape than its unit."""
    counts = [sum(count for _, count in unit) for unit in members]
    return any(tensor.shape != (counts[int(unit)],) for unit, named in tensors.items() for tensor in named.values())


def _recut(tensors: NamedTensors, old: Members, new: Members) -> dict[str, dict[str, torch.Tensor]]:
    """Return tensors by new units; parameters that had none get zeros if others of their unit had some."""
    parts: dict[int, dict[str, torch.Tensor]] = {}  # by parameter
    for unit, named in tensors.items():
        members = old[int(unit)]
        counts = [count for _, count in members]
        for name, tensor in named.items():
            pieces = tensor.split(counts) if tensor.ndim else [tensor] * len(members)
            for (number, _), piece in zip(members, pieces, strict=True):
                parts.setdefault(number, {})[name] = piece
    recut: dict[str, dict[str, torch.Tensor]] = {}
    for unit_number, members in enumerate(new):
        examples: dict[str, torch.Tensor] = {}
        for number, _ in reversed(members):
            examples.update(parts.get(number, {}))
        joined = {
            name: torch.cat([parts.get(number, {}).get(name, example.new_zeros(count)) for number, count in members])
            if example.ndim
            else example.clone()
            for name, example in examples.items()
        }
        if joined:
            recut[str(unit_number)] = joined
    return recut
