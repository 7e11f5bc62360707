"""A worker's state between two steps, in named entries of plain dicts, tensors, numbers and strings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from compressors import unit_state
from gradsweep.signature import ADDED, ADDED_OPTIONS, NOT_IN_SIGNATURE
from trainers.algorithms.base import Algorithm
from trainers.config.groups import flatten_options
from trainers.config.run_config import RunConfig
from trainers.optimizers.schedules import Schedule
from trainers.recording.recorder import Recorder
from trainers.replica.replica import Replica

_ALGORITHM = "algorithm."
"""Prefix of the algorithm's entries, each of which is compared between workers."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The objects of a worker whose state a checkpoint saves."""

    replica: Replica
    algorithm: Algorithm
    schedule: Schedule
    recorder: Recorder

    def collect_entries(self) -> dict[str, Any]:
        """Return everything on which the next step depends, as named entries; called between two steps."""
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
        """Restore the state that `collect_entries` has returned.

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
        self.replica.load_state_dict(entries["replica"])  # last: it restores the generators of random numbers


def digest(value: Any) -> bytes:
    """Return a hash of an entry, which is equal on two workers only if every bit is."""
    hashing = hashlib.sha256()
    _feed(hashing, value)
    return hashing.digest()


def _feed(hashing: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        hashing.update(f"tensor {value.dtype} {tuple(value.shape)} {value.device.type}\0".encode())
        plain = value.detach().cpu().contiguous().reshape(-1)
        hashing.update(plain.view(torch.uint8).numpy() if plain.numel() else b"")
    elif isinstance(value, Mapping):
        hashing.update(f"mapping {len(value)}\0".encode())
        for key, item in value.items():
            _feed(hashing, key)
            _feed(hashing, item)
    elif isinstance(value, (list, tuple)):
        hashing.update(f"sequence {len(value)}\0".encode())
        for item in value:
            _feed(hashing, item)
    else:
        hashing.update(f"{type(value).__name__} {value!r}\0".encode())


def to_plain(value: Any) -> Any:
    """Convert a value to types that weights_only reads: dicts, lists, tuples, tensors, numbers, strings.

    Views of larger tensors are copied, because the larger tensor would be saved.

    Raises:
        TypeError: the value holds something else.
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
    """Return the options that determine the numbers of a run, as strings by dotted key.

    Paths and similar options are left out, and so are sections and options whose default earlier versions did not
    write.
    """
    options = flatten_options(config)
    added = {name for name, default in ADDED.items() if default in (options[name], {"name": options[name]})}
    left_out = {*NOT_IN_SIGNATURE, *added}
    unsaid = {f"{name}.{key}": value for name, added in ADDED_OPTIONS.items() for key, value in added.items()}
    return {
        key: value if isinstance(value, str) else json.dumps(value, default=str)
        for key, value in options.items()
        if key.partition(".")[0] not in left_out and value != {} and (key not in unsaid or value != unsaid[key])
    }
