"""What a worker remembers from step to step, in named entries of plain dicts, tensors, numbers and strings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from compressors import unit_state
from gradsweep.signature import ADDED, NOT_IN_SIGNATURE
from trainers.algorithms.base import Algorithm
from trainers.config.groups import GROUPS, get_name
from trainers.config.run_config import RunConfig
from trainers.optimizers.schedules import Schedule
from trainers.recording.recorder import Recorder
from trainers.replica.replica import Replica

_ALGORITHM = "algorithm."
"""Entries of the algorithm begin so: what is alike on all workers is found out for each of them."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The parts of a rank that remember something."""

    replica: Replica
    algorithm: Algorithm
    schedule: Schedule
    recorder: Recorder

    def collect_entries(self) -> dict[str, Any]:
        """All that has to be known to go on with the next step, between two steps."""
        entries = {
            "parameters": self.replica.flat.values,
            "replica": self.replica.state_dict(),
            **{f"{_ALGORITHM}{key}": value for key, value in self.algorithm.state_dict().items()},
            "schedule": self.schedule.state_dict(),
            "recorder": self.recorder.state_dict(),
        }
        return {key: to_plain(value) for key, value in entries.items()}

    @torch.no_grad()
    def load(self, entries: Mapping[str, Any]) -> None:
        """Take back what `collect_entries` gave.

        Raises:
            ValueError: it is not the state of such a run.
        """
        values = self.replica.flat.values
        unit_state.require_alike("the model", {"parameters": entries.get("parameters")}, {"parameters": values})
        expected = {"parameters", "replica", "schedule", "recorder"}
        of_algorithm = {key for key in entries if key.startswith(_ALGORITHM)}
        if set(entries) != expected | of_algorithm:
            raise ValueError(f"it has the entries {', '.join(sorted(entries))}")
        self.algorithm.load_state_dict({key.removeprefix(_ALGORITHM): entries[key] for key in of_algorithm})
        self.schedule.load_state_dict(entries["schedule"])
        self.recorder.load_state_dict(entries["recorder"])
        values.copy_(entries["parameters"])
        self.replica.load_state_dict(entries["replica"])  # last, because random numbers are drawn on from here


def digest(value: Any) -> bytes:
    """A hash of an entry: the same on two workers only if every bit of it is."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.digest()


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        found.update(f"tensor {value.dtype} {tuple(value.shape)} {value.device.type}\0".encode())
        plain = value.detach().cpu().contiguous().reshape(-1)
        found.update(plain.view(torch.uint8).numpy() if plain.numel() else b"")
    elif isinstance(value, Mapping):
        found.update(f"mapping {len(value)}\0".encode())
        for key, item in value.items():
            _feed(found, key)
            _feed(found, item)
    elif isinstance(value, (list, tuple)):
        found.update(f"sequence {len(value)}\0".encode())
        for item in value:
            _feed(found, item)
    else:
        found.update(f"{type(value).__name__} {value!r}\0".encode())


def to_plain(value: Any) -> Any:
    """`value` as it goes into a file that is read with weights_only: dicts, lists, tuples, tensors, numbers, strings.

    Tensors that are a part of a larger one are copied, because that would be saved as a whole.

    Raises:
        TypeError: it holds something else.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        return value.detach() if whole else value.detach().clone()
    if isinstance(value, Mapping):
        return {to_plain(key): to_plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(to_plain(item) for item in value)
    for kind in (int, float, str):  # numpy has subclasses of them
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a state holds a {type(value).__name__}: it can hold tensors, numbers, strings and these in dicts")


def describe_config(config: RunConfig) -> dict[str, str]:
    """What decides the numbers of a run, in words by dotted key; without places, and without what says no more than
    its absence from the checkpoint of an earlier version."""
    keys: dict[str, str] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in GROUPS:
            if ADDED.get(field.name) == {"name": get_name(value)}:
                continue
            keys[field.name] = get_name(value)
        is_part = dataclasses.is_dataclass(value) and not isinstance(value, type)
        _flatten(field.name, dataclasses.asdict(value) if is_part else value, keys)
    return keys


def _flatten(prefix: str, value: Any, keys: dict[str, str]) -> None:
    if prefix in NOT_IN_SIGNATURE:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{prefix}.{key}", item, keys)
    else:
        keys[prefix] = value if isinstance(value, str) else json.dumps(value, default=str)
