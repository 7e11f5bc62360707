"""Keep the state of compressors, memories and optimizers from step to step, and convert it to and from state dicts."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from compressors.lazy import torch


class Stateless:
    """An object that keeps no state from step to step."""

    name: ClassVar[str]
    kind: ClassVar[str] = ""
    """Text that error messages put in front of the name, such as `memory=`."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state between two steps, keyed by unit; empty for most methods."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: the state does not have the form of this class's `state_dict`; nothing has been changed.
        """
        if not isinstance(state, Mapping):
            raise ValueError(f"{self.kind}{self.name} keeps no state, but was given a {type(state).__name__}")
        if state:
            given = sorted(map(str, state))
            raise ValueError(f"{self.kind}{self.name} keeps no state, but was given the keys {given}")


class Stateful(Stateless):
    """An object that keeps a few named tensors for every unit: `self.unit_tensors[unit][name]`."""

    remembers: ClassVar[tuple[str, ...]]
    """The names of the tensors."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Those of them that a unit may lack."""

    @functools.cached_property
    def unit_tensors(self) -> dict[int, dict[str, torch.Tensor]]:
        """The state, which is separate from the options: tensors by unit and name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        units = self.unit_tensors.items()
        return {str(unit): {name: tensor.clone() for name, tensor in named.items()} for unit, named in units}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        taken = read_state(f"{self.kind}{self.name}", state, self.remembers, self.optional)
        self.unit_tensors.clear()
        self.unit_tensors.update(taken)


def read_state(
    owner: str, state: Any, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[int, dict[str, torch.Tensor]]:
    """Return a copy of the tensors in a state of `Stateful.state_dict`, by unit and name.

    A unit must have all `names` except the `optional` ones, or no tensors if it has no state yet.

    Raises:
        ValueError: the state is something else. The message begins with `owner`, and says what was expected.
    """
    expected = f"{owner} keeps tensors by unit, called {', '.join(names)}"
    if not isinstance(state, Mapping):
        raise ValueError(f"{expected}, but was given {_kind(state)}")
    taken: dict[int, dict[str, torch.Tensor]] = {}
    for unit, named in state.items():
        if not (isinstance(unit, str) and unit.isascii() and unit.isdecimal()):
            raise ValueError(f"{expected}, but was given the key {unit!r}, which is not a unit's number")
        if not isinstance(named, Mapping):
            raise ValueError(f"{expected}, but was given {_kind(named)} for unit {unit}")
        missing = [name for name in names if name not in named and name not in optional]
        if any(name not in names for name in named) or (named and missing):
            raise ValueError(f"{expected}, but was given {', '.join(map(str, named))} for unit {unit}")
        for name, tensor in named.items():
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{expected}, but was given {_kind(tensor)} for {name} of unit {unit}")
        taken[int(unit)] = {name: tensor.clone() for name, tensor in named.items()}
    return taken


def require_keys(owner: str, state: Any, keys: Collection[str]) -> None:
    """Refuse a state that is not a mapping with exactly these keys.

    Raises:
        ValueError: "the state of `owner` has the keys ...".
    """
    if not isinstance(state, Mapping) or set(state) != set(keys):
        given = ", ".join(map(str, state)) if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise ValueError(f"the state of {owner} has the keys {', '.join(keys)}, but was given {given}")


def require_alike(owner: str, state: Any, mine: Mapping[str, torch.Tensor]) -> None:
    """Refuse a state unless it has the names, shapes and dtypes of the tensors in `mine`.

    Raises:
        ValueError: the state differs; the message begins with `owner`.
    """
    expected = f"{owner} keeps {', '.join(mine) or 'nothing'}"
    if not isinstance(state, Mapping) or set(state) != set(mine):
        given = ", ".join(map(str, state)) or "nothing" if isinstance(state, Mapping) else _kind(state)
        raise ValueError(f"{expected}, but was given {given}")
    for name, tensor in mine.items():
        given = state[name]
        if not isinstance(given, torch.Tensor):
            raise ValueError(f"{owner} keeps {', '.join(mine)}, but was given {_kind(given)} for {name}")
        if (given.shape, given.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(f"{owner} keeps {name} as {_form(tensor)}, but was given {_form(given)}")


def _form(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
